"""The bill: by arm, what is not reported, and the difference between the arms; exact text."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from blank_sample import blank
from conftest import ROOT
from price_samples import FLAT, NO_CACHED, STEPPED
from request_timing.costs.bill import bill
from request_timing.costs.money import Cost
from request_timing.records.run import load_run
from request_timing.records.sample import Failure, Sample
from request_timing.report.bill import bill_lines


def asked(arm: str, turn: int, prompt: int, cached: int | None, output: int = 30,
          experiment: str = "cache") -> Sample:
    return blank(experiment=experiment, arm=arm, turn=turn, prompt_tokens=prompt,
                 cached_tokens=cached, output_tokens=output)


RUN = [
    asked("1000", 1, 1000, 0, 16, "length"),
    asked("append", 1, 100_000, 0), asked("prepend", 1, 100_000, 0),
    asked("append", 2, 100_050, 100_000), asked("prepend", 2, 100_080, 0),
    asked("append", 3, 100_100, 100_050, 10), asked("prepend", 3, 100_130, 30),
]


def test_the_bill_of_a_run() -> None:
    whole = bill(RUN, FLAT)
    # length: 1,000 x 0.28 + 16 x 0.42; append: 100,100 fresh, 200,050 cached, 70 written;
    # prepend: 300,180 fresh, 30 cached, 90 written
    assert [row.cost and row.cost.low_usd for row in whole.arms] == [
        Decimal("0.00028672"), Decimal("0.0336588"), Decimal("0.08408904")]
    assert whole.total == Cost(low_usd=Decimal("0.11803456"), high_usd=Decimal("0.11803456"))
    # turn 2: 100,080 x 0.28 - (50 x 0.28 + 100,000 x 0.028) = 25,208.4; turn 3: 100,100 x 0.28
    # + 30 x 0.028 - (50 x 0.28 + 100,050 x 0.028) = 25,213.44; the mean is 25,210.92 millionths
    assert whole.difference is not None
    assert whole.difference.cost == Cost(low_usd=Decimal("25.21092"), high_usd=Decimal("25.21092"))
    assert (whole.difference.turns, whole.difference.uncached_tokens) == (
        2, Decimal(100_040_000))


def test_the_lines_of_a_bill() -> None:
    assert "\n".join(bill_lines(bill(RUN, FLAT))) == """\
         cost  requests    input   cached  output       USD
-------------  --------  -------  -------  ------  --------
  length 1000         1    1,000        0      16  0.000287
 cache append         3  300,150  200,050      70    0.0337
cache prepend         3  300,210       30      90    0.0841
        total                                         0.118
prepend against append, for every 1,000 turns: USD +25.21, +100,040,000
  uncached tokens (mean of 2 turns, input alone)
USD per million tokens: input 0.28, cached 0.028, output 0.42
prices from the flags"""


def test_without_a_price_there_are_tokens_alone_and_it_is_said() -> None:
    assert "\n".join(bill_lines(bill(RUN, None))) == """\
       tokens  requests    input   cached  output
-------------  --------  -------  -------  ------
  length 1000         1    1,000        0      16
 cache append         3  300,150  200,050      70
cache prepend         3  300,210       30      90
prepend against append, for every 1,000 turns: +100,040,000 uncached tokens
  (mean of 2 turns, input alone)
no price is known, so tokens alone: --price-in, --price-cached and --price-out
(USD per million tokens) give the money too"""


def test_a_cached_count_that_is_not_reported_makes_a_range() -> None:
    run = [replace(s, cached_tokens=None) for s in RUN if s.experiment == "cache"]
    whole = bill(run, FLAT)
    assert [row.cached_tokens for row in whole.arms] == [None, None]
    append = whole.arms[0].cost
    assert append == Cost(low_usd=Decimal("0.0084336"), high_usd=Decimal("0.0840714"))
    assert whole.difference is not None and whole.difference.uncached_tokens is None
    # Bounds are rounded outwards: 0.0084336 to 0.0840714, 0.00844368 to 0.0840966
    assert "\n".join(bill_lines(whole)) == """\
         cost  requests    input  cached  output                USD
-------------  --------  -------  ------  ------  -----------------
 cache append         3  300,150       -      70  0.00843 to 0.0841
