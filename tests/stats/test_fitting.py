"""Least squares and Student's t, held to certified values, to hand-worked ones and to numpy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from request_timing.stats.fits import fit_relative, least_squares, student_t_cdf, student_t_quantile

# NIST Statistical Reference Datasets, linear regression: Norris (a line, 36 observations), Pontius
# (a quadratic, 40) and Wampler1 (a polynomial of degree 5 whose residuals are zero).
NORRIS = [
    (0.1, 0.2), (338.8, 337.4), (118.1, 118.2), (888.0, 884.6), (9.2, 10.1), (228.1, 226.5),
    (668.5, 666.3), (998.5, 996.3), (449.1, 448.6), (778.9, 777.0), (559.2, 558.2), (0.3, 0.4),
    (0.1, 0.6), (778.1, 775.5), (668.8, 666.9), (339.3, 338.0), (448.9, 447.5), (10.8, 11.6),
    (557.7, 556.0), (228.3, 228.1), (998.0, 995.8), (888.8, 887.6), (119.6, 120.2), (0.3, 0.3),
    (0.6, 0.3), (557.6, 556.8), (339.3, 339.1), (888.0, 887.2), (998.5, 999.0), (778.9, 779.0),
    (10.2, 11.1), (117.6, 118.3), (228.9, 229.2), (668.4, 669.1), (449.2, 448.9), (0.2, 0.5)]
PONTIUS_YS = [
    .11019, .21956, .32949, .43899, .54803, .65694, .76562, .87487, .98292, 1.09146, 1.20001,
    1.30822, 1.41599, 1.52399, 1.63194, 1.73947, 1.84646, 1.95392, 2.06128, 2.16844, .11052,
    .22018, .32939, .43886, .54798, .65739, .76596, .87474, .98300, 1.09150, 1.20004, 1.30818,
    1.41613, 1.52408, 1.63159, 1.73965, 1.84696, 1.95445, 2.06177, 2.16829]
PONTIUS_XS = [150_000.0 * n for n in range(1, 21)] * 2


def powers(x: float, degree: int) -> list[float]:
    return [x**k for k in range(degree + 1)]


def test_norris_a_line() -> None:
    fit = least_squares([powers(x, 1) for _, x in NORRIS], [y for y, _ in NORRIS])
    assert fit is not None and (fit.n, fit.df) == (36, 34)
    assert fit.coefficients == pytest.approx((-0.262323073774029, 1.00211681802045), rel=1e-13)
    errors = [fit.standard_error(fit.term(i)) for i in range(2)]
    assert errors == pytest.approx([0.232818234301152, 0.429796848199937e-3], rel=1e-12)
    assert math.sqrt(fit.variance or 0) == pytest.approx(0.884796396144373, rel=1e-13)


def test_pontius_a_quadratic() -> None:
    fit = least_squares([powers(x, 2) for x in PONTIUS_XS], PONTIUS_YS)
    assert fit is not None and (fit.n, fit.df) == (40, 37)
    assert fit.coefficients == pytest.approx(
        (0.673565789473684e-3, 0.732059160401003e-6, -0.316081871345029e-14), rel=1e-13)
    errors = [fit.standard_error(fit.term(i)) for i in range(3)]
    assert errors == pytest.approx(
        [0.107938612033077e-3, 0.157817399981659e-9, 0.486652849992036e-16], rel=1e-12)
    assert math.sqrt(fit.variance or 0) == pytest.approx(0.205177424076185e-3, rel=1e-12)


def test_wampler_is_exact_where_floats_lose_digits() -> None:
    fit = least_squares([powers(float(x), 5) for x in range(21)],
                        [float(sum(x**k for k in range(6))) for x in range(21)])
    assert fit is not None
    assert fit.coefficients == (1.0,) * 6
    assert fit.variance == 0.0


def test_a_line_by_hand() -> None:
    # x 0 1 2 3, y 1 3 2 5: slope 5.5/5, intercept 1.1; residuals -.1 .8 -1.3 .6, squares 2.7.
    fit = least_squares([[1, x] for x in range(4)], [1, 3, 2, 5])
    assert fit is not None
    assert fit.coefficients == pytest.approx((1.1, 1.1))
    assert fit.variance == pytest.approx(2.7 / 2)
    assert fit.standard_error([0, 1]) == pytest.approx(math.sqrt(1.35 / 5))
    half = 4.302652729911275 * math.sqrt(1.35 / 5)
    assert fit.interval([0, 1]) == pytest.approx((1.1 - half, 1.1 + half))


def test_weights_are_repeated_observations() -> None:
    once = least_squares([[1, 1], [1, 2], [1, 4]], [1, 3, 2], [1, 2, 1])
    twice = least_squares([[1, 1], [1, 2], [1, 2], [1, 4]], [1, 3, 3, 2])
    assert once is not None and twice is not None
    assert once.coefficients == twice.coefficients


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_as_numpy(degree: int) -> None:
    rng = random.Random(degree)
    xs = [rng.uniform(0, 5) for _ in range(30)]
    ys = [rng.gauss(x * x, 0.3) for x in xs]
    weights = [rng.uniform(0.5, 2) for _ in xs]
    fit = least_squares([powers(x, degree) for x in xs], ys, weights)
    assert fit is not None
    known, covariance = np.polyfit(xs, ys, degree, w=np.sqrt(weights), cov=True)
    assert fit.coefficients == pytest.approx(tuple(known[::-1]), rel=1e-8)
    assert [(fit.standard_error(fit.term(i)) or 0) ** 2 for i in range(degree + 1)
            ] == pytest.approx(list(np.diag(covariance)[::-1]), rel=1e-8)


def test_as_many_points_as_terms_leave_no_interval() -> None:
    fit = least_squares([[1, 1], [1, 2]], [3, 5])
    assert fit is not None
    assert fit.coefficients == (1.0, 2.0)
    assert (fit.variance, fit.standard_error([1, 0]), fit.interval([1, 0])) == (None, None, None)


@pytest.mark.parametrize("rows", [[], [[1, 2]], [[1, 2], [1, 2], [1, 2]], [[1, 2], [2, 4]]])
def test_what_is_not_determined_is_none(rows: list[list[float]]) -> None:
    assert least_squares(rows, [1.0] * len(rows)) is None
    assert fit_relative(rows, [1.0] * len(rows)) is None


def test_bad_input_is_an_error() -> None:
    with pytest.raises(ValueError, match="weight"):
        least_squares([[1, 1], [1, 2]], [1, 2], [1, 0])
    with pytest.raises(ValueError, match="shorter"):
        least_squares([[1, 1], [1, 2]], [1])


def test_relative_errors_are_what_is_minimised() -> None:
    # 10 % up and 10 % down at each size: relative residuals cancel, so the truth is recovered.
    sizes = (100, 1000, 10_000)
    rows = [[1.0, float(n)] for n in sizes for _ in range(2)]
    ys = [(5 + 0.01 * n) * factor for n in sizes for factor in (0.9, 1.1)]
    fit = fit_relative(rows, ys)
    assert fit is not None
    assert fit.coefficients == pytest.approx((5, 0.01), rel=1e-9)
    assert fit.variance == pytest.approx(6 * 0.01 / 4)
    assert fit_relative([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]], [1.0, 0.0, 2.0]) is None


@pytest.mark.parametrize(("p", "df", "t"), [  # any printed table of Student's t
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 3, 3.182), (0.975, 4, 2.776), (0.975, 5, 2.571),
    (0.975, 9, 2.262), (0.975, 10, 2.228), (0.975, 30, 2.042), (0.975, 120, 1.980),
    (0.95, 1, 6.314), (0.95, 7, 1.895), (0.995, 3, 5.841), (0.9995, 2, 31.599), (0.5, 5, 0.0),
    (0.025, 10, -2.228)])
def test_quantiles_of_the_table(p: float, df: int, t: float) -> None:
    assert student_t_quantile(p, df) == pytest.approx(t, abs=5.1e-4)


@pytest.mark.parametrize("p", [0.5001, 0.6, 0.9, 0.975, 0.9999])
def test_quantiles_in_closed_form(p: float) -> None:
    a = 2 * p - 1
    assert student_t_quantile(p, 1) == pytest.approx(math.tan(math.pi * a / 2), rel=1e-10)
    assert student_t_quantile(p, 2) == pytest.approx(a * math.sqrt(2 / (1 - a * a)), rel=1e-10)


def test_the_distribution_is_symmetric_and_reaches_the_normal_one() -> None:
    for df in (1, 3, 17, 400):
        for t in (0.0, 1e-9, 0.3, 2.0, 40.0):
            assert student_t_cdf(t, df) + student_t_cdf(-t, df) == pytest.approx(1, abs=1e-12)
    assert student_t_quantile(0.975, 1_000_000) == pytest.approx(1.959966, abs=1e-5)
    with pytest.raises(ValueError, match="degree"):
        student_t_cdf(1.0, 0)
    with pytest.raises(ValueError, match="probability"):
        student_t_quantile(1.0, 3)


@pytest.mark.parametrize(("t", "freedom"), [  # the 5 % column of every printed table
    (6.313752, 1), (2.919986, 2), (2.353363, 3), (2.131847, 4), (1.833113, 9), (1.812461, 10),
    (1.697261, 30),
])
def test_the_tail_of_student(t: float, freedom: int) -> None:
    assert student_t_cdf(-t, freedom) == pytest.approx(0.05, abs=1e-6)
    assert student_t_cdf(t, freedom) == pytest.approx(0.95, abs=1e-6)
    assert student_t_cdf(0, freedom) == pytest.approx(0.5)
