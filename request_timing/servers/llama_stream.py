"""The decoder of a llama-server's /completion stream: from its values to events, with no I/O in it.

Its last event carries `timings`: cache_n (reused), prompt_n (recomputed), prompt_ms, predicted_n,
predicted_ms. (`tokens_cached`, beside them, is the slot's size after generation and no reuse.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from request_timing.errors import one_line
from request_timing.records.sample import TEXT, ServerTimings
from request_timing.servers.failures import kind_of, retry_after_s
from request_timing.servers.sanitize import Secrets, hide, plain_json
from request_timing.servers.sse import Done, Noise
from request_timing.servers.timing import (
    Alive,
    Chunk,
    End,
    Event,
    Note,
    Progress,
    RequestFailed,
    Unread,
    Usage,
)
from request_timing.untrusted import mapping, token_count

# What a record keeps of the last event beside its timings.
RAW = ("tokens_evaluated", "tokens_predicted", "tokens_cached", "truncated", "stop_type", "model")


def events(data: Iterator[tuple[float, Any]], key: Secrets = None) -> Iterator[Event]:
    """The events of a /completion stream, of the values of `sse.payloads`; `key` is kept out.

    Raises RequestFailed where the server reports an error in the stream.
    """
    for at_s, value in data:
        if value is None:
            yield Alive(at_s=at_s)
        elif isinstance(value, Done):
            return
        elif isinstance(value, Noise):
            yield Unread(text=one_line(hide(value.text, key)))
        elif not isinstance(value, dict):
            continue
        elif value.get("error"):
            raise failure(value, None, key=key)
        elif "prompt_progress" in value:
            progress = mapping(value["prompt_progress"])
            done, total = token_count(progress.get("processed")), token_count(progress.get("total"))
            if done is not None and total is not None:
                yield Progress(at_s=at_s, processed_tokens=done, total_tokens=total)
        elif value.get("stop"):
            yield from _last(at_s, value, key)
            return  # whatever breaks or is held open behind the end is no part of the answer
        else:
            yield _piece(at_s, value)


def _last(at_s: float, data: dict[str, Any], key: Secrets) -> Iterator[Event]:
    """The final event: perhaps a last piece, the counts, the reason it ended."""
    yield _piece(at_s, data)
    timings = mapping(data.get("timings"))
    prompt_n = token_count(timings.get("prompt_n"))
    evaluated = token_count(data.get("tokens_evaluated"))
    reused = token_count(timings.get("cache_n"))
    if reused is None and evaluated is not None and prompt_n is not None:
        # Builds before September 2025 have no cache_n; less than none is no count.
        reused = token_count(evaluated - prompt_n)
    if evaluated is None and reused is not None and prompt_n is not None:
        evaluated = reused + prompt_n
    predicted = token_count(timings.get("predicted_n", data.get("tokens_predicted")))
    yield Usage(
        prompt_tokens=evaluated, cached_tokens=reused, output_tokens=predicted,
        server=ServerTimings(
            cache_n=reused, prompt_n=prompt_n, prompt_ms=_duration(timings.get("prompt_ms")),
            predicted_n=predicted, predicted_ms=_duration(timings.get("predicted_ms")),
            id_slot=token_count(data.get("id_slot")),
        ),
        raw=plain_json({"timings": timings} | {name: data[name] for name in RAW if name in data},
                       key),
    )
    if data.get("truncated"):
        yield Note(text="truncated: the server cut the prompt or the answer to its context")
    reason = data.get("stop_type")
    yield End(finish_reason=one_line(hide(str(reason), key)) if reason else None)


def _piece(at_s: float, data: dict[str, Any]) -> Chunk:
    content = data.get("content")
    return Chunk(at_s=at_s, kind=TEXT, text=content if isinstance(content, str) else "",
                 tokens_so_far=token_count(data.get("tokens_predicted")))


def _duration(value: Any) -> float | None:
    """Milliseconds, or None where the server sent something else, or less than none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def failure(data: Any, status: int | None, headers: Mapping[str, str] | None = None,
            key: Secrets = None) -> RequestFailed:
    """What a llama-server's error object says, in one line; `key` is kept out."""
    error = data.get("error", data) if isinstance(data, dict) else data
    message = error.get("message", error) if isinstance(error, dict) else error
    status = status or token_count(mapping(error).get("code"))
    kind = kind_of(status, one_line(error))
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return RequestFailed(kind, one_line(hide(text, key)), status,
                         retry_after_s=retry_after_s(headers or {}))