cache prepend         3  300,210       -      90  0.00844 to 0.0841
        total                                       0.0168 to 0.169
a range holds what is not reported: how much was cached, or what a token costs
  that was read from or written to the cache
prepend against append, for every 1,000 turns: USD -25.22 to +25.23 (mean of 2
  turns, input alone)
USD per million tokens: input 0.28, cached 0.028, output 0.42
prices from the flags"""


def test_one_unreported_count_is_enough_for_a_range() -> None:
    run = [*RUN[1:3], replace(RUN[3], cached_tokens=None), RUN[4]]
    whole = bill(run, FLAT)
    assert whole.arms[0].cached_tokens is None and whole.arms[1].cached_tokens == 0
    assert whole.difference is not None and whole.difference.cost is not None
    assert whole.difference.cost.low_usd < whole.difference.cost.high_usd


def test_a_request_that_told_nothing_is_in_no_sum_and_is_counted() -> None:
    failed = blank(experiment="cache", arm="append", turn=4,
                   error=Failure(kind="http", message="HTTP 500", http_status=500))
    whole = bill([*RUN, failed], FLAT)
    assert (whole.arms[1].requests, whole.arms[1].unreported) == (4, 1)
    assert whole.total == bill(RUN, FLAT).total
    assert "without the tokens and the cost of 1 request that reported none" in bill_lines(whole)


def test_an_arm_of_which_nothing_is_known_has_dashes_and_no_zeros() -> None:
    failed = blank(experiment="cache", arm="cold", error=Failure(kind="http", message="HTTP 500"))
    whole = bill([*RUN, failed, failed], FLAT)
    assert "   cache cold         2        -        -       -         -" in bill_lines(whole)
    assert whole.to_json()["arms"][-1]["cost"] is None
    assert whole.total == bill(RUN, FLAT).total


def test_a_failed_request_that_told_its_tokens_is_paid_for() -> None:
    cut = replace(RUN[3], error=Failure(kind="cut", message="the stream was cut"))
    whole = bill([cut], FLAT)
    assert whole.arms[0].cost == bill([RUN[3]], FLAT).arms[0].cost
    assert whole.difference is None


def test_turns_that_only_one_arm_has_are_not_compared() -> None:
    whole = bill([s for s in RUN if (s.arm, s.turn) != ("prepend", 3)], FLAT)
    assert whole.difference is not None and whole.difference.turns == 1
    assert whole.difference.cost == Cost(low_usd=Decimal("25.2084"), high_usd=Decimal("25.2084"))
    assert bill([s for s in RUN if s.arm == "append"], FLAT).difference is None
    assert bill([], FLAT).total == Cost()


def test_a_range_around_nothing_shows_both_signs() -> None:
    run = [replace(s, cached_tokens=None) for s in RUN]
    line = " ".join(" ".join(bill_lines(bill(run, NO_CACHED))).split())
    assert "USD -200.15 to +200.21 (mean of 2 turns, input alone)" in line


def test_the_json() -> None:
    data = bill(RUN, STEPPED).to_json()
    assert data["prices"]["usd_per_million_tokens"][1] == {
        "above_prompt_tokens": 200_000, "input": "2.5", "cached_input": "0.25",
        "cache_write": None, "output": "15"}
    assert data["arms"][0] == {
        "experiment": "length", "arm": "1000", "requests": 1, "requests_without_usage": 0,
        "prompt_tokens": 1000, "cached_tokens": 0, "output_tokens": 16,
        "cost": {"low_usd": "0.00141", "high_usd": "0.00141"}}
    assert bill(RUN, None).to_json()["total"] is None


@pytest.mark.parametrize("prices", [FLAT, STEPPED, NO_CACHED, None])
@pytest.mark.parametrize("name", ["demo_api_timing", "demo_local_cache"])
def test_the_bill_of_a_saved_run_fits_a_terminal(name: str, prices: object) -> None:
    samples = load_run(ROOT / "sample_output" / f"{name}.json").samples
    lines = bill_lines(bill(samples, prices))  # type: ignore[arg-type]
    assert max(map(len, lines)) <= 80
    assert sum(row.prompt_tokens for row in bill(samples, None).arms) == sum(
        s.prompt_tokens or 0 for s in samples)
