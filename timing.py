"""The one clock: from an adapter's events to a Sample.

An adapter (in `local_cache.py` and `api_timing.py`) knows one protocol; it yields what happened,
each moment stamped where the bytes passed the transport, before anything was parsed. `measure`
turns those moments into seconds since the request was sent. Tests hand it events of their own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

from sample import TEXT, Connection, Failure, Sample, ServerTimings

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
class FirstByte:
    """The first byte of the answer came, whatever it holds."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The server says how far prefill has come."""

    processed_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of the answer; `tokens_so_far` counts the answer's tokens up to its end, where the
    server says so."""

    at_s: float
    kind: str
    text: str
    tokens_so_far: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts as reported; None is not reported. A later count replaces an earlier one; a later
    silence, or a usage that is all zero, does not."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    server: ServerTimings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The stream came to its regular end."""

    finish_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the reader of the sample should know."""

    text: str


Event = Sent | FirstByte | Progress | Piece | Usage | End | Note


class RequestFailed(Exception):
    """Raised by an adapter in mid-stream or before; becomes the error of the Sample."""

    def __init__(self, kind: str, message: str, http_status: int | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, http_status=http_status)


def prompt_hash(text: str) -> str:
    """A short fingerprint of a prompt, so that a record can tell prompts apart without them."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def merged(before: Usage, after: Usage) -> Usage:
    """What is known after a later usage; see `Usage`."""
    if not after.prompt_tokens and not after.output_tokens and before != Usage():
        return before
    told = {f.name: value for f in fields(after) if (value := getattr(after, f.name)) is not None}
    return replace(before, **told)


def measure(
    events: Iterable[Event],
    blank: Sample,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Sample, str]:
    """The Sample of one request, and its visible answer.

    `blank` carries what was asked (experiment, arm, turn, …); the events fill in the rest. An
    empty piece is no arrival: a chunk with only a role starts no clock. A stream that ends
    without End, with no piece and no counted token, or in a RequestFailed becomes a Sample with
    an error that keeps the arrivals so far.
    """
    sent_at = first_byte_s = None
    arrivals: list[float] = []
    kinds: list[str] = []
    answer: list[str] = []
    notes = list(blank.notes)
    first_piece_tokens = None
    connection = None
    usage = Usage()
    end: End | None = None
    error: Failure | None = None
    try:
        for event in events:
            match event:
                case Sent():
                    sent_at, connection = event.at_s, event.connection
                case FirstByte():
                    first_byte_s = event.at_s
                case Progress():
                    if on_progress is not None:
                        on_progress(event)
                case Piece():
                    if not event.text:
                        continue
                    if not arrivals:
                        first_piece_tokens = event.tokens_so_far
                    arrivals.append(event.at_s)
                    kinds.append(event.kind)
                    if event.kind == TEXT:
                        answer.append(event.text)
                case Usage():
                    usage = merged(usage, event)
                case End():
                    end = event
                case Note():
                    notes.append(event.text)
    except RequestFailed as failed:
        error = failed.failure
    if error is None and end is None:
        error = Failure(kind="incomplete", message="the stream stopped before its end")
    if error is None and not arrivals and not (usage.output_tokens and usage.server):
        # A llama-server may write tokens that have no text; elsewhere nothing came to be timed.
        error = Failure(kind="empty", message="the answer has no text in it")

    def since_sent(at_s: float) -> float:
        assert sent_at is not None, "an adapter yields Sent before anything that came back"
        return round(at_s - sent_at, CLOCK_DIGITS)

    sample = replace(
        blank,
        arrivals_s=tuple(map(since_sent, arrivals)),
        arrival_kinds=tuple(kinds),
        first_piece_tokens=first_piece_tokens,
        first_byte_s=None if first_byte_s is None else since_sent(first_byte_s),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        finish_reason=end.finish_reason if end else None,
        server=usage.server,
        connection=connection,
        error=error,
        notes=tuple(notes),
    )
    return sample, "".join(answer)
