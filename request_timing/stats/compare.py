"""Two arms of seconds compared, and the spread of one: pure functions, standard library only.

Medians, quartiles and ranks: robust to the one slow request that every run has.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from request_timing.stats.ranks import NORMAL, interval, mann_whitney_p, pair_weights, sign_flip_p

LEVEL = 0.05  # a positive answer is wrong in at most this share of runs without an effect
POWER = 0.8  # how surely `detectable_ratio` would have been seen
RANK_EFFICIENCY = 3 / math.pi  # of rank tests against the t test on normal noise
CLOCK_FLOOR_S = 1e-6  # a reading of zero is shorter than the clock resolves, and has no logarithm


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
    The interval inverts a rank test (see `ranks.interval`); for pairs it is of the ratio within
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
