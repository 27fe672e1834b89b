"""Rank tests and their intervals, exact where the samples are few: pure functions, no scipy.

What `compare.compare` is made of. Values are logarithms of seconds, so that a difference is a
ratio; only their order counts, so that one slow request decides nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

NORMAL = statistics.NormalDist()
MIN_PAIRS = 5  # 2**-5 is the first probability below 5 %
_WEIGHT_GRID = 400
_RANK_WEIGHT = 2.0
_EXACT_UNPAIRED = 40
_EXACT_PAIRED = 100


def pair_weights(log_c: Sequence[float], log_t: Sequence[float]) -> list[float]:
    """What each pair says for treated being slower, its sign exchangeable without an effect.

    A sum of Wilcoxon's signed rank (strong under drift) and of the pair's difference in pooled
    ranks, Mann and Whitney's (strong against outliers), each scaled to length 1. Twice the
    weight on the second was best over sizes and drifts in simulation.
    """
    differences = [t - c for c, t in zip(log_c, log_t, strict=True)]
    signed = [math.copysign(rank, d) if d else 0.0
              for rank, d in zip(_ranks([abs(d) for d in differences]), differences, strict=True)]
    pooled = _ranks([*log_c, *log_t])
    shifted = [t - c for c, t in zip(pooled, pooled[len(log_c):], strict=False)]
    a, b = math.hypot(*signed) or 1.0, math.hypot(*shifted) or 1.0
    return [s / a + _RANK_WEIGHT * r / b for s, r in zip(signed, shifted, strict=True)]


def sign_flip_p(weights: Sequence[float]) -> float:
    """P(a sum of these weights with random signs is at most their own sum), exactly.

    The weights are put on a grid first; the test of the rounded weights is itself exact.
    """
    top = max(map(abs, weights))
    if top == 0:
        return 1.0
    steps = [round(weight / top * _WEIGHT_GRID) for weight in weights]
    observed = sum(step for step in steps if step > 0)
    patterns = _subset_sums([abs(step) for step in steps])
    below = sum(itertools.islice(_fields(patterns, len(steps)), observed + 1))
    return below / (1 << len(steps))


def _subset_sums(sizes: Sequence[int]) -> int:
    """How many subsets have each sum: the coefficients of a polynomial, packed in one integer."""
    width = 8 * _width(len(sizes))
    counts = 1
    for size in sizes:
        counts += counts << (size * width)
    return counts


def _fields(counts: int, items: int) -> Iterator[int]:
    """The counts of `_subset_sums`, from sum 0 up."""
    width = _width(items)
    data = counts.to_bytes(counts.bit_length() // 8 + 1, "little")
    return (int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width))


def _width(items: int) -> int:
    """Bytes that hold any count of subsets of so many items, the sum of all counts included."""
    return items // 8 + 1


def mann_whitney_p(log_c: Sequence[float], log_t: Sequence[float]) -> float:
    """P(the treated ranks sum to at most what they do), without an effect."""
    n, m = len(log_c), len(log_t)
    doubled = [round(2 * rank) for rank in _ranks([*log_c, *log_t])]
    observed = sum(doubled[n:])
    if n + m <= _EXACT_UNPAIRED:
        ways = _choose_sums(doubled, m)
        return sum(w for total, w in ways.items() if total <= observed) / math.comb(n + m, m)
    mean = m * (n + m + 1)
    variance = n * m * statistics.pvariance(doubled) / (n + m - 1)
    return NORMAL.cdf((observed + 1 - mean) / math.sqrt(variance)) if variance else 1.0


def _choose_sums(values: Sequence[int], m: int) -> dict[int, int]:
    """How many ways there are to choose m of the values with each sum."""
    by_size: list[dict[int, int]] = [{0: 1}, *({} for _ in range(m))]
    for value in values:
        for size in range(m, 0, -1):
            for total, ways in by_size[size - 1].items():
                by_size[size][total + value] = by_size[size].get(total + value, 0) + ways
    return by_size[m]


def interval(
    log_c: Sequence[float], log_t: Sequence[float], differences: Sequence[float] | None
) -> tuple[float, float] | None:
    """95 % interval of the ratio; None where so few samples cannot give one.

    `differences` are those of the pairs, where there are pairs: from 6 on, the interval lies
    between order statistics of their Walsh averages; else between those of all differences across
    the arms (Hodges and Lehmann 1963; Bauer 1972).
    """
    if differences is not None and len(differences) > MIN_PAIRS:
        steps = sorted((a + b) / 2 for i, a in enumerate(differences) for b in differences[i:])
        cut = _signed_rank_cut(len(differences))
    else:
        steps = sorted(t - c for t in log_t for c in log_c)
        cut = _rank_sum_cut(len(log_c), len(log_t))
    return None if cut is None else (math.exp(steps[cut]), math.exp(steps[-1 - cut]))


def stratified_interval(
    strata: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> tuple[float, float] | None:
    """95 % interval of one ratio that holds in every stratum; None where they cannot give one.

    Between order statistics of all differences within strata: how many of them lie above the true
    one is a sum of independent Mann-Whitney statistics, whose distribution is their convolution
    (van Elteren 1960, with equal weights). One stratum gives what `interval` gives.
    """
    sizes = [(len(log_c), len(log_t)) for log_c, log_t in strata if log_c and log_t]
    steps = sorted(t - c for log_c, log_t in strata for c in log_c for t in log_t)
    cut = _cut(_stratified_tails(sizes)) if sizes else None
    return None if cut is None else (math.exp(steps[cut]), math.exp(steps[-1 - cut]))


def _stratified_tails(sizes: Sequence[tuple[int, int]]) -> Iterable[float]:
    """P(U <= k) for k = 0, 1, …, of the sum of U over arms of these sizes."""
    every = sum(n * m for n, m in sizes)
    if any(n + m > _EXACT_UNPAIRED for n, m in sizes):
        sigma = math.sqrt(sum(n * m * (n + m + 1) for n, m in sizes) / 12)
        return (NORMAL.cdf((k + 0.5 - every / 2) / sigma) for k in range(every))
    ways = {0: 1}
    for n, m in sizes:
        lowest, grown = m * (m + 1) // 2, dict[int, int]()
        for total, more in _choose_sums(range(1, n + m + 1), m).items():
            for below, count in ways.items():
                at = below + total - lowest
                grown[at] = grown.get(at, 0) + count * more
        ways = grown
    whole = math.prod(math.comb(n + m, m) for n, m in sizes)
    counts = itertools.accumulate(ways.get(k, 0) for k in range(every + 1))
    return (count / whole for count in counts)


def _cut(tails: Iterable[float]) -> int | None:
    """The last k whose P(statistic <= k) is at most 2.5 %, if there is one."""
    inside = sum(1 for _ in itertools.takewhile(lambda p: p <= 0.025, tails))
    return inside - 1 if inside else None


@functools.cache
def _signed_rank_cut(n: int) -> int | None:
    return _cut(_signed_rank_tails(n))


@functools.cache
def _rank_sum_cut(n: int, m: int) -> int | None:
    return _cut(_stratified_tails([(n, m)]))


def _signed_rank_tails(n: int) -> Iterable[float]:
    """P(W <= k) for k = 0, 1, …, of the signed ranks of n pairs; normal above 100 pairs."""
    if n > _EXACT_PAIRED:
        mean, spread = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return (NORMAL.cdf((k + 0.5 - mean) / spread) for k in range(n * (n + 1) // 2))
    counts = _fields(_subset_sums(range(1, n + 1)), n)
    return (below / (1 << n) for below in itertools.accumulate(counts))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the middle of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    for _, group in itertools.groupby(order, key=values.__getitem__):
        members = list(group)
        for index in members:
            ranks[index] = start + (len(members) + 1) / 2
        start += len(members)
    return ranks
