"""Lines, parabolas and least squares with intervals: pure functions, standard library only.

A typical line is robust to a few slow requests. A least-squares fit with intervals solves the
normal equations in rational arithmetic, so that no conditioning of a polynomial's terms can spoil
a coefficient: what is rounded is the data, once, and the result, once.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from request_timing.stats.compare import LEVEL

Row = Sequence[float]
COVERAGE = 0.95
_ROUNDS = 4  # of weights that follow from the fit: the third changes no digit that is shown
_TINY, _EPSILON, _MOST_TERMS = 1e-300, 1e-16, 10_000
ROUNDING = 1e-9  # of the largest value: a bend smaller than this is floating point


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A least-squares fit of y to a sum of terms, in the units of the data.

    inverse: (X'WX)^-1 · variance: the weighted residual sum of squares over df, None where df is 0
    and nothing is known of the error · n: observations; df: n less the terms.
    """

    coefficients: tuple[float, ...]
    inverse: tuple[tuple[float, ...], ...]
    variance: float | None
    n: int
    df: int

    def value(self, row: Row) -> float:
        """The fitted y where the terms have these values (or any sum of coefficients)."""
        return math.fsum(c * x for c, x in zip(self.coefficients, row, strict=True))

    def standard_error(self, row: Row) -> float | None:
        """Of `value(row)`: sqrt(row' (X'WX)^-1 row · variance); None where df is 0."""
        if self.variance is None:
            return None
        spread = math.fsum(a * b * self.inverse[i][j]
                           for i, a in enumerate(row) for j, b in enumerate(row))
        return math.sqrt(max(0.0, spread) * self.variance)

    def interval(self, row: Row, coverage: float = COVERAGE) -> tuple[float, float] | None:
        """Of `value(row)`, by Student's t; None where df is 0."""
        error = self.standard_error(row)
        if error is None:
            return None
        half = student_t_quantile((1 + coverage) / 2, self.df) * error
        return self.value(row) - half, self.value(row) + half

    def term(self, index: int) -> list[float]:
        """The row that picks one coefficient."""
        return [float(i == index) for i in range(len(self.coefficients))]


def least_squares(
    rows: Sequence[Row], ys: Sequence[float], weights: Sequence[float] | None = None
) -> Fit | None:
    """The coefficients that minimise sum of w (y - row · coefficients)^2.

    None where they are not determined: fewer observations than terms, or terms that depend on
    each other. Raises ValueError where lengths differ or a weight is not above zero.
    """
    if weights is not None and not all(weight > 0 for weight in weights):
        raise ValueError("a weight must be above zero")
    data = [(list(map(Fraction, row)), Fraction(y), Fraction(w)) for row, y, w in zip(
        rows, ys, weights or [1.0] * len(rows), strict=True)]
    terms = len(data[0][0]) if data else 0
    if not terms or len(data) < terms:
        return None
    squares = [[_sum(w * x[i] * x[j] for x, _, w in data) for j in range(terms)]
               for i in range(terms)]
    inverse = _inverse(squares)
    if inverse is None:
        return None
    moments = [_sum(w * x[i] * y for x, y, w in data) for i in range(terms)]
    exact = [_sum(a * b for a, b in zip(line, moments, strict=True)) for line in inverse]
    residual = _sum(w * (y - _sum(c * a for c, a in zip(exact, x, strict=True))) ** 2
                    for x, y, w in data)
    df = len(data) - terms
    return Fit(
        coefficients=tuple(map(float, exact)),
        inverse=tuple(tuple(map(float, line)) for line in inverse),
        variance=float(residual / df) if df else None, n=len(data), df=df,
    )


def fit_relative(rows: Sequence[Row], ys: Sequence[float]) -> Fit | None:
    """Least squares of relative errors: weights 1 / fitted², found by repetition.

    A request that takes ten times as long has about ten times the noise; equal weights would let
    the longest decide alone. The weights are of fitted values: those of measured ones would
    favour what happened to be fast. None as in `least_squares`, or where a y is not above zero.
    """
    if not all(y > 0 for y in ys):
        return None
    fit = least_squares(rows, ys, [1 / y**2 for y in ys])
    for _ in range(_ROUNDS):
        if fit is None:
            return None
        fitted = [fit.value(row) for row in rows]
        # A line that crosses zero within the data weighs nothing; there the measured value does.
        fit = least_squares(rows, ys, [1 / (f if f > y / 2 else y) ** 2
                                       for f, y in zip(fitted, ys, strict=True)])
    return fit


def student_t_cdf(t: float, df: int) -> float:
    """P(T <= t) of Student's distribution, by the incomplete beta function (DLMF 8.17.1).

    P = 1 - I(df / (df + t²); df/2, 1/2) / 2 for t >= 0. Raises ValueError for df below 1.
    """
    if df < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, was given {df}")
    # The smaller of x and 1 - x is computed directly: near t = 0 the other has lost its digits.
    tail = _beta_share(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t)) / 2
    return 1 - tail if t >= 0 else tail


@functools.cache
def student_t_quantile(p: float, df: int) -> float:
    """The t with P(T <= t) = p, by bisection of `student_t_cdf`, to twelve digits.

    Raises ValueError for a p that is not between 0 and 1, or df below 1.
    """
    if not 0 < p < 1:
        raise ValueError(f"a probability between 0 and 1 was expected, found {p}")
    if p < 0.5:
        return -student_t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while student_t_cdf(high, df) < p:
        low, high = high, 2 * high
    while high - low > 1e-13 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def _beta_share(a: float, b: float, x: float, one_minus_x: float) -> float:
    """The regularised incomplete beta function I(x; a, b), DLMF 8.17.22 by Lentz's method."""
    if x <= 0:
        return 0.0
    if one_minus_x <= 0:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # there the fraction of the other side converges
        return 1 - _beta_share(b, a, one_minus_x, x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
                     + a * math.log(x) + b * math.log(one_minus_x)) / a
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for numerator in (even, odd):
            d = 1 / _not_zero(1 + numerator * d)
            c = _not_zero(1 + numerator / c)
            step = c * d
            fraction *= step
        if abs(step - 1) < _EPSILON * 10:
            break
    return front * fraction


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def _inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]] | None:
    """The inverse by Gauss and Jordan's elimination; None of a singular matrix."""
    size = len(matrix)
    work = [[*line, *(Fraction(i == j) for j in range(size))] for i, line in enumerate(matrix)]
    for column in range(size):
        pivot = next((i for i in range(column, size) if work[i][column]), None)
        if pivot is None:
            return None
        work[column], work[pivot] = work[pivot], work[column]
        lead = work[column][column]
        work[column] = [value / lead for value in work[column]]
        for i in range(size):
            if i != column and (factor := work[i][column]):
                work[i] = [a - factor * b for a, b in zip(work[i], work[column], strict=True)]
    return [line[size:] for line in work]
