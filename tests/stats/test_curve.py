"""The parabola: exact where the data are, silent where a line or chance will do."""

from __future__ import annotations

import random

import pytest

from request_timing.stats.compare import LEVEL
from request_timing.stats.fits import student_t_cdf, upward_curve

SIZES = (1, 1, 2, 2, 3, 3, 4, 4)


def test_an_exact_parabola_comes_back() -> None:
    curve = upward_curve(SIZES, [3 + 2 * x + 5 * x * x for x in SIZES], SIZES)
    assert curve is not None
    assert (curve.intercept, curve.slope, curve.square) == pytest.approx((3, 2, 5))
    assert (curve.p_value, curve.n) == (0, 8)
    assert (curve.at(10), curve.slope_at(10)) == pytest.approx((523, 102))


@pytest.mark.parametrize("ys", [
    [0.1 + 0.3 * x for x in SIZES],  # a line, but for rounding
    [5.0] * 8,
    [0.0] * 8,
    [10 * x - x * x for x in SIZES],  # bends downwards
    [1, 3, 2, 4, 3, 5, 4, 6.1],  # a bend far below the noise
])
def test_no_bend_no_curve(ys: list[float]) -> None:
    assert upward_curve(SIZES, ys, SIZES) is None


@pytest.mark.parametrize("xs", [
    (), (1, 1), (1, 1, 2, 2),
    (1, 2, 2, 3, 3),  # one size asked once: nothing is known of its noise
    (1, 2, 3, 4),
])
def test_too_little_to_tell(xs: tuple[int, ...]) -> None:
    assert upward_curve(xs, [x * x for x in xs], xs) is None


def test_three_conditions_at_two_places_hold_no_parabola() -> None:
    assert upward_curve((1, 1, 1, 1, 2, 2), (1, 2, 1, 2, 5, 6), "aabbcc") is None


def test_a_worked_example_of_the_standard_error() -> None:
    # Means 1, 4, 9.5 at 0, 1, 2; c = (1 - 2·4 + 9.5)/2 = 1.25. Variances 0.02, 0, 0.5 of two each:
    # var(c) = (0.02 + 0.5)/2/4 = 0.065; freedom 0.065²/(0.0025² + 0.0625²) = 1.08, so 1.
    curve = upward_curve((0, 0, 1, 1, 2, 2), (0.9, 1.1, 4, 4, 9, 10), (0, 0, 1, 1, 2, 2), level=1)
    assert curve is not None
    assert curve.square == pytest.approx(1.25)
    assert curve.p_value == pytest.approx(student_t_cdf(-1.25 / 0.065**0.5, 1))


@pytest.mark.parametrize("noise", ["of each time", "the same for all", "skewed"])
def test_chance_bends_a_line_in_at_most_one_of_twenty(noise: str) -> None:
    rng = random.Random(7)
    sizes = [size for size in (1000, 2000, 4000, 8000, 17000) for _ in range(3)]

    def measured(size: int) -> float:
        true = 0.2 + size / 1000
        if noise == "of each time":
            return true * (1 + 0.03 * rng.gauss(0, 1))
        return true + (0.05 * rng.gauss(0, 1) if noise == "the same for all"
                       else 0.1 * rng.lognormvariate(0, 1))

    runs = 2000
    found = sum(upward_curve(sizes, list(map(measured, sizes)), sizes) is not None
                for _ in range(runs))
    assert found / runs <= LEVEL + 0.01
