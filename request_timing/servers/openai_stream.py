"""The decoder of OpenAI-style stream chunks: from a chunk's fields to events, with no I/O in it.

Providers agree on the outline and differ in the details: a first chunk with a role and no text,
chunks with no choices, thinking under many names, usage in five places under many spellings. What
is in no known place is noted: it may have been the first piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from request_timing.errors import one_line
from request_timing.records.sample import REASONING, TEXT, TOOL
from request_timing.servers.sanitize import MOST_DEPTH, Secrets, hide, plain_json
from request_timing.servers.timing import Chunk, Event, Note, Usage
from request_timing.untrusted import as_list, mapping, token_count

# Where a chunk may hold usage, beside its choice: OpenAI and most; Groq; a Gemini passed through;
# an Anthropic stream passed through, whose counts of the prompt lie in `message`.
USAGE_AT = (("usage",), ("x_groq", "usage"), ("usageMetadata",), ("message", "usage"))

# Thinking under its names, which say the same where several stand side by side: DeepSeek, vLLM,
# llama-server; OpenRouter, Ollama, Groq; MiniMax, and OpenRouter beside the one before; GitHub
# Copilot; gateways to Anthropic; LiteLLM; and a summary of what stays hidden.
THINKING = ("reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking",
            "thinking_blocks", "reasoning_summary")
# What a part of a text may hold its own text under.
PARTS = ("text", "summary", "content", "reasoning")
# What a delta has beside its pieces; a non-empty field of another name is noted.
NO_PIECES = frozenset((
    *THINKING, "content", "refusal", "tool_calls", "function_call", "role", "name", "id", "type",
    "index", "tool_call_id", "annotations", "citations", "reasoning_opaque", "reasoning_signature",
    "signature", "extra_content", "provider_specific_fields", "finish_reason", "stop_reason",
    "token_ids"))
# Ends that are none: the answer was broken off. What fits of the kinds of failure.
BROKEN_OFF = {
    "error": "error_in_answer", "insufficient_system_resource": "overloaded",  # DeepSeek
    "network_error": "error_in_answer",  # Zhipu
} | dict.fromkeys(("abort", "aborted", "cancel", "cancelled", "canceled", "interrupted", "timeout"),
                  "incomplete")
NO_REASON = ("", "null", "none")  # where JSON's null was meant
CACHED = (  # of the prompt, all of them within its count but for Anthropic's own
    ("prompt_tokens_details", "cached_tokens"),  # OpenAI, vLLM, SGLang, llama-server, most others
    ("input_tokens_details", "cached_tokens"),  # OpenAI Responses
    ("prompt_cache_hit_tokens",),  # DeepSeek
    ("cached_tokens",),  # Moonshot
    ("num_cached_tokens",),  # Mistral, Together
    ("cache_read_input_tokens",),  # Anthropic, Bedrock's gateways, LiteLLM
    ("prompt_tokens_details", "cache_read_input_tokens"),
    ("cacheReadInputTokens",),  # Bedrock Converse
    ("cachedContentTokenCount",),  # Gemini
)
PROMPT = (("prompt_tokens",), ("input_tokens",), ("inputTokens",), ("promptTokenCount",))
OUTPUT = (("completion_tokens",), ("output_tokens",), ("outputTokens",), ("candidatesTokenCount",))
TOTAL = (("total_tokens",), ("totalTokens",), ("totalTokenCount",))
THOUGHT = (("completion_tokens_details", "reasoning_tokens"),
           ("output_tokens_details", "reasoning_tokens"), ("reasoning_tokens",),
           ("thoughtsTokenCount",))
# Anthropic counts what it wrote to its cache apart from the rest of the prompt.
WRITTEN = (("cache_creation_input_tokens",), ("cacheWriteInputTokens",))
# Where the body says nothing of the prompt: Fireworks.
CACHED_HEADER, PROMPT_HEADER = "fireworks-cached-prompt-tokens", "fireworks-prompt-tokens"


def decode(chunk: Mapping[str, Any], at_s: float, key: Secrets = None) -> Iterator[Event]:
    """The events in one chunk whose bytes came at `at_s`; often none.

    Usage is read first, wherever it lies, and before the choices are looked at, which may be
    empty or null. The end of the stream is no business of a chunk: see `finish_reason`. `key` is
    kept out of what is kept.
    """
    choice = _first_choice(chunk)
    usage = next((found for path in USAGE_AT if (found := mapping(_at(chunk, path)))),
                 mapping(choice.get("usage")))
    timings = mapping(chunk.get("timings"))
    if usage or timings:
        yield read_usage(usage, timings, key)
    delta = _delta(choice)
    pieces = list(_pieces(delta, at_s))
    yield from pieces
    for name in () if pieces else _unknown(delta):
        yield Note(text=f"unknown_delta: {one_line(hide(name, key), limit=100)}: no known field of "
                        "a stream; if it holds the answer, TTFT and the end are not the answer's")


def _delta(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a choice adds to the answer: its delta, or where there is none, a message (unless it
    comes with the end, and repeats the answer) or a text, as of completions."""
    delta = choice.get("delta")
    if isinstance(delta, Mapping) and any(delta.get(name) for name in delta if name != "role"):
        return delta
    message = choice.get("message")
    if isinstance(message, Mapping) and (delta is None or not _named(choice)):
        return message
    if isinstance(choice.get("text"), str):
        return {"content": choice["text"]}
    return mapping(delta)


