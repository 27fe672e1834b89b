"""What pairs of prompts that share a prefix say of the shortest one reused, and of the step.

Pure functions over the samples of *minimum*: the arm is the length of a shared prefix in
characters, turn 1 a cold prompt that begins with it, turn 2 one of the same length that shares
the prefix and no more, `repeat` the pair. Lengths are characters until the last, when they are said
in tokens.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from request_timing.findings.evidence import FULL
from request_timing.stats.compare import LEVEL, compare, spread
from request_timing.stats.fits import fit_line

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

# A reading from time stands when one answer is so many pairs ahead of the other (a sequential test,
# Wald 1945: where one pair in five is misleading, it is wrong once in 250); else it is unclear.
LEAD, MOST_PAIRS = 4, 15
# With fewer pairs at the longest prefix not even pairs that all agree are more than chance.
PROOF_PAIRS = 6
# Of a prefix from one block on, whole blocks are reused, so at least a half of it; of a shorter one
# nothing. From a share in between on a saving counts; what was added is read again, or not, alike.
SAVED, READ_AGAIN = 0.3, 0.7
# What is looked for must take so many times the interquartile range of the times: a prefix, of
# which many pairs are asked, and a step.
PREFIX_NOISE, STEP_NOISE = 2.5, 4
TOKENS_PER_CHAR = 0.25  # where nothing is reported
PINNED = 1.6  # tokens between a length with and one without that leave no length in between

Pair = tuple["Sample", "Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The answer of *minimum*, in tokens; None is "not found".

    counted: from reported counts, else from time · tried: the shortest and the longest prefix
    tried · missed: the longest prefix below `shared` that was not reused · shared: the shortest
    that was · reused: of that, as reported · reused_most: of the longest tried · step: by how much
    reuse then grows at once · step_most: an upper bound where a smaller one cannot be told ·
    is_mixed: so long or a longer prefix was at another time not reused, by count: nothing is exact
    then.
    """

    counted: bool
    tried: tuple[float, float]
    missed: float | None = None
    shared: float | None = None
    reused: int | None = None
    reused_most: int | None = None
    step: float | None = None
    step_most: float | None = None
    is_mixed: bool = False


def lengths(samples: Sequence[Sample]) -> list[int]:
    """The lengths of prefix that were tried, in characters, ascending."""
    return sorted({int(s.arm) for s in samples})


def pairs(samples: Sequence[Sample], chars: int) -> list[Pair]:
    """The pairs of one length of which both halves may be used."""
    of_length = [s for s in samples if s.arm == str(chars) and s.counts]
    second = {s.repeat: s for s in of_length if s.turn == 2}
    return [(s, second[s.repeat]) for s in of_length if s.turn == 1 and s.repeat in second]


def is_counted(samples: Sequence[Sample]) -> bool:
    """Whether the server reports cached tokens."""
    return any(s.turn == 2 and s.cached_tokens is not None for s in samples)


def reused(samples: Sequence[Sample], chars: int) -> bool | None:
    """Whether a prefix of this length is reused; None where that is not clear (yet).

    By count: any more than of the cold half of the pair, and than what that one shares by chance
    with the prompts before it. By time: it saves a good part of what a
    prefix of this length takes to read.
    """
    known = pairs(samples, chars)
    if is_counted(samples):
        return any(map(_hit_by_count, known)) if known else None
    rate = seconds_per_char(samples)
    saved = [a.ttft_s - b.ttft_s for a, b in known if a.ttft_s is not None and b.ttft_s is not None]
    around = spread(saved)
    if rate is None or around is None or rate * chars < PREFIX_NOISE * (around.q3 - around.q1):
        return None
    return agreed([seconds / (rate * chars) > SAVED for seconds in saved])


def _hit_by_count(pair: Pair) -> bool:
    first, second = pair
    return (second.cached_tokens or 0) > max(first.cached_tokens or 0, first.shared_chars or 0)


def grown(samples: Sequence[Sample], base: int, chars: int) -> bool | None:
    """Whether more is reused of a prefix of `chars` than of the reused one of `base` characters.

    By time: not all of what was added had to be read; None where so little was added that the
    noise hides it.
    """
    if is_counted(samples):
        before, after = cached(samples, base), cached(samples, chars)
        return None if before is None or after is None else after > before
    rate, times = seconds_per_char(samples), _times(samples, base)
    if rate is None or chars - base < least_step(samples, base):
        return None
    middle = statistics.median(times)
    added_s = rate * (chars - base)
    return agreed([t - middle < READ_AGAIN * added_s for t in _times(samples, chars)])


def agreed(votes: Sequence[bool]) -> bool | None:
    """What the votes say once one side is far enough ahead, taken in their order."""
    lead = 0
    for vote in votes:
        lead += 1 if vote else -1
        if abs(lead) >= LEAD:
            return lead > 0
    return None


