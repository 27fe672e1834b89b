"""The bill of a run by experiment and arm, and what prepend takes more than append.

Pure functions from samples to figures and lines. Tokens are those the endpoint reported; an amount
that hangs on something not reported is a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from request_timing.costs.bill import TURNS, Bill, Difference, bill
from request_timing.costs.money import (
    ZERO,
    Cost,
    Prices,
    dollars,
    exact,
    prices_from_json,
)
from request_timing.formats import UNKNOWN, count
from request_timing.records.run import Run
from request_timing.report.remarks import lines_of
from request_timing.report.tables import table

NO_PRICE = ("no price is known, so tokens alone: --price-in, --price-cached and --price-out",
            "(USD per million tokens) give the money too")


def of_run(run: Run) -> list[str]:
    """The bill of a run in lines; none for a run that was to cost nothing."""
    if "prices" not in run.settings:
        return []
    return bill_lines(bill(run.samples, prices_from_json(run.settings["prices"])))


def bill_lines(whole: Bill) -> list[str]:
    """The bill, for people; at most 80 columns."""
    priced = whole.prices is not None
    headers = ["cost" if priced else "tokens", "requests", "input", "cached", "output"]
    rows = [[f"{r.experiment} {r.arm}", count(r.requests),
             *map(count, (r.prompt_tokens, r.cached_tokens, r.output_tokens)
                  if r.unreported < r.requests else (None,) * 3)] for r in whole.arms]
    if whole.prices is not None and whole.total is not None:
        headers.append("USD")
        for cells, row in zip(rows, whole.arms, strict=True):
            cells.append(UNKNOWN if row.cost is None else str(row.cost).replace("$", ""))
        rows.append(["total", *[""] * 4, str(whole.total).replace("$", "")])
    lines = table(headers, rows).split("\n")
    if missing := sum(row.unreported for row in whole.arms):
        lines += lines_of(f"without the tokens{' and the cost' if priced else ''} of {missing} "
                         f"request{'s' if missing > 1 else ''} that reported none")
    if whole.total is not None and whole.total.low_usd != whole.total.high_usd:
        lines += lines_of("a range holds what is not reported: how much was cached, or what a "
                         "token costs that was read from or written to the cache")
    lines += _difference_lines(whole.difference)
    return lines + (list(NO_PRICE) if whole.prices is None else price_lines(whole.prices))


def _difference_lines(more: Difference | None) -> list[str]:
    if more is None or (more.cost is None and more.uncached_tokens is None):
        return []
    means = f"(mean of {more.turns} turn{'s' if more.turns > 1 else ''}, input alone)"
    tokens = "" if more.uncached_tokens is None else f"{more.uncached_tokens:+,.0f} uncached tokens"
    money = "" if more.cost is None else f"USD {_signed(more.cost)}"
    said = ", ".join(part for part in (money, tokens) if part)
    return lines_of(f"prepend against append, for every {TURNS:,} turns: {said} {means}")


def _signed(cost: Cost) -> str:
    """A difference with its signs: +1.20, or -0.10 to +1.20."""
    ends = str(cost).replace("$", "").split(" to ")
    return " to ".join(end if end.startswith("-") else f"+{end}" for end in ends)


def estimate_lines(most: Mapping[str, Decimal], prices: Prices) -> list[str]:
    """The plan's cost, for people; at most 80 columns."""
    parts = ", ".join(f"{name} {dollars(amount)}" for name, amount in most.items())
    return lines_of(f"cost: about {dollars(sum(most.values(), ZERO))} at the most, with nothing "
                   f"cached and answers at full length ({parts})") + price_lines(prices)


def price_lines(prices: Prices) -> list[str]:
    """The prices used and where they are from."""
    lines = []
    for rate in prices.rates:
        above = f" above {rate.above_tokens:,} tokens of input" if rate.above_tokens else ""
        cached = "not known" if rate.cached_usd is None else f"{exact(rate.cached_usd)}"
        write = "" if rate.write_usd is None else f", written to the cache {exact(rate.write_usd)}"
        lines += lines_of(f"USD per million tokens{above}: input {exact(rate.input_usd)}, cached "
                         f"{cached}{write}, output {exact(rate.output_usd)}")
    return lines + lines_of(f"prices {prices.source}")
