"""What an experiment works with: prompts, the backend they go to, and the samples that come back.

What differs between a cloud API and a llama-server is behind `Backend`: how a prompt is sent, and
how its tokens are counted. The `Lab` makes each prompt unlike the others, asks it, and keeps
what the server may have cached.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from request_timing.findings.measures import spent_tokens
from request_timing.findings.verdict import verdicts
from request_timing.prompts.filler import common_prefix, filler, fit_text, nonces
from request_timing.records.sample import Sample
from request_timing.servers.backend import Backend, Prompt
from request_timing.servers.patience import Patience
from request_timing.servers.timing import Event, Progress, RequestFailed, measure, prompt_hash

if TYPE_CHECKING:
    from request_timing.prompts.captured import Turn

# Beside the head that the server puts before every prompt (a BOS token, a chat template), a cold
# prompt may share a letter or so with an earlier one; with more the sample was not cold.
COLD_SHARE, COLD_TOKENS = 0.01, 4

FIRST_LOOK = 8
COUNT_MARGIN = 1.2  # of a calibrated count, for a text unlike the one it was calibrated by
STAMP = "Current time: {now:%Y-%m-%dT%H:%M:%S.%fZ}\n\n"
WORD_TASK = "\n\nName one word of this text.\nAnswer:"
SIZE_MISS = 0.02  # of its size, by which a text sized to so many tokens may be longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The sizes of a run. `document` is the user's own text for *cache*, if there is one."""

    experiments: tuple[str, ...]
    lengths: tuple[int, ...]
    outputs: tuple[int, ...]
    context: int
    turns: int
    repeats: int
    seed: int
    document: str | None = None
    document_tokens: int | None = None  # what is to be left of it
    until_sure: bool = False
    max_turns: int = 0
    max_tokens: int | None = None
    captured: tuple[Turn, ...] = ()  # the turns of --replay
    mended: tuple[Turn, ...] = ()  # the same with their breaks mended, for --what-if
    limit_tokens: int | None = None  # the context of the server, of one slot, where it is known
    shapes: tuple[tuple[int, int], ...] = ()  # prompt and output tokens that the user asks about
    traffic: dict[str, Any] | None = None  # the sums of a whole mix, see findings/traffic.py
    pauses: tuple[int, ...] = ()  # seconds, of *restore*

    @property
    def looks(self) -> tuple[int, ...]:
        """After which turns --until-sure looks whether the verdict is firm.

        Each look has its share of the level, so that many looks together are wrong no more often
        than one; a few, further and further apart, cost less of it than one a turn.
        """
        return look_turns(max(self.turns, FIRST_LOOK), self.max_turns) if self.until_sure else ()


def look_turns(first: int, last: int) -> tuple[int, ...]:
    """first, half as many again, and so on, and last; none less than a tenth before last."""
    turns = []
    while 11 * first <= 10 * last:
        turns.append(first)
        first = first + (first + 1) // 2
    return (*turns, last)


class Stopped(Exception):
    """The run is to end before the next request; the message says why."""


def with_miss(tokens: int) -> int:
    """The most that a text sized to so many tokens may have."""
    return tokens + math.ceil(SIZE_MISS * tokens)


