"""Amounts held to answers worked out by hand, as exact decimals."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from blank_sample import blank
from price_samples import FLAT, NO_CACHED, STEPPED, d
from request_timing.costs.money import (
    Cost,
    Prices,
    Rate,
    billed_output_tokens,
    dollars,
    from_flags,
    request_cost,
    sample_cost,
    spent_at_most,
    stop_line,
    upper_bound,
    usd,
)
from request_timing.errors import UserError
from request_timing.experiments.budget import estimate, within
from request_timing.experiments.lab import Stopped
from request_timing.experiments.plan import Planned
from request_timing.report.bill import estimate_lines

WRITTEN = Prices(source="x", rates=(
    Rate(input_usd=d("1"), cached_usd=d("0.1"), output_usd=d("5"), write_usd=d("1.25")),))


@pytest.mark.parametrize(("prices", "prompt", "cached", "output", "low", "high"), [
    # 1,000 x 0.28 + 99,000 x 0.028 + 32 x 0.42 = 280 + 2,772 + 13.44 millionths
    (FLAT, 100_000, 99_000, 32, "0.00306544", "0.00306544"),
    (FLAT, 100_000, 0, 32, "0.02801344", "0.02801344"),
    # not reported: all of it cached, or nothing
    (FLAT, 100_000, None, 32, "0.00281344", "0.02801344"),
    # more cached than sent says nothing
    (FLAT, 100_000, 100_001, 32, "0.00281344", "0.02801344"),
    # 600 x 2 + 5 x 8, and 400 tokens at 0 to 2 each
    (NO_CACHED, 1000, 400, 5, "0.00124", "0.00204"),
    (NO_CACHED, 1000, 0, 5, "0.00204", "0.00204"),
    # the step is passed above 200,000, not at it, and then the whole prompt pays it
    (STEPPED, 200_000, 0, 10, "0.2501", "0.2501"),
    (STEPPED, 200_001, 0, 10, "0.5001525", "0.5001525"),
    # of 900 tokens that were not cached, none or all may have been written to the cache
    (WRITTEN, 1000, 100, 0, "0.00091", "0.001135"),
    (WRITTEN, 1000, None, 0, "0.0001", "0.00125"),
    (FLAT, 0, 0, 0, "0", "0"),
])
def test_a_request(prices: Prices, prompt: int, cached: int | None, output: int, low: str,
                   high: str) -> None:
    assert request_cost(prices, prompt, cached, output) == Cost(low_usd=d(low), high_usd=d(high))


def test_a_cached_token_that_is_dearer_than_a_fresh_one_still_gives_a_range_in_order() -> None:
    odd = Prices(source="x", rates=(
        Rate(input_usd=d("1"), cached_usd=d("3"), output_usd=d("0")),))
    assert request_cost(odd, 1000, None, 0) == Cost(low_usd=d("0.001"), high_usd=d("0.003"))


def test_no_binary_fraction_comes_in() -> None:
    tenth = Prices(source="x", rates=(Rate(input_usd=d("0.1"), output_usd=d("0.2")),))
    assert request_cost(tenth, 1, 0, 1).low_usd == d("0.0000003")
    total = sum((request_cost(tenth, 1, 0, 1) for _ in range(10)), Cost())
    assert total.high_usd == d("0.000003")
    assert total.to_json() == {"low_usd": "0.000003", "high_usd": "0.000003"}


def test_thinking_is_billed_within_the_output_or_beside_it() -> None:
    def output(**known: object) -> int | None:
        return billed_output_tokens(blank(prompt_tokens=10, **known))

    assert output(output_tokens=100, reasoning_tokens=60) == 100
    assert output(output_tokens=20, reasoning_tokens=60) == 80
    assert output(output_tokens=20) == 20
    assert output(reasoning_tokens=60) is None


def test_a_sample_without_usage_has_no_cost_and_a_bound() -> None:
    # 100 characters are at most 400 tokens; 4 may be written
    untold = blank(prompt_chars=100, asked_output_tokens=4)
    told = blank(prompt_tokens=1000, cached_tokens=0, output_tokens=4)
    assert sample_cost(untold, FLAT) is None
    assert spent_at_most([untold], FLAT) == d("0.00011368")
    assert spent_at_most([untold], FLAT, tokens_per_char=1) == d("0.00002968")
    assert spent_at_most([told, untold], FLAT) == d("0.00028168") + d("0.00011368")
    assert spent_at_most([], FLAT) == 0


def test_the_bound_holds_every_rate_that_a_prompt_of_that_size_may_fall_under() -> None:
    assert upper_bound(FLAT, 1000, 10) == d("0.0002842")
    assert upper_bound(WRITTEN, 1000, 0) == d("0.00125")
    assert upper_bound(STEPPED, 200_000, 0) == d("0.25")
    assert upper_bound(STEPPED, 200_001, 0) == d("0.5000025")
    cheaper_above = Prices(source="x", rates=(
        Rate(input_usd=d("3"), output_usd=d("0")),
        Rate(input_usd=d("1"), output_usd=d("0"), above_tokens=10)))
    assert upper_bound(cheaper_above, 20, 0) == d("0.00006")


@pytest.mark.parametrize(("limit", "spent", "more", "stops"), [
    ("1", "0.9", "0.1", False),  # exactly the limit may be spent
    ("1", "0.9", "0.1000000001", True),
    ("0", "0", "0.01", True),
    ("0", "0", "0", False),
    ("1", "2", "0", True),
])
def test_max_cost_stops_before_the_request_that_could_pass_it(
    limit: str, spent: str, more: str, stops: bool
) -> None:
    assert (stop_line(d(limit), d(spent), d(more)) is not None) == stops


def test_what_the_stop_says() -> None:
    assert stop_line(d("1.5"), d("1.4321"), d("0.0812345")) == (
        "stopped by --max-cost $1.50: up to $1.43 spent, and the next request could cost $0.0812")


PLAN = [Planned(experiment="length", requests=2, input_tokens=300_000, output_tokens=32),
        Planned(experiment="cache", requests=4, input_tokens=400_000, output_tokens=128)]


def test_the_plan_is_priced_at_its_worst() -> None:
    assert estimate(PLAN, FLAT) == {"length": d("0.08401344"), "cache": d("0.11205376")}
    assert estimate_lines(estimate(PLAN, FLAT), FLAT) == [
        "cost: about $0.196 at the most, with nothing cached and answers at full length",
        "  (length $0.0840, cache $0.112)",
        "USD per million tokens: input 0.28, cached 0.028, output 0.42",
        "prices from the flags"]


def test_a_rate_by_prompt_length_is_planned_at_the_dearest_in_reach() -> None:
    assert estimate(PLAN, STEPPED)["cache"] == d("1.00192")


@pytest.mark.parametrize(("amount", "shown"), [
    ("0", "$0"), ("1234.5", "$1,234.50"), ("12.345", "$12.34"), ("1", "$1.00"),
    ("0.123456", "$0.123"), ("0.00306544", "$0.00307"), ("0.0000003", "$0.000000300"),
    ("-0.5", "-$0.500"), ("0.09996", "$0.1000"),
])
def test_amounts_for_people(amount: str, shown: str) -> None:
    assert dollars(d(amount)) == shown


def test_a_range_is_rounded_outwards_so_that_it_still_holds_the_amount() -> None:
    assert str(Cost(low_usd=d("1.009"), high_usd=d("1.011"))) == "$1.00 to $1.02"
    assert str(Cost(low_usd=d("-0.1234"), high_usd=d("0.1234"))) == "-$0.124 to $0.124"
    assert str(Cost(low_usd=d("1.011"), high_usd=d("1.011"))) == "$1.01"


def test_flags() -> None:
    assert from_flags(None, None, None) is None
    assert from_flags(d("0.28"), d("0.028"), d("0.42")) == FLAT
    free = from_flags(d("0"), None, d("0"))
    assert free is not None and free.rates[0].cached_usd is None
    with pytest.raises(UserError, match=r"found no --price-out; add it"):
        from_flags(d("1"), None, None)
    with pytest.raises(UserError, match=r"found no --price-in; add it"):
        from_flags(None, d("1"), None)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1,5", "$1", "1e9", "0.1234567891"])
def test_an_amount_that_is_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected an amount such as 0\.28"):
        usd(text)


def test_amounts_of_flags() -> None:
    assert [usd(t) for t in ("0", "0.28", "15", "-0")] == [0, d("0.28"), 15, 0]
    assert str(usd("-0")) == "0"


def test_an_endpoint_that_writes_ten_times_as_much_is_taken_to_do_so_again() -> None:
    written = blank(asked_output_tokens=50, prompt_tokens=0, output_tokens=500)
    flat = Prices(source="x", rates=(Rate(input_usd=d("0"), output_usd=d("1000")),))
    within(d("1.0"), flat, [written])(0, 50)  # 0.5 spent, and 0.5 to come
    with pytest.raises(Stopped, match="could cost"):
        within(d("0.99"), flat, [written])(0, 50)
    few = replace(written, output_tokens=5)
    within(d("0.055"), flat, [few])(0, 50)  # less than asked is no promise to write less again
    with pytest.raises(Stopped):
        within(d("0.0549"), flat, [few])(0, 50)
