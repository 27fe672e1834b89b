"""The one clock: from an adapter's events to a Sample.

An adapter (in `local_cache.py` and `api_timing.py`) knows one protocol; it yields what happened,
each moment stamped where the bytes passed the transport, before anything was parsed. `measure`
turns those moments into seconds since the request was sent. Tests hand it events of their own.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from request_timing.records.sample import (
    REASONING,
    TEXT,
    UNREAD,
    Connection,
    Failure,
    Sample,
    ServerTimings,
)

Clock = Callable[[], float]
# Monotonic and of the finest resolution there is: a wall clock may step back in mid-request.
clock: Clock = time.perf_counter
CLOCK_DIGITS = 6  # microseconds: finer than the way of any byte through a socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The last byte of the request was written."""

    at_s: float
    connection: Connection | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer's head came; `headers` are those of it that are worth keeping."""

    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """Bytes of the answer came, whatever they hold."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The server says how far prefill has come."""

    at_s: float
    processed_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of the answer; `tokens_so_far` counts the answer's tokens up to its end, where the
    server says so; a `summary` of thinking stands for more tokens than it has."""

    at_s: float
    kind: str
    text: str
    tokens_so_far: int | None = None
    summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts as reported; None is not reported. A later count replaces an earlier one (see
    `merged`). `raw` is the object they were read from."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    server: ServerTimings | None = None
    raw: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The stream came to its regular end."""

    finish_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the reader of the sample should know."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A line of the stream that could not be read, as it may be shown."""

    text: str


Event = Sent | Answered | Alive | Progress | Chunk | Usage | End | Note | Unread
# A line with none of these holds no object, and so no piece; nor does a comment sent as data.
_OF_AN_OBJECT = re.compile(r'(?!:)[^{}"]*[{}"]')


class RequestFailed(Exception):
    """Raised by an adapter in mid-stream or before; becomes the error of the Sample."""

    def __init__(self, kind: str, message: str, http_status: int | None = None, *,
                 retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, http_status=http_status,
                               retry_after_s=retry_after_s)

    @classmethod
    def again(cls, failure: Failure) -> RequestFailed:
        """A failure, as an exception again."""
        return cls(failure.kind, failure.message, failure.http_status,
                   retry_after_s=failure.retry_after_s)


