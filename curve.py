"""Whether a series bends upwards by more than chance, and the parabola that it then follows.

Pure functions, standard library only. Prefill is a matrix product a token, which is a straight
line, and attention over all tokens before it, which is a parabola; a picture may say "faster than
linear" only where the measurement shows it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from common import LEVEL, fit_line
from fitting import student_t_cdf

ROUNDING = 1e-9  # of the largest value: a bend smaller than this is floating point


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """y = intercept + slope · x + square · x², in the units of the data.

    p_value: one-sided, of a bend this sure where there is none.
    """

    intercept: float
    slope: float
    square: float
    p_value: float
    n: int

    def at(self, x: float) -> float:
        """The value at x."""
        return self.intercept + self.slope * x + self.square * x * x

    def slope_at(self, x: float) -> float:
        """What one more unit of x costs at x."""
        return self.slope + 2 * self.square * x


def upward_curve(
    xs: Sequence[float], ys: Sequence[float], groups: Sequence[Hashable], *, level: float = LEVEL
) -> Curve | None:
    """The least-squares parabola, where it is shown to bend upwards; None where a line will do.

    groups: which values repeat one condition. The coefficient of x² is a weighted sum of all y,
    and so of the means of the conditions (a contrast); its standard error is Welch's (1947), from
    the spread within each condition, so that no noise has to be the same at all sizes (it never
    is: a longer request is a noisier one). The degrees of freedom are Satterthwaite's (1946),
    rounded down. At the level of 5 %, about 5 % of simulated straight lines came out bent under
    symmetric noise, and up to 9 % under strongly skewed (lognormal) noise. None with fewer than
    three conditions, or where one was asked only once.
    Raises ValueError where the lengths differ.
    """
    line = fit_line(xs, ys)
    values: dict[Hashable, list[float]] = {}
    for group, y in zip(groups, ys, strict=True):
        values.setdefault(group, []).append(y)
    if line is None or len(values) < 3 or min(map(len, values.values())) < 2:
        return None
    # x² less what a line holds of it: p(x) = (x - middle)² - tilt · (x - middle) - level.
    middle = statistics.fmean(xs)
    away = [x - middle for x in xs]
    around = math.fsum(a * a for a in away)
    tilt = math.fsum(a**3 for a in away) / around
    height = around / len(xs)
    bends = [a * a - tilt * a - height for a in away]
    size = math.fsum(b * b for b in bends)
    largest = max(map(abs, bends))
    if largest <= ROUNDING * max(a * a for a in away):  # two different x alone
        return None
    square = math.fsum(b * y for b, y in zip(bends, ys, strict=True)) / size
    if square * largest <= ROUNDING * max(map(abs, ys)):
        return None
    weights = dict.fromkeys(values, 0.0)
    for group, b in zip(groups, bends, strict=True):
        weights[group] += b / size
    parts = [(weights[group] ** 2 * statistics.variance(of_group) / len(of_group), len(of_group))
             for group, of_group in values.items()]
    variance = math.fsum(part for part, _ in parts)
    spread = math.fsum(part * part / (n - 1) for part, n in parts)
    p_value = 0.0
    if spread > 0:
        p_value = student_t_cdf(-square / math.sqrt(variance),
                                max(1, int(variance * variance / spread)))
    if p_value > level:
        return None
    return Curve(
        intercept=line.intercept + square * (middle * middle + tilt * middle - height),
        slope=line.slope - square * (2 * middle + tilt), square=square, p_value=p_value,
        n=len(xs))
