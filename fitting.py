"""Least squares with intervals, exact where it can be: pure functions, standard library only.

What `rates.py` fits prefill and decode with. The normal equations are solved in rational
arithmetic, so that no conditioning of a polynomial's terms can spoil a coefficient: what is
rounded is the data, once, and the result, once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Row = Sequence[float]

COVERAGE = 0.95
_ROUNDS = 4  # of weights that follow from the fit: the third changes no digit that is shown
_TINY, _EPSILON, _MOST_TERMS = 1e-300, 1e-16, 10_000


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