@dataclass(kw_only=True)
class Lab:
    """One run's backend and settings, and what makes each of its prompts unlike the others."""

    backend: Backend
    settings: Settings
    on_request: Callable[[Sample], None] = lambda sample: None
    on_progress: Callable[[Progress], None] | None = None
    on_end: Callable[[str], None] = lambda text: None  # an experiment ended before its end
    # Called with the most tokens that a prompt may have, and its output; may raise Stopped.
    before_request: Callable[[int, int], None] | None = None
    patience: Patience = field(default_factory=lambda: Patience(0.0, lambda text: None))
    stall_s: float = math.inf
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._nonces = nonces()
        self._last_stamp = datetime.min.replace(tzinfo=UTC)
        self._held: list[str] = []
        self._times_away = 0
        self._waited_s = 0.0  # since the last sample

    def opening(self) -> str:
        """A first line that no other prompt has, so that no cache knows its first token."""
        return next(self._nonces) + ".\n"

    def stamp(self) -> str:
        """The time now, to the microsecond, and never the same twice."""
        self._last_stamp = max(self.now(), self._last_stamp + timedelta(microseconds=1))
        return STAMP.format(now=self._last_stamp)

    def rng(self, purpose: str) -> random.Random:
        """A generator of its own for each purpose, so that one experiment alone, or all three,
        makes the same choices."""
        return random.Random(f"{self.settings.seed}/{purpose}")

    def sized(self, tokens: int, purpose: str, *, task: str = "") -> str:
        """A cold text of `tokens` tokens that ends with `task`."""
        opening, seed = self.opening(), f"{self.settings.seed}/{purpose}"
        return fit_text(
            tokens, lambda words: opening + filler(seed, words) + task, self.count
        )

    def count(self, text: str) -> int:
        """Tokens of a prompt, waiting for a server that is away. Raises RequestFailed."""
        if not self.backend.counts_exactly:
            return self.backend.count_tokens(text)  # no server is asked
        tokens = self.patience.call(lambda: self.backend.count_tokens(text), is_sample=False)
        self._waited_s += self.patience.waited_s
        return tokens

    def is_enough(self, samples: list[Sample]) -> bool:
        """Whether --until-sure may end after these turns: its budget is spent, or its verdict
        firm."""
        if not self.settings.until_sure:
            return False
        budget, last = self.settings.max_tokens, samples[-1].turn
        if budget is not None:
            spent = sum(map(spent_tokens, samples))
            next_turn = sum(spent_tokens(s) for s in samples if s.turn == last)
            if spent + next_turn > budget:
                return True
        looks = self.settings.looks
        return last in looks and all(
            verdict.is_firm for verdict in verdicts(samples, looks=len(looks)))

    def ask(
        self, experiment: str, arm: str, prompt: Prompt, output_tokens: int,
        *, turn: int = 1, repeat: int = 1, cold: bool = False,
        send: Callable[[], Iterator[Event]] | None = None,
        shared: tuple[int, int | None] | None = None, notes: tuple[str, ...] = (),
    ) -> tuple[Sample, str]:
        """Send one prompt, and return its Sample and the answer.

        send: what sends it, where that is not `stream` of the backend; shared: the
        characters and tokens of the beginning that it shares, where they are known.

        With `cold`, a sample of which the server reused more than a common head is marked and
        leaves every average: the server's own count is the proof.
        """
        text = "".join(message.text for message in prompt)
        sample = blank = Sample(
            experiment=experiment, arm=arm, turn=turn, repeat=repeat, sent_at="",
            prompt_chars=len(text), prompt_hash=prompt_hash(text),
            asked_output_tokens=output_tokens, notes=notes,
        )
        answer = ""
        if self.before_request is not None:
            self.before_request(self._most_tokens(text), output_tokens)
        self.on_request(blank)

        def attempt() -> None:
            nonlocal sample, answer
            if self.patience.times_away > self._times_away:
                self._held.clear()  # the server came back with nothing cached
                self._times_away = self.patience.times_away
            sample = replace(blank, sent_at=self.now().isoformat(timespec="milliseconds"))
            try:
                sample = self._with_shared(sample, text) if shared is None else replace(
                    sample, shared_chars=shared[0], shared_tokens=shared[1])
                events = send() if send else self.backend.stream(prompt, output_tokens)
                sample, answer = measure(events, sample, stall_s=self.stall_s,
                                         on_progress=self.on_progress)
            except RequestFailed as failed:  # in counting
                sample = replace(sample, error=failed.failure)
            # What has begun to answer is measured, and paid for: it is not asked again.
            if sample.error is not None and not (sample.arrivals_s or sample.output_tokens):
                raise RequestFailed.again(sample.error)

        with contextlib.suppress(RequestFailed):  # then the sample says why
            self.patience.call(attempt)
        if sample.error is None and shared is None:
            self._held.append(text + answer)
        if waited_s := self._waited_s + self.patience.waited_s:
            self._waited_s = 0.0
            note = f"waited: {waited_s:.3g} s before this request, outside the clock"
            sample = replace(sample, notes=(*sample.notes, note))
        if cold and sample.cached_tokens and sample.prompt_tokens:
            share = max(COLD_TOKENS, COLD_SHARE * sample.prompt_tokens)
            allowed = self.backend.head_tokens + share
            if sample.cached_tokens > allowed:
                note = f"not_cold: {sample.cached_tokens} of {sample.prompt_tokens} tokens reused"
                sample = replace(sample, notes=(*sample.notes, note))
        return sample, answer

    def _most_tokens(self, text: str) -> int:
        """Tokens that a prompt may have at the most: by the count with a margin, or a token of
        each byte, whichever is less."""
        counted = COUNT_MARGIN * self.backend.count_tokens(text)
        of_bytes = self.backend.head_tokens + len(text.encode("utf-8", "replace"))
        return min(math.ceil(counted), of_bytes)

    def _with_shared(self, sample: Sample, text: str) -> Sample:
        """The sample with what its prompt shares with an earlier one and its answer."""
        shared = max((common_prefix(text, earlier) for earlier in self._held), default=0)
        exact = self.backend.counts_exactly
        return replace(sample, shared_chars=shared,
                       shared_tokens=self.backend.count_tokens(text[:shared]) if exact else None)

