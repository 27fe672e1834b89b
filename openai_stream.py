"""The decoder of OpenAI-style stream chunks: from a chunk's fields to events, with no I/O in it.

Providers agree on the outline and differ in the details: a first chunk with a role and no text,
chunks with no choices, thinking under two names, usage in three places under several spellings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sample import REASONING, TEXT, TOOL
from timing import Event, Piece, Usage


def decode(chunk: Mapping[str, Any], at_s: float) -> Iterator[Event]:
    """The events in one chunk whose bytes came at `at_s`; often none.

    Usage is read first, wherever it lies, and before the choices are looked at, which may be
    empty or null. The end of the stream is no business of a chunk: see `finish_reason`.
    """
    choice = _first_choice(chunk)
    usage = chunk.get("usage") or choice.get("usage")
    if isinstance(usage, Mapping):
        yield read_usage(usage)
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        return
    thinking = delta.get("reasoning_content") or delta.get("reasoning")
    for kind, content in ((REASONING, thinking), (TEXT, delta.get("content"))):
        for found, text in _texts(content, kind):
            yield Piece(at_s=at_s, kind=found, text=text)
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = _mapping(_mapping(call).get("function"))
        parts = (function.get("name"), function.get("arguments"))
        text = "".join(part for part in parts if isinstance(part, str))
        if text:
            yield Piece(at_s=at_s, kind=TOOL, text=text)


def finish_reason(chunk: Mapping[str, Any]) -> str | None:
    """Why the answer ended, in the chunk that says so."""
    reason = _first_choice(chunk).get("finish_reason")
    return str(reason) if reason else None


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Counts under any of the known spellings; None where none is there, 0 only where reported.

    Cached tokens: OpenAI and most others nest them in prompt_tokens_details, DeepSeek has
    prompt_cache_hit_tokens, Moonshot a top-level cached_tokens. The first that is not null is
    taken; two spellings of one count are never added.
    """
    prompt_details = _mapping(usage.get("prompt_tokens_details"))
    output_details = _mapping(usage.get("completion_tokens_details"))
    prompt, total = _count(usage.get("prompt_tokens")), _count(usage.get("total_tokens"))
    output = _count(usage.get("completion_tokens"))
    thought = _count(output_details.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    if output is not None and thought and total == (prompt or 0) + output + thought:
        output += thought  # xAI counts thinking beside completion_tokens, all others within
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=_count(prompt_details.get("cached_tokens"),
                             usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")),
        output_tokens=output, reasoning_tokens=thought,
    )


def _texts(content: Any, kind: str) -> Iterator[tuple[str, str]]:
    """The texts of a delta's content: a string, or a list of parts as Mistral's thinking models
    send, {"type": "text", "text": …} and {"type": "thinking", "thinking": [parts]}."""
    if isinstance(content, str):
        if content:
            yield kind, content
    elif isinstance(content, list):
        for part in map(_mapping, content):
            yield from _texts(part.get("thinking"), REASONING)
            yield from _texts(part.get("text"), kind)


def _count(*candidates: Any) -> int | None:
    """The first that is a count of tokens."""
    for value in candidates:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value, or where it is of another shape, an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def _first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = chunk.get("choices") or [{}]
    first = choices[0] if isinstance(choices, list) else {}
    return first if isinstance(first, Mapping) else {}
