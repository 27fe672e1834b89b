"""The shortest prefix that a server reuses, and the step in which reuse grows, by bisection.

An experiment as those of `reuse.py`. What its samples say is in `findings/minimum.py`, which also
steers the search.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from request_timing.experiments.lab import Lab, Settings
from request_timing.findings.measures import spent_tokens
from request_timing.findings.minimum import (
    MOST_PAIRS,
    PROOF_PAIRS,
    grown,
    is_counted,
    is_proved,
    least_step,
    pairs,
    reused,
)
from request_timing.prompts.filler import filler
from request_timing.records.names import MINIMUM
from request_timing.records.sample import Sample
from request_timing.servers.backend import USER, Message

LEAST_TOKENS, MOST_TOKENS = 8, 8192  # of the prefixes tried
SHARE_OF_CONTEXT = 2  # and never more than the half of --context
OUTPUT_TOKENS = 2
# Of the same length; they differ from their first character on, which filler never holds.
TAILS = tuple(
    f"{number} is the number of this question. Name a word.\nAnswer:" for number in (1, 2))
BUDGET_TOKENS = 600_000  # where --max-tokens gives no other
COUNTED_PAIRS = 4  # of a provider: the second half of a pair may have met another machine
FAILURES = 3

Answer = Generator[Sample, None, "bool | None"]
Bracket = Generator[Sample, None, "tuple[int | None, int | None]"]


def most_prefix_tokens(settings: Settings) -> int:
    """The longest prefix that is tried."""
    return max(LEAST_TOKENS, min(settings.context // SHARE_OF_CONTEXT, MOST_TOKENS))


def minimum(lab: Lab) -> Iterator[Sample]:
    """Pairs of prompts that share a prefix and nothing else, the prefix longer or shorter.

    From counts: doubled from the shortest until it is reused. From time, where a short prefix saves
    less than the noise: halved from the longest, proved to be reused, until it is not. Both then
    bisect, and bisect once more for the length at which more is reused.
    """
    search = _Search(lab)
    least, most = search.chars(LEAST_TOKENS), search.chars(most_prefix_tokens(lab.settings))
    yield from search.ask(least)
    if is_counted(search.samples):
        missed, hit = yield from search.double(least, most)
    else:
        missed, hit = yield from search.halve(least, most)
    if hit is None:
        return
    if missed is not None:
        hit = yield from search.bisect(missed, hit, search.is_reused)
    yield from search.next_step(hit, most)
    if search.counted and most != hit and not search.is_over:
        yield from search.ask(most)  # how much of a long prefix is reused in the end


class _Search:
    """The samples so far, and the ways to ask for more; each yields samples and returns."""

    def __init__(self, lab: Lab) -> None:
        self.samples: list[Sample] = []
        self._lab = lab
        self._text = filler(f"{lab.settings.seed}/{MINIMUM}", 3 * MOST_TOKENS)
        sample_text = self._text[:4 * MOST_TOKENS // 8]
        self._chars_per_token = len(sample_text) / max(1, lab.count(sample_text))
        self._budget = lab.settings.max_tokens or BUDGET_TOKENS

    @property
    def counted(self) -> bool:
        return is_counted(self.samples)

    @property
    def finest(self) -> int:
        """How fine lengths are told apart, in characters: a token by time."""
        return 1 if self.counted else max(1, round(self._chars_per_token))

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent, or requests fail."""
        failed = [s for s in self.samples if s.error is not None]
        return len(failed) >= FAILURES or sum(map(spent_tokens, self.samples)) >= self._budget

    def chars(self, tokens: int) -> int:
        """Characters of a prefix of about so many tokens."""
        return max(1, round(tokens * self._chars_per_token))

    def ask(self, chars: int) -> Iterator[Sample]:
        """One more pair with a shared prefix of so many characters, which is cold."""
        prefix = (self._lab.opening() + self._text)[:chars]
        repeat = 1 + sum(s.arm == str(chars) and s.turn == 1 for s in self.samples)
        for turn, tail in enumerate(TAILS, 1):
            sample, _ = self._lab.ask(MINIMUM, str(chars), (Message(USER, prefix + tail),),
                                      OUTPUT_TOKENS, turn=turn, repeat=repeat, cold=turn == 1)
            self.samples.append(sample)
            yield sample

    def decide(self, chars: int, reading: Callable[[], bool | None]) -> Answer:
        """Ask pairs of this length until the reading is clear, or there are enough of them."""
        enough = MOST_PAIRS
        if self.counted:
            enough = COUNTED_PAIRS if self._lab.backend.interleave_arms else 1
        while not self.is_over:
            known = len(pairs(self.samples, chars))
            answer = reading() if known else None
            # A count of nothing reused may be that of another machine: asked once more.
            if answer is not None and (answer or not self.counted or known >= enough):
                return answer
            if known >= enough:
                break
            yield from self.ask(chars)
        return reading()

    def is_reused(self, chars: int) -> Answer:
        """Whether a prefix of this length is reused; None where the clock cannot tell."""
        return (yield from self.decide(chars, lambda: reused(self.samples, chars)))

    def double(self, least: int, most: int) -> Bracket:
        """The longest length known not to be reused and the shortest known to be, by doubling."""
        missed, chars = None, least
        while not self.is_over:
            if (yield from self.is_reused(chars)):
                return missed, chars
            if chars >= most:
                break
            missed, chars = chars, min(2 * chars, most)
        return missed, None

    def halve(self, least: int, most: int) -> Bracket:
        """The same by halving from the longest, whose saving must be more than chance."""
        for chars in [least, most] * PROOF_PAIRS:
            if self.is_over:
                return None, None
            yield from self.ask(chars)
        if not is_proved(self.samples, most) or not reused(self.samples, most):
            return None, None
        hit = most
        while hit // 2 >= least:
            answer = yield from self.is_reused(hit // 2)
            if answer is None:
                return None, hit
            if answer is False:
                return hit // 2, hit
            hit //= 2
        return None, hit

    def bisect(self, low: int, high: int, test: Callable[[int], Answer]
               ) -> Generator[Sample, None, int]:
        """The smallest length from which `test` holds, between one where it does not and one where
        it does; where it is unclear, the smallest known."""
        while high - low > self.finest:
            middle = (low + high) // 2
            answer = yield from test(middle)
            if answer is None:
                break
            low, high = (low, middle) if answer else (middle, high)
        return high

    def next_step(self, base: int, most: int) -> Iterator[Sample]:
        """From the shortest reused length on, look for the one at which more is reused."""
        same, step = base, self.finest
        if not self.counted:
            while len(pairs(self.samples, base)) < MOST_PAIRS and not self.is_over:
                yield from self.ask(base)
            step = max(step, least_step(self.samples, base))
        least = step

        def has_grown(chars: int) -> Answer:
            return (yield from self.decide(chars, lambda: grown(self.samples, base, chars)))

        while base + step <= most and not self.is_over:
            answer = yield from has_grown(base + step)
            if answer:
                if self.counted or step > least:
                    yield from self.bisect(same, base + step, has_grown)
                return
            if answer is False:
                same = base + step
            step *= 2
