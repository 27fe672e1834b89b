"""Filler text and statistics: pure functions, standard library only.

Filler is what the experiments send when the user brings no document: sentences of invented
lower-case words, so that no model has seen them and no two prompts begin alike. Statistics are
medians, quartiles and a least-squares line: robust to the one slow request that every run has.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ranktests import NORMAL, interval, mann_whitney_p, pair_weights, sign_flip_p

_CONSONANTS = "bcdfghjklmnprstvwz"
_VOWELS = "aeiou"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_VOCABULARY_WORDS = 3000
_NONCE_LETTERS = 16
_TOLERANCE = 0.005  # of a count that a text is to have
_FIT_ROUNDS = 8
_FIT_GROWTH = 9

LEVEL = 0.05  # a positive answer is wrong in at most this share of runs without an effect
POWER = 0.8  # how surely `detectable_ratio` would have been seen
RANK_EFFICIENCY = 3 / math.pi  # of rank tests against the t test on normal noise
CLOCK_FLOOR_S = 1e-6  # a reading of zero is shorter than the clock resolves, and has no logarithm


def filler(seed: int | str, words: int) -> str:
    """`words` invented words in sentences of 6 to 14, the same for the same seed.

    Lower-case ASCII letters, spaces, full stops and nothing else. A longer text of one seed begins
    with the shorter one, but for that one's last full stop. Raises ValueError below one word.
    """
    if words < 1:
        raise ValueError(f"filler needs at least 1 word, was asked for {words}")
    rng, breaks = random.Random(seed), random.Random(f"{seed}/sentences")
    vocabulary = [_invent_word(rng) for _ in range(_VOCABULARY_WORDS)]
    chosen = rng.choices(vocabulary, k=words)
    start = 0
    while start < words:
        end = min(start + breaks.randint(6, 14), words)
        chosen[end - 1] += "."
        start = end
    return " ".join(chosen)


def _invent_word(rng: random.Random) -> str:
    syllables = rng.randint(1, 4)
    word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(syllables))
    return word + (rng.choice(_CONSONANTS) if rng.random() < 0.4 else "")


def nonces(rng: random.Random | None = None) -> Iterator[str]:
    """An endless series of words to put in front of prompts that must begin like no other.

    A prefix cache matches from the first token, so the *first letters* must differ: the first
    letter runs through a shuffled alphabet and repeats only after 26 nonces; the rest is random.
    The default source is the operating system's, so that two runs with one seed share nothing
    either.
    """
    rng = rng or random.SystemRandom()
    alphabet = list(_ALPHABET)
    rng.shuffle(alphabet)
    for first in itertools.cycle(alphabet):
        yield first + "".join(rng.choices(_ALPHABET, k=_NONCE_LETTERS - 1))


def fit_text(
    target_tokens: int,
    build: Callable[[int], str],
    count_tokens: Callable[[str], int],
) -> str:
    """The text `build(words)` whose `count_tokens` is nearest to `target_tokens`.

    Walks from a first guess by the tokens per word seen so far, which for filler converges in
    two or three rounds, and stops when the count is within 0.5 % of the target or within
    one token. Where the frame around the filler alone is larger than the target, that is the
    text with one word; the caller sees it in the count.
    """
    words = max(1, target_tokens // 3)
    best_text, best_miss = "", float("inf")
    for _ in range(_FIT_ROUNDS):
        text = build(words)
        tokens = count_tokens(text)
        miss = abs(tokens - target_tokens)
        if miss < best_miss:
            best_text, best_miss = text, miss
        if miss <= max(1.0, _TOLERANCE * target_tokens):
            break
        step = round((target_tokens - tokens) * words / max(tokens, 1))
        step = min(step, _FIT_GROWTH * words)  # a count that stands still must not run away
        if step == 0:
            step = 1 if tokens < target_tokens else -1
        words = max(1, words + step)
    return best_text


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many items (characters, tokens) two sequences share from the start: by bisection over
    slices, which are compared at once."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def cut_text(text: str, target_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """The longest beginning of `text` with at most `target_tokens`; the whole where it has fewer.

    By bisection between whole lines of characters; a count is asked of texts up to about twice
    the result, however long the text is.
    """
    low, high = 0, min(len(text), max(1, target_tokens))
    while high < len(text) and count_tokens(text[:high]) <= target_tokens:
        low, high = high, min(len(text), 2 * high)
    if high == len(text) and count_tokens(text) <= target_tokens:
        return text
    while high - low > 1:
        middle = (low + high) // 2
        if count_tokens(text[:middle]) <= target_tokens:
            low = middle
        else:
            high = middle
    return text[:low]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Where the values of one figure lie, in the unit of the values."""

    n: int
    median: float
    q1: float
    q3: float
    minimum: float
    maximum: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """Median, quartiles and range of the values that are known; None where none is.

    Quartiles are `statistics.quantiles(..., method="inclusive")`: the values are the whole of
    what was measured, and no quartile lies outside them. One value is its own quartiles.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    if len(known) == 1:
        q1 = median = q3 = known[0]
    else:
        q1, median, q3 = statistics.quantiles(known, n=4, method="inclusive")
    return Spread(
        n=len(known), median=median, q1=q1, q3=q3, minimum=known[0], maximum=known[-1]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = intercept + slope · x, in the units of the data."""

    slope: float
    intercept: float
    n: int