def _unknown(delta: Mapping[str, Any]) -> Iterator[str]:
    """The names of what a delta holds and nobody knows, where it may be a piece."""
    for name, value in delta.items():
        if name not in NO_PIECES and value and isinstance(value, str | list | dict):
            yield str(name)


def _pieces(delta: Mapping[str, Any], at_s: float) -> Iterator[Chunk]:
    """The pieces in a delta: thinking, text, tool calls."""
    named = next((name for name in THINKING if any(_texts(delta.get(name), REASONING))), "")
    summary = named == "reasoning_summary" or "reasoning.summary" in [
        mapping(part).get("type") for part in as_list(delta.get("reasoning_details"))]
    for kind, content in ((REASONING, delta.get(named)), (TEXT, delta.get("content")),
                          (TEXT, delta.get("refusal")),
                          (TEXT, mapping(delta.get("audio")).get("transcript"))):
        for sort, text in _texts(content, kind):
            yield Chunk(at_s=at_s, kind=sort, text=text, summary=summary and sort == REASONING)
    calls = delta.get("tool_calls")
    for call in (*(calls if isinstance(calls, list) else (calls,)),
                 {"function": delta.get("function_call")}):
        if text := _call(mapping(call)):
            yield Chunk(at_s=at_s, kind=TOOL, text=text)


def _call(call: Mapping[str, Any]) -> str:
    """What a tool call's fragment adds: a name, arguments, as a string or as an object."""
    said = mapping(call.get("function") or call.get("custom") or call)
    parts = [part for part in map(said.get, ("name", "arguments", "input"))
             if part and isinstance(part, str | list | dict)]
    return "".join(part if isinstance(part, str) else json.dumps(part) for part in parts)


def finish_reason(chunk: Mapping[str, Any]) -> str | None:
    """Why the answer ended, in the chunk that says so."""
    return _named(_first_choice(chunk))