def cached(samples: Sequence[Sample], chars: int) -> int | None:
    """The most that was reported reused of a prefix of this length."""
    return max((b.cached_tokens for _, b in pairs(samples, chars) if b.cached_tokens is not None),
               default=None)


def seconds_per_char(samples: Sequence[Sample]) -> float | None:
    """What a character takes to read: the slope of the cold prompts' TTFT; None without one.

    Of medians, so that no one slow request decides.
    """
    sizes: list[float] = []
    times: list[float] = []
    for chars in lengths(samples):
        found = spread(s.ttft_s for s in samples
                       if s.arm == str(chars) and s.turn == 1 and s.counts)
        if found is not None:
            sizes.append(chars)
            times.append(found.median)
    line = fit_line(sizes, times)
    return line.slope if line is not None and line.slope > 0 else None


def is_proved(samples: Sequence[Sample], chars: int) -> bool:
    """Whether the second halves of the pairs of this length are faster by more than chance."""
    known = pairs(samples, chars)
    found = compare([a.ttft_s for a, _ in known], [b.ttft_s for _, b in known], paired=True)
    return found.p_value is not None and found.p_value <= LEVEL


def least_step(samples: Sequence[Sample], base: int) -> int:
    """The smallest growth, in characters, that stands out of the noise of the times at `base`."""
    rate, times = seconds_per_char(samples), spread(_times(samples, base))
    if rate is None or times is None:
        return 1
    return max(1, math.ceil(STEP_NOISE * (times.q3 - times.q1) / rate))


def _times(samples: Sequence[Sample], chars: int) -> list[float]:
    return [b.ttft_s for _, b in pairs(samples, chars) if b.ttft_s is not None]


def tokens(samples: Sequence[Sample], chars: int) -> float:
    """A length in tokens: by the server's own tokenizer, else by the reported size of prompts.

    Without either, four characters to a token. What a server puts in front of a prompt may count.
    """
    for sample in samples:
        if sample.arm == str(chars) and sample.turn == 2 and sample.shared_tokens is not None:
            return sample.shared_tokens
    rates = [s.prompt_tokens / s.prompt_chars for s in samples
             if s.arm == str(chars) and s.prompt_tokens and s.prompt_chars]
    about = chars * (statistics.median(rates) if rates else TOKENS_PER_CHAR)
    reported = cached(samples, chars)
    # Where all of it is reused, the report itself is the exact count.
    return reported if reported is not None and reported >= FULL * about else about


def found(samples: Sequence[Sample]) -> Prefix | None:
    """The answer that the samples give so far; None where no pair can be used."""
    usable = [chars for chars in lengths(samples) if pairs(samples, chars)]
    if not usable:
        return None
    counted = is_counted(samples)
    tried = tokens(samples, usable[0]), tokens(samples, usable[-1])
    readings = {chars: reused(samples, chars) for chars in usable}
    proved = counted or is_proved(samples, usable[-1])
    misses = [chars for chars in usable if readings[chars] is False]
    # A count of reuse is certain; a saving of time below a length without one is chance.
    hits = [chars for chars in usable
            if readings[chars] and (counted or chars > max(misses, default=0))]
    if not hits or not proved:
        return Prefix(counted=counted, tried=tried)
    hit = hits[0]
    missed = max((chars for chars in misses if chars < hit), default=None)
    growth = {chars: grown(samples, hit, chars) for chars in usable if chars > hit}
    more = min((chars for chars, answer in growth.items() if answer), default=None)
    same = max((chars for chars, answer in growth.items()
                if answer is False and (more is None or chars < more)), default=None)
    shared = tokens(samples, hit)
    step = step_most = None
    mixed = counted and not all(
        _hit_by_count(pair) for chars in usable if chars >= hit for pair in pairs(samples, chars))
    if mixed:
        more = None
    if more is not None and counted:
        before, after = cached(samples, hit), cached(samples, more)
        step = None if before is None or after is None else float(after - before)
    elif more is not None and missed is not None and shared - tokens(samples, missed) < PINNED:
        # The shortest reused length is the start of a step; from elsewhere it is no whole step.
        wide = tokens(samples, more) - shared
        if same is not None and tokens(samples, more) - tokens(samples, same) < PINNED:
            step = wide
        else:
            step_most = wide
    return Prefix(counted=counted, tried=tried, shared=shared, step=step, step_most=step_most,
                  is_mixed=mixed,
                  missed=None if missed is None else tokens(samples, missed),
                  reused=cached(samples, hit) if counted else None,
                  reused_most=cached(samples, usable[-1]) if counted else None)