def fit_line(xs: Sequence[float | None], ys: Sequence[float | None]) -> Line | None:
    """Least-squares line through the pairs in which both are known.

    Ordinary least squares (slope = cov(x, y) / var(x)), by `statistics.linear_regression`.
    None with fewer than two different x. Raises ValueError where the lengths differ.
    """
    pairs = [
        (x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None
    ]
    if len({x for x, _ in pairs}) < 2:
        return None
    slope, intercept = statistics.linear_regression(
        [x for x, _ in pairs], [y for _, y in pairs]
    )
    return Line(slope=slope, intercept=intercept, n=len(pairs))


def typical_line(xs: Sequence[float | None], ys: Sequence[float | None]) -> Line | None:
    """The line of Theil (1950) and Sen (1968) through the pairs in which both are known.

    Its slope is the median of the slopes between any two of them, its intercept the median of what
    is left: a few slow requests, which would pull a least-squares line up, do not move it. None
    with fewer than two different x. Raises ValueError where the lengths differ.
    """
    pairs = [
        (x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None
    ]
    slopes = [(y - before_y) / (x - before_x)
              for (before_x, before_y), (x, y) in itertools.combinations(pairs, 2)
              if x != before_x]
    if not slopes:
        return None
    slope = statistics.median(slopes)
    return Line(slope=slope, intercept=statistics.median(y - slope * x for x, y in pairs),
                n=len(pairs))


def middle(values: Iterable[float]) -> float | None:
    """The median; None of no values."""
    known = list(values)
    return statistics.median(known) if known else None


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """numerator / denominator; None where either is unknown or the denominator is zero."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two arms of seconds say of each other; None is "this many samples cannot tell".

    ratio: median(treated) / median(control), below 1 where treated is faster · interval: 95 % of
    the ratio · p_value: one-sided, of a treated arm this much faster without any effect; p_slower
    of one this much slower · share_below_all: of the treated samples, how many are faster than
    every control sample · noise: standard deviation of a difference of logarithms, from the
    width of the interval · detectable_ratio: the smallest effect that this many samples would have
    shown four times out of five.
    """

    n_control: int
    n_treated: int
    paired: bool
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    p_slower: float | None = None
    share_below_all: float | None = None
    noise: float | None = None
    detectable_ratio: float | None = None


def compare(
    control: Sequence[float | None], treated: Sequence[float | None], *, paired: bool = False
) -> Comparison:
    """Compare two arms of seconds, by ranks of logarithms, so that no one slow request decides.

    paired: the arms have one value a turn, asked for side by side in random order; only turns in
    which both are known count, and p is of an exact test that flips the sign of whole pairs, so
    that a drift that hits both halves of a pair can't make a difference. Otherwise p is the
    Mann-Whitney test's (exact, with ties, up to 40 samples; else its normal approximation).
    The interval inverts a rank test (see `ranktests.interval`); for pairs it is of the ratio within
    pairs, so that under a drift the ratio of medians can lie just outside it, and with few pairs
    one slow request widens it. Raises ValueError where paired arms differ in length.
    """
    if paired:
        both = [(c, t) for c, t in zip(control, treated, strict=True)
                if c is not None and t is not None and math.isfinite(c) and math.isfinite(t)]
        controls, treats = [c for c, _ in both], [t for _, t in both]
    else:
        controls = [c for c in control if c is not None and math.isfinite(c)]
        treats = [t for t in treated if t is not None and math.isfinite(t)]
    n, m = len(controls), len(treats)
    if not n or not m:
        return Comparison(n_control=n, n_treated=m, paired=paired)
    log_c, log_t = list(map(_log_seconds, controls)), list(map(_log_seconds, treats))
    differences = [t - c for c, t in zip(log_c, log_t, strict=True)] if paired else None
    if differences is not None:
        weights = pair_weights(log_c, log_t)
        p_value, p_slower = sign_flip_p(weights), sign_flip_p([-weight for weight in weights])
    else:
        p_value, p_slower = mann_whitney_p(log_c, log_t), mann_whitney_p(log_t, log_c)
    bounds = interval(log_c, log_t, differences)
    noise = None
    if bounds is not None:
        standard_error = math.log(bounds[1] / bounds[0]) / 2 / NORMAL.inv_cdf(1 - LEVEL / 2)
        noise = standard_error * math.sqrt(min(n, m) * RANK_EFFICIENCY)
    return Comparison(
        n_control=n, n_treated=m, paired=paired, p_value=p_value, p_slower=p_slower, noise=noise,
        ratio=ratio(statistics.median(treats), statistics.median(controls)), interval=bounds,
        share_below_all=sum(t < min(controls) for t in treats) / len(treats),
        detectable_ratio=None if noise is None else detectable_ratio(noise, min(n, m)),
    )


def _log_seconds(value: float) -> float:
    """Rounded, so that equal ratios are ties whatever the unit."""
    return round(math.log(max(value, CLOCK_FLOOR_S)), 9)


def detectable_ratio(noise: float, n: int, level: float = LEVEL) -> float | None:
    """The ratio that n pairs of this noise show with 80 % power at the level; None below 2**-n.

    exp(-(z(1 - level) + z(0.80)) · noise / sqrt(n · 3/pi)): the normal approximation for a rank
    test (Noether 1987), on logarithms.
    """
    if 0.5**n > level:  # not even n pairs that all agree would be enough
        return None
    z = NORMAL.inv_cdf(1 - level) + NORMAL.inv_cdf(POWER)
    return math.exp(-z * noise / math.sqrt(n * RANK_EFFICIENCY))