def prompt_hash(text: str) -> str:
    """A short fingerprint of a prompt, so that a record can tell prompts apart without them."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def merged(before: Usage, after: Usage) -> Usage:
    """What is known after a later usage.

    A later count replaces an earlier one; a silence does not, nor does a zero in place of a prompt
    or an output that was counted, nor a prompt with no cached tokens beside it that is less than
    was known: it leaves out what the cache held (an Anthropic stream's last event).
    """
    if not after.prompt_tokens and not after.output_tokens and before != Usage():
        return before
    told = {f.name: value for f in fields(after) if (value := getattr(after, f.name)) is not None}
    known = before.prompt_tokens or 0
    if after.prompt_tokens == 0 < known:
        del told["prompt_tokens"]
        told.pop("cached_tokens", None)
    elif after.cached_tokens is None and (after.prompt_tokens or known) < known:
        del told["prompt_tokens"]
    if after.output_tokens == 0 < (before.output_tokens or 0):
        del told["output_tokens"]
        told.pop("reasoning_tokens", None)
    return replace(before, **told)


class _Seen:
    """What the events of one request have said so far."""

    def __init__(self, stall_s: float, on_progress: Callable[[Progress], None] | None) -> None:
        self._stall_s = stall_s
        self._on_progress = on_progress
        self._moved_at = 0.0
        self._texts: list[str] = []
        self.sent: Sent | None = None
        self.headers: Mapping[str, str] | None = None
        self.first_byte_at: float | None = None
        self.pieces: list[Chunk] = []
        self.usage = Usage()
        self.end: End | None = None
        self.notes: list[str] = []

    def take(self, event: Event) -> None:
        """Note one event. Raises RequestFailed where nothing has come for too long."""
        match event:
            case Sent():
                self.sent, self._moved_at = event, event.at_s
            case Answered():
                self.headers = event.headers
            case Alive():
                if self.first_byte_at is None:
                    self.first_byte_at = event.at_s
                if event.at_s - self._moved_at > self._stall_s:
                    raise RequestFailed("stalled", "the server keeps the stream open, and sent no "
                                        f"piece of the answer for {self._stall_s:g} s")
            case Progress():
                self._moved_at = event.at_s
                if self._on_progress is not None:
                    self._on_progress(event)
            case Chunk():
                if event.text:
                    self._moved_at = event.at_s
                    self.pieces.append(event)
            case Usage():
                self.usage = merged(self.usage, event)
            case End():
                self.end = event
            case Note():
                if event.text not in self.notes:
                    self.notes.append(event.text)
            case Unread():
                may_be_the_first = not self.pieces and _OF_AN_OBJECT.match(event.text)
                self.notes.append(
                    f"{UNREAD}: a line before the first piece is no JSON, and may have held it: "
                    f"{event.text}" if may_be_the_first else
                    f"no_json: a line of the stream is no JSON: {event.text}")

    @property
    def thinking_chars(self) -> int | None:
        """Characters of streamed thinking, a summary's not counted; None where no piece came."""
        thinking = [piece for piece in self.pieces if piece.kind == REASONING]
        return sum(len(p.text) for p in thinking if not p.summary) if thinking else None

    @property
    def answer(self) -> str:
        """The visible text. A surrogate pair that came in two pieces is joined; half a one, which
        no request could carry, is replaced."""
        text = "".join(piece.text for piece in self.pieces if piece.kind == TEXT)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    @property
    def failure(self) -> Failure | None:
        """Why this is no answer, if it is none."""
        if self.end is None:
            return Failure(kind="incomplete", message="the stream stopped before its end")
        if not self.pieces and not (self.usage.output_tokens and self.usage.server):
            # A llama-server may write tokens that have no text; elsewhere nothing came to be timed.
            return Failure(kind="empty", message="the answer has no text in it")
        return None

    def since_sent(self, at_s: float | None) -> float | None:
        """Seconds from sending to a moment."""
        if at_s is None:
            return None
        assert self.sent is not None, "an adapter yields Sent before anything that came back"
        return round(at_s - self.sent.at_s, CLOCK_DIGITS)


def measure(
    events: Iterable[Event],
    blank: Sample,
    *,
    stall_s: float = math.inf,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Sample, str]:
    """The Sample of one request, and its visible answer.

    `blank` carries what was asked (experiment, arm, turn, …); the events fill in the rest. An
    empty piece is no arrival: a chunk with only a role starts no clock. A stream that ends
    without End, with no piece and no counted token, or in a RequestFailed becomes a Sample with
    an error that keeps the arrivals so far; so does one that is alive and yet brings nothing for
    `stall_s` seconds.
    """
    seen = _Seen(stall_s, on_progress)
    failed: Failure | None = None
    try:
        for event in events:
            seen.take(event)
    except RequestFailed as error:
        failed = error.failure
    finally:
        if isinstance(events, Generator):
            events.close()  # and with it the connection
    usage = seen.usage
    sample = replace(
        blank,
        arrivals_s=tuple(seen.since_sent(piece.at_s) or 0.0 for piece in seen.pieces),
        arrival_kinds=tuple(piece.kind for piece in seen.pieces),
        first_piece_tokens=seen.pieces[0].tokens_so_far if seen.pieces else None,
        thinking_chars=seen.thinking_chars,
        first_byte_s=seen.since_sent(seen.first_byte_at),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        finish_reason=seen.end.finish_reason if seen.end else None,
        server=usage.server,
        connection=seen.sent.connection if seen.sent else None,
        usage_raw=None if usage.raw is None else dict(usage.raw),
        response_headers=None if seen.headers is None else dict(seen.headers),
        error=failed or seen.failure,
        notes=(*blank.notes, *seen.notes),
    )
    return sample, seen.answer