def _named(choice: Mapping[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    return str(reason) if reason and str(reason).strip().lower() not in NO_REASON else None


def error_of(chunk: Mapping[str, Any]) -> Any:
    """The error that a chunk holds instead of a piece, in any of the shapes there are, or None."""
    error = chunk.get("error") or _first_choice(chunk).get("error")
    if error is None and chunk.get("object") == "error":
        error = chunk
    says = chunk.get("message") or chunk.get("detail")
    if error is None and isinstance(says, str | list) and not {"choices", "usage"} & chunk.keys():
        error = chunk
    return error or None


def read_usage(usage: Mapping[str, Any], timings: Mapping[str, Any] | None = None,
               key: Secrets = None) -> Usage:
    """Counts under any of the known spellings; None where none is there, 0 only where reported.

    The first spelling that is a count is taken, of the cached tokens the largest (a gateway fills
    its own with zeros); two spellings of one count are never added.
    `timings` is what a llama-server puts beside usage; its cache_n speaks where usage is silent.
    """
    timings = timings or {}
    prompt, total = _first(usage, PROMPT), _first(usage, TOTAL)
    cached, output = max(_counts(usage, CACHED), default=None), _first(usage, OUTPUT)
    thought, written = _first(usage, THOUGHT), _first(usage, WRITTEN)
    if output is not None and thought and total == (prompt or 0) + output + thought:
        output += thought  # xAI and Gemini count thinking beside the output, all others within
    if prompt is not None and _is_apart(usage, prompt, output or 0, total, cached, written):
        prompt += (cached or 0) + (written or 0)
    if cached is None:
        cached = _count(timings.get("cache_n"))
    if prompt is None and cached is not None and (new := _count(timings.get("prompt_n"))):
        prompt = cached + new
    return Usage(prompt_tokens=prompt, cached_tokens=cached, output_tokens=output,
                 reasoning_tokens=thought,
                 raw=plain_json(dict(usage) | ({"timings": timings} if timings else {}), key))


def usage_in_headers(headers: Mapping[str, str]) -> Usage:
    """Counts that a provider gives in the head of its answer; names in lower case."""
    def count(name: str) -> int | None:
        text = headers.get(name, "").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None

    return Usage(prompt_tokens=count(PROMPT_HEADER), cached_tokens=count(CACHED_HEADER))


def _is_apart(usage: Mapping[str, Any], prompt: int, output: int, total: int | None,
              cached: int | None, written: int | None) -> bool:
    """Whether the prompt's count leaves out what was read from and written to the cache.

    Anthropic's own input_tokens does. A gateway may pass that on as prompt_tokens, which only
    arithmetic can tell: more is cached than there is, or the total holds all three.
    """
    apart = (cached or 0) + (written or 0)
    if not apart:
        return False
    if total is None and "prompt_tokens" not in usage and (
            written is not None or "cache_read_input_tokens" in usage):
        return True
    if total is not None:
        return total == prompt + apart + output and total != prompt + output
    return written is not None and (cached or 0) > prompt


def _texts(content: Any, kind: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The texts of a delta's content: a string, a part, or a list of both. Mistral's thinking
    models send {"type": "text", "text": …} and {"type": "thinking", "thinking": [parts]}; the parts
    of reasoning_details have a "text" or a "summary". Cloudflare sends a token of digits as a
    number."""
    if isinstance(content, str | int | float) and not isinstance(content, bool):
        if content != "":
            yield kind, str(content)
    elif depth > MOST_DEPTH:
        return
    elif isinstance(content, list):
        for part in content:
            yield from _texts(part, kind, depth + 1)
    elif isinstance(content, Mapping):
        yield from _texts(content.get("thinking"), REASONING, depth + 1)
        yield from _texts(next(filter(None, map(content.get, PARTS)), None), kind, depth + 1)


def _first(usage: Mapping[str, Any], spellings: tuple[tuple[str, ...], ...]) -> int | None:
    """The first of several spellings under which there is a count of tokens."""
    return next(iter(_counts(usage, spellings)), None)


def _counts(usage: Mapping[str, Any], spellings: tuple[tuple[str, ...], ...]) -> list[int]:
    """The counts of tokens that there are under several spellings."""
    found = (_count(_at(usage, path)) for path in spellings)
    return [count for count in found if count is not None]


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = mapping(value).get(name)
    return value


def _count(value: Any) -> int | None:
    """A count of tokens, or None where the server sent something else; 12.0 is 12."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return token_count(value)


def _first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first answer's part of a chunk, which another's may stand in front of or instead of."""
    for choice in map(mapping, as_list(chunk.get("choices"))):
        index = choice.get("index")
        if not isinstance(index, int) or index <= 0:
            return choice
    return {}
