"""One request: what was asked, when each piece came, what was counted, or why it failed.

Raw is stored, the rest is derived: a Sample keeps arrivals and counts, and what it says of TTFT,
totals and reuse is computed from them each time. Seconds and tokens; None is unknown, 0 is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

BROKE = "broke: "  # how the note begins that has a column of its own in a replay
UNREAD = "unread"  # what may have been the first piece could not be read
# Notes that keep a sample out of every average begin so.
LEFT_OUT = ("not_cold", "truncated", "void", "response_cache", UNREAD)

BURST_PIECES, BURST_SHARE = 8, 5

TEXT, REASONING, TOOL = "text", "reasoning", "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimings:
    """What a llama-server says of one request: tokens, and milliseconds as it gives them.

    cache_n: prompt tokens reused; prompt_n: prompt tokens computed, in prompt_ms;
    predicted_n: tokens written, in predicted_ms; id_slot: the slot that answered.
    """

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    id_slot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Whether this request opened a connection, and what that cost before it was sent."""

    new: bool | None = None
    connect_s: float | None = None
    tls_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was read back into the slot before this request was sent, outside its clock."""

    tokens: int | None = None
    size_bytes: int | None = None
    took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request failed: a short kind for programs (see failures.py), one line for people."""

    kind: str
    message: str
    http_status: int | None = None
    retry_after_s: float | None = None  # what the answer asked to wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request: what was asked, when each piece came, what was counted, or why it failed.

    arrivals_s: seconds from the moment the request's last byte was written to the arrival of
    each non-empty piece; arrival_kinds: "text", "reasoning" or "tool", one for each arrival;
    thinking_chars: characters of the thinking that was streamed itself, and not in summary, None
    where no piece of thinking came;
    usage_raw: the object that the counts were read from; response_headers: those that tell of
    caches; shared_chars: the longest beginning that this prompt shares with an earlier one of the
    run and its answer (of a replay: with the turn before), shared_tokens the same by the server's
    tokenizer. Of a replay: best_turn, the earlier turn that shares more than the turn before does,
    with best_chars and best_tokens of it, if there is one; avoidable_share: what of the prompt the
    turn before had too, behind the first break, 0 to 1.
    """

    experiment: str
    arm: str
    turn: int
    repeat: int
    sent_at: str
    prompt_chars: int
    prompt_hash: str
    asked_output_tokens: int
    shared_chars: int | None = None
    shared_tokens: int | None = None
    best_turn: int | None = None
    best_chars: int | None = None
    best_tokens: int | None = None
    avoidable_share: float | None = None
    arrivals_s: tuple[float, ...] = ()
    arrival_kinds: tuple[str, ...] = ()
    first_piece_tokens: int | None = None
    thinking_chars: int | None = None
    first_byte_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    server: ServerTimings | None = None
    connection: Connection | None = None
    restored: Restored | None = None
    usage_raw: dict[str, Any] | None = None
    response_headers: dict[str, str] | None = None
    error: Failure | None = None
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether this sample may enter an average: whole, and cold if it had to be."""
        return self.error is None and self.left_out is None

    @property
    def left_out(self) -> str | None:
        """The note that keeps an answered request out of every figure, if one does."""
        return next((note for note in self.notes if note.startswith(LEFT_OUT)), None)

    @property
    def predicted_reuse(self) -> float | None:
        """The share of this prompt that a perfect prefix cache would hold, 0 to 1."""
        if self.shared_tokens is not None and self.prompt_tokens:
            return min(1.0, self.shared_tokens / self.prompt_tokens)
        if self.shared_chars is None or not self.prompt_chars:
            return None
        return self.shared_chars / self.prompt_chars

    @property
    def reported_reuse(self) -> float | None:
        """The share of this prompt that the server says it reused; above 1 it is nonsense."""
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return self.cached_tokens / self.prompt_tokens

    @property
    def ttft_s(self) -> float | None:
        """Seconds from sending to the first non-empty piece of any kind."""
        return self.arrivals_s[0] if self.arrivals_s else None

    @property
    def total_s(self) -> float | None:
        """Seconds from sending to the last piece."""
        return self.arrivals_s[-1] if self.arrivals_s else None

    @property
    def came_in_bursts(self) -> bool:
        """Whether something between here and the model held the stream back.

        Pieces of one read have one arrival; a stream that is let through has about as many arrivals
        as pieces. With five pieces a read or more, or all of them in one, TTFT holds much of the
        answer, and the gaps say nothing of decode.
        """
        pieces, reads = len(self.arrivals_s), len(set(self.arrivals_s))
        return pieces > reads == 1 or (pieces >= BURST_PIECES and reads <= pieces / BURST_SHARE)

    @property
    def hidden_thinking_tokens(self) -> int:
        """Thinking that was counted but never streamed, or only in summary: it is in TTFT, beside
        prefill, or between the pieces of the summary. No token has less than a character."""
        counted = self.reasoning_tokens or 0
        came = REASONING in self.arrival_kinds
        if came and (self.thinking_chars is None or self.thinking_chars >= counted):
            return 0
        return counted

    @property
    def inter_token_s(self) -> float | None:
        """(last piece - first piece) / (output tokens - tokens in the first piece).

        The tokens of the first piece are known from a llama-server; elsewhere the mean tokens a
        piece stand for them. Thinking that was counted but never streamed is no part of the
        stream and is left out, and so are the pieces of its summary. None without reported tokens,
        where the stream came in bursts, or where nothing is left to divide.
        """
        if self.output_tokens is None or self.came_in_bursts:
            return None
        hidden = self.hidden_thinking_tokens
        pieces = self.arrivals_s if not hidden else [
            at_s for at_s, kind in zip(self.arrivals_s, self.arrival_kinds, strict=False)
            if kind != REASONING]
        if len(set(pieces)) < 2:
            return None
        streamed = float(self.output_tokens - hidden)
        first = self.first_piece_tokens or streamed / len(pieces)
        if streamed - first <= 0 or (self.reasoning_tokens or 0) > self.output_tokens:
            return None
        return (pieces[-1] - pieces[0]) / (streamed - first)

    @property
    def inter_chunk_s(self) -> float | None:
        """Mean gap between pieces: what can be said where no tokens are reported."""
        gaps = 0 if self.came_in_bursts else len(self.arrivals_s) - 1
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / gaps if gaps > 0 else None

    def to_json(self) -> dict[str, Any]:
        """All fields, and the derived seconds beside them."""
        derived = ("ttft_s", "total_s", "inter_token_s", "inter_chunk_s")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sample:
        """The sample of a JSON object; unknown and derived names are ignored.

        Raises TypeError or ValueError where a required name is missing or of the wrong shape.
        """
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        for name, kind in (("server", ServerTimings), ("connection", Connection),
                           ("restored", Restored), ("error", Failure)):
            if known.get(name) is not None:
                known[name] = kind(**known[name])
        for name in ("arrivals_s", "arrival_kinds", "notes"):
            known[name] = tuple(known.get(name, ()))
        return cls(**known)
