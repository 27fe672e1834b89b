"""Rank tests, their intervals and `compare`, held to brute force, textbooks and cases by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest

from request_timing.stats.compare import Comparison, compare, detectable_ratio
from request_timing.stats.ranks import interval, mann_whitney_p, pair_weights, sign_flip_p


def all_signs_p(weights: Sequence[int]) -> float:
    """Of every way to sign these weights, the share with a sum of at most their own."""
    sums = [sum(sign * abs(weight) for sign, weight in zip(signs, weights, strict=True))
            for signs in itertools.product((-1, 1), repeat=len(weights))]
    return sum(each <= sum(weights) for each in sums) / len(sums)


def all_choices_p(control: Sequence[float], treated: Sequence[float]) -> float:
    """Of every way to choose the treated from all values, the share whose ranks sum to at most
    the treated ones'. The rank of a value is one half for each equal value, itself included, and
    one for each smaller one, and a half."""
    pooled = [*control, *treated]
    ranks = [sum(other < value for other in pooled) + (pooled.count(value) + 1) / 2
             for value in pooled]
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(treated))]
    return sum(each <= sum(ranks[len(control):]) for each in sums) / len(sums)


@pytest.mark.parametrize("weights", [
    [400], [-400], [0, 400], [0, -400, 0], [400, 400, -400, 400], [-400] * 5, [400] * 9,
    [1, 2, 3, -4, 400], [-1, -1, 2, -2, 3, 0, -400], [-7, 13, 0, 0, 400, -400, 28, -51, 80, 80],
])
def test_sign_flip_p_is_the_share_of_all_sign_patterns(weights: list[int]) -> None:
    # A largest weight of 400 is the grid itself: nothing is rounded.
    assert sign_flip_p(weights) == all_signs_p(weights)


def test_sign_flip_p_is_the_share_of_all_sign_patterns_of_random_weights() -> None:
    rng = random.Random(3)
    for n in range(1, 12):
        weights = [400 * rng.choice((-1, 1)), *(rng.randint(-400, 400) for _ in range(n - 1))]
        assert sign_flip_p(weights) == all_signs_p(weights)


def test_sign_flip_p_by_hand() -> None:
    assert sign_flip_p([0.0, 0.0]) == 1  # every pattern is the same one
    assert sign_flip_p([-1, -1, -1]) == 1 / 8
    assert sign_flip_p([-3, -2, 1]) == 2 / 8  # -6 and -4; the next sums are -2, 0
    assert sign_flip_p([-0.3, -0.2, -0.1, -0.1, 0.0]) == 1 / 16  # a zero tells nothing
    assert sign_flip_p([0.5] * 60) == 1
    assert sign_flip_p([-0.5] * 60) == 2.0**-60


@pytest.mark.parametrize(("control", "treated"), [
    ([2], [1]), ([1], [1]), ([1, 2, 3], [4, 5]), ([4, 5], [1, 2, 3]), ([1, 1, 1], [1, 1]),
    ([1, 2, 2, 3], [2, 2, 1]), ([0, 0, 5, 5, 5], [0, 5, 0, 0]), ([1, 4, 4, 9, 9], [9, 1, 4, 2, 3]),
])
def test_mann_whitney_p_is_the_share_of_all_choices(
    control: list[float], treated: list[float]
) -> None:
    assert mann_whitney_p(control, treated) == pytest.approx(
        all_choices_p(control, treated), rel=1e-12)


def test_mann_whitney_p_of_random_arms_with_ties() -> None:
    rng = random.Random(5)
    for n, m in itertools.product(range(1, 7), repeat=2):
        control, treated = rng.choices(range(6), k=n), rng.choices(range(6), k=m)
        assert mann_whitney_p(control, treated) == pytest.approx(
            all_choices_p(control, treated), rel=1e-12)


def arms_with_u(n: int, u: int) -> tuple[list[float], list[float]]:
    """Arms of n in which u pairs across them have the treated one larger."""
    control = [float(value) for value in range(1, n + 1)]
    above, rest = divmod(u, n)
    return control, [n + 1.0 + k for k in range(above)] + [rest + 0.5] + [
        -1.0 - k for k in range(n - above - 1)]


@pytest.mark.parametrize(("n", "last"), [(5, 4), (10, 27), (20, 138), (25, 227), (50, 1010)])
def test_mann_whitney_p_crosses_five_percent_where_the_textbook_does(n: int, last: int) -> None:
    # One-sided 5 % critical values; 25 and 50 a side are the normal approximation's, whose exact
    # level there, from the Gaussian binomial coefficients, is 4.97 and 4.94 %.
    assert mann_whitney_p(*arms_with_u(n, last)) <= 0.05 < mann_whitney_p(*arms_with_u(n, last + 1))


def test_mann_whitney_p_of_many_equal_values() -> None:
    assert mann_whitney_p([1.0] * 30, [1.0] * 30) == 1
    assert mann_whitney_p([1.0] * 30, [0.0] * 30) < 1e-12


def test_mann_whitney_p_hardly_jumps_where_the_approximation_begins() -> None:
    few, many = mann_whitney_p(*arms_with_u(20, 138)), mann_whitney_p(*arms_with_u(21, 154))
    assert few == pytest.approx(0.0482, abs=1e-4)
    assert many == pytest.approx(0.0486, abs=5e-4)


@pytest.mark.parametrize(("n", "critical"), [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (20, 52)])
def test_paired_interval_cuts_where_the_signed_rank_table_does(n: int, critical: int) -> None:
    # Two-sided 5 % critical values of the signed rank test, as in any table.
    rng = random.Random(n)
    log_c, log_t = ([rng.random() for _ in range(n)] for _ in range(2))
    differences = [t - c for c, t in zip(log_c, log_t, strict=True)]
    walsh = sorted((a + b) / 2
                   for a, b in itertools.combinations_with_replacement(differences, 2))
    assert interval(log_c, log_t, differences) == pytest.approx(
        (math.exp(walsh[critical]), math.exp(walsh[-1 - critical])))


@pytest.mark.parametrize(("n", "m", "critical"), [
    (4, 4, 0), (5, 5, 2), (6, 4, 2), (10, 10, 23), (20, 20, 127), (20, 23, 149),
    (30, 33, 352)])
def test_unpaired_interval_cuts_where_the_mann_whitney_table_does(
    n: int, m: int, critical: int
) -> None:
    # Beyond 40 samples it is an approximation, here equal to the exact value, never above it.
    rng = random.Random(n)
    log_c, log_t = [rng.random() for _ in range(n)], [rng.random() for _ in range(m)]
    steps = sorted(t - c for c, t in itertools.product(log_c, log_t))
    assert interval(log_c, log_t, None) == pytest.approx(
        (math.exp(steps[critical]), math.exp(steps[-1 - critical])))


def test_interval_of_six_pairs_is_from_the_least_to_the_largest_ratio() -> None:
    found = compare([1] * 6, [0.5, 0.6, 0.7, 0.8, 0.9, 1.1], paired=True)
    assert found.interval == pytest.approx((0.5, 1.1))
    # Half of log(2.2) = 0.788457 is 1.959964 standard errors, each of noise / sqrt(6 · 0.954930).
    assert found.noise == pytest.approx(0.788457 / 2 / 1.959964 * math.sqrt(5.729578), 1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("paired", [True, False])
def test_two_or_three_samples_have_no_interval(n: int, paired: bool) -> None:
    found = compare([4] * n, [1] * n, paired=paired)
    assert (found.n_control, found.n_treated) == (n, n)
    assert found.interval is None
    assert found.detectable_ratio is None
    assert found.ratio == 0.25
    assert found.share_below_all == 1
    ways = 2**n if paired else math.comb(2 * n, n)
    assert found.p_value == pytest.approx(1 / ways)
    assert found.p_slower == 1


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [1, 5, 6, 30])
def test_equal_arms_tell_nothing(n: int, paired: bool) -> None:
    found = compare([2.0] * n, [2.0] * n, paired=paired)
    assert (found.p_value, found.p_slower, found.ratio) == (1, 1, 1)
    assert found.share_below_all == 0
    assert found.interval == (None if n == 1 else (1, 1))
    assert found.noise == (None if n == 1 else 0)
    assert found.detectable_ratio == (None if n == 1 else 1)


@pytest.mark.parametrize(("control", "treated"), [
    ([], []), ([1], []), ([], [1, 2]), ([None], [1]), ([None, None], [None])])
def test_an_empty_arm_leaves_everything_unknown(
    control: list[float | None], treated: list[float | None]
) -> None:
    known = [sum(value is not None for value in arm) for arm in (control, treated)]
    assert compare(control, treated) == Comparison(
        n_control=known[0], n_treated=known[1], paired=False)


def test_pairs_that_never_meet_leave_everything_unknown() -> None:
    assert compare([], [], paired=True) == compare([1, None], [None, 1], paired=True) == Comparison(
        n_control=0, n_treated=0, paired=True)


def test_a_pair_with_an_unknown_half_is_left_out() -> None:
    whole = compare([5, 7, 6, 8, 9, 4], [1, 2, 3, 1, 2, 6], paired=True)
    assert compare([5, None, 7, 6, 3, 8, 9, 4], [1, 99, 2, 3, None, 1, 2, 6],
                   paired=True) == whole


def test_without_pairs_only_the_unknown_value_is_left_out() -> None:
    assert compare([5, None, 7], [1, 2, None, 3]) == compare([5, 7], [1, 2, 3])


def test_paired_arms_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare([1, 2], [1], paired=True)


@pytest.mark.parametrize("paired", [True, False])
def test_zeros_are_shorter_than_the_clock_resolves(paired: bool) -> None:
    found = compare([0.0, 1, 1, 1, 1, 1], [0.0] * 6, paired=paired)
    assert found.ratio == 0
    assert found.p_value is not None and found.p_value <= 0.05
    assert found.interval is not None and all(map(math.isfinite, found.interval))
    assert found.noise is not None and math.isfinite(found.noise)
    nothing = compare([0.0] * 6, [0.0] * 6, paired=paired)
    assert (nothing.ratio, nothing.p_value, nothing.interval) == (None, 1, (1, 1))


NOISY = ([1.0, 1.3, 0.8, 1.1, 1.6, 0.9, 1.2], [0.7, 0.75, 0.95, 0.62, 1.4, 0.55, 0.84])


@pytest.mark.parametrize("paired", [True, False])
def test_how_slow_the_slowest_request_is_changes_nothing(paired: bool) -> None:
    control, treated = NOISY
    calm, wild = (compare([*control, slowest], [*treated, 0.6], paired=paired)
                  for slowest in (2.0, 2000.0))
    assert (calm.ratio, calm.p_value, calm.p_slower, calm.share_below_all) == (
        wild.ratio, wild.p_value, wild.p_slower, wild.share_below_all)


@pytest.mark.parametrize("paired", [True, False])
def test_from_twelve_turns_on_it_does_not_change_the_interval_either(paired: bool) -> None:
    # One value is in n of the Walsh averages; from n = 12 on more than n lie outside the interval.
    control, treated = NOISY[0] + NOISY[1], NOISY[1] + NOISY[0]
    calm, wild = (compare([*control[:11], slowest], treated[:12], paired=paired)
                  for slowest in (20.0, 2000.0))
    assert calm == wild


@pytest.mark.parametrize("paired", [True, False])
def test_milliseconds_compare_as_seconds_do(paired: bool) -> None:
    seconds = compare(*NOISY, paired=paired)
    milli = compare(*([value * 1000 for value in arm] for arm in NOISY), paired=paired)
    assert (milli.p_value, milli.p_slower) == (seconds.p_value, seconds.p_slower)
    assert milli.share_below_all == seconds.share_below_all
    assert milli.interval == pytest.approx(seconds.interval)
    assert (milli.ratio, milli.noise, milli.detectable_ratio) == pytest.approx(
        (seconds.ratio, seconds.noise, seconds.detectable_ratio))


@pytest.mark.parametrize("paired", [True, False])
def test_swapped_arms_give_the_inverse(paired: bool) -> None:
    there, back = compare(*NOISY, paired=paired), compare(*reversed(NOISY), paired=paired)
    assert there.ratio is not None and back.ratio is not None
    assert there.interval is not None and back.interval is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.interval == pytest.approx((1 / there.interval[1], 1 / there.interval[0]))
    assert (back.p_value, back.p_slower) == (there.p_slower, there.p_value)
    assert back.noise == pytest.approx(there.noise)


def test_the_share_below_all_tells_a_mixture() -> None:
    # Two of five landed on a replica that had the prefix; equal to the fastest is not below it.
    found = compare([1.0, 1.1, 0.9, 1.2, 1.0], [0.2, 1.0, 0.25, 0.9, 1.1])
    assert found.share_below_all == 0.4
    assert found.ratio == 0.9


def test_pair_weights_by_hand() -> None:
    # Differences -1, +2, 0 have signed ranks -2, 3, 0. Of the values 1, 0, 5 and 0, 2, 5 the pooled
    # ranks are 3, 1.5, 5.5 and 1.5, 4, 5.5, so the pairs move by -1.5, 2.5 and 0.
    a, b = math.hypot(2, 3), math.hypot(1.5, 2.5)
    assert pair_weights([1, 0, 5], [0, 2, 5]) == pytest.approx(
        [-2 / a - 2 * 1.5 / b, 3 / a + 2 * 2.5 / b, 0])


def test_swapping_a_pair_turns_its_weight_and_no_other() -> None:
    log_c, log_t = [1.0, 4.0, 2.0, 9.0], [3.0, 0.0, 2.5, 1.0]
    kept = pair_weights(log_c, log_t)
    log_c[1], log_t[1] = log_t[1], log_c[1]
    assert pair_weights(log_c, log_t) == [kept[0], -kept[1], *kept[2:]]


def test_detectable_ratio_by_hand() -> None:
    # z(0.95) + z(0.80) = 1.644854 + 0.841621 = 2.486475, over sqrt(20 · 0.954930) = 4.370194.
    assert detectable_ratio(0.5, 20) == pytest.approx(math.exp(-2.486475 * 0.5 / 4.370194), 1e-6)
    assert detectable_ratio(0.0, 5) == 1
    assert detectable_ratio(0.5, 4) is None
