"""What requests cost: prices per million tokens, a plan's bound, and where --max-cost stops.

Pure functions, exact decimals. Where something is not known (how many tokens were cached, what a
cached token costs) an amount is a range that holds the true one, never a guess. USD throughout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

from request_timing.errors import UserError
from request_timing.records.sample import Sample

ZERO = Decimal(0)
TOKENS_PRICED_LOG10 = 6  # prices are per million tokens
# UTF-8 has at most four bytes a character, and no tokenizer makes more than a token of a byte.
TOKENS_PER_CHAR_AT_MOST = 4
HEAD_TOKENS_AT_MOST = 200  # of a small request before a run, beside its text


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """USD per million tokens for a prompt of more than `above_tokens`; None is not known.

    `write_usd` is what an input token costs that goes into the provider's cache, where that has a
    price of its own: nothing reports how many do, so it makes a range.
    """

    input_usd: Decimal
    output_usd: Decimal
    cached_usd: Decimal | None = None
    write_usd: Decimal | None = None
    above_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The rates of a model, by rising prompt length, and where they are from, in one line."""

    rates: tuple[Rate, ...]
    source: str

    def at(self, prompt_tokens: int) -> Rate:
        """The rate of a prompt: the whole of it pays that of the highest step it is above."""
        return [r for r in self.rates if r.above_tokens < prompt_tokens or not r.above_tokens][-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """An amount between two bounds, which are equal where it is known exactly."""

    low_usd: Decimal = ZERO
    high_usd: Decimal = ZERO

    def __add__(self, other: Cost) -> Cost:
        return Cost(low_usd=self.low_usd + other.low_usd, high_usd=self.high_usd + other.high_usd)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(low_usd=self.low_usd - other.high_usd, high_usd=self.high_usd - other.low_usd)

    def to_json(self) -> dict[str, str]:
        """Decimal strings, since a JSON number would be read as a binary fraction."""
        return {"low_usd": exact(self.low_usd), "high_usd": exact(self.high_usd)}

    def __str__(self) -> str:
        if self.low_usd == self.high_usd:
            return dollars(self.low_usd)
        # Outwards, so that the range shown holds the true amount too.
        return f"{dollars(self.low_usd, ROUND_FLOOR)} to {dollars(self.high_usd, ROUND_CEILING)}"


def usd(text: str) -> Decimal:
    """An amount of a flag, for argparse: a decimal number from 0 up, of at most nine digits on
    either side of the point, so that no product or sum of a run is ever rounded."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount < 10**9 or amount != round(amount, 9):
        raise argparse.ArgumentTypeError(f"expected an amount such as 0.28, found {text!r}")
    return abs(amount)  # no minus zero


def from_flags(
    price_in: Decimal | None, price_cached: Decimal | None, price_out: Decimal | None
) -> Prices | None:
    """The prices that flags give; None where none does. Raises UserError for half of them."""
    if price_in is None and price_cached is None and price_out is None:
        return None
    if price_in is None or price_out is None:
        flag = "--price-in" if price_in is None else "--price-out"
        raise UserError(f"expected both --price-in and --price-out, found no {flag}; add it (USD "
                      "per million tokens)")
    return Prices(source="from the flags", rates=(
        Rate(input_usd=price_in, cached_usd=price_cached, output_usd=price_out),))


def request_cost(
    prices: Prices, prompt_tokens: int, cached_tokens: int | None, output_tokens: int
) -> Cost:
    """What one request costs; a range where its cached tokens or a price is not known.

    More cached tokens than the prompt has is a count that means nothing: unknown.
    """
    rate = prices.at(prompt_tokens)
    known = cached_tokens is not None and cached_tokens <= prompt_tokens
    shares = (cached_tokens or 0,) if known else (0, prompt_tokens)
    cached = (ZERO, rate.input_usd) if rate.cached_usd is None else (rate.cached_usd,) * 2
    fresh = sorted((rate.input_usd, rate.input_usd if rate.write_usd is None else rate.write_usd))

    def bound(end: int, choose: Callable[[Iterable[Decimal]], Decimal]) -> Decimal:
        # Linear in the cached tokens, so the extremes lie at the ends of their range.
        return millionth(choose(n * cached[end] + (prompt_tokens - n) * fresh[end] for n in shares)
                         + output_tokens * rate.output_usd)

    return Cost(low_usd=bound(0, min), high_usd=bound(1, max))


def millionth(amount: Decimal) -> Decimal:
    """Tokens times a price per million of them, as an amount; exact."""
    return amount.scaleb(-TOKENS_PRICED_LOG10)


def billed_output_tokens(sample: Sample) -> int | None:
    """Output tokens with thinking, which is within them (`openai_stream` adds what was counted
    beside); where more thinking than output is reported it cannot be, and is added."""
    output, thinking = sample.output_tokens, sample.reasoning_tokens or 0
    return output + thinking if output is not None and thinking > output else output


def sample_cost(sample: Sample, prices: Prices) -> Cost | None:
    """What one sample cost; None where its tokens were not reported."""
    output = billed_output_tokens(sample)
    if sample.prompt_tokens is None or output is None:
        return None
    return request_cost(prices, sample.prompt_tokens, sample.cached_tokens, output)


def upper_bound(prices: Prices, input_tokens: int, output_tokens: int) -> Decimal:
    """The most that up to so many tokens can cost, whatever is cached, and at the dearest rate that
    they would reach in one prompt."""
    reached = [r for r in prices.rates if r.above_tokens < input_tokens or not r.above_tokens]
    return millionth(max(
        input_tokens * max(r.input_usd, r.cached_usd or ZERO, r.write_usd or ZERO)
        + output_tokens * r.output_usd for r in reached))


def spent_at_most(samples: Iterable[Sample], prices: Prices, *,
                  tokens_per_char: int = TOKENS_PER_CHAR_AT_MOST) -> Decimal:
    """The most that these requests can have cost, those without usage too.

    Such a one is taken to have as many tokens as its characters can make (1 each for ASCII text:
    say so with `tokens_per_char`) and to have written all that it was allowed to.
    """
    most = ZERO
    for sample in samples:
        cost = sample_cost(sample, prices)
        most += upper_bound(prices, sample.prompt_tokens or tokens_per_char * sample.prompt_chars,
                            sample.asked_output_tokens) if cost is None else cost.high_usd
    return most


def stop_line(max_cost: Decimal, spent: Decimal, next_request: Decimal) -> str | None:
    """Why --max-cost ends the run before the next request; None where that may be sent.

    Both amounts are upper bounds, so that the limit holds but for what the first request of an
    endpoint writes beyond what it was asked to.
    """
    if spent + next_request <= max_cost:
        return None
    return (f"stopped by --max-cost {dollars(max_cost)}: up to {dollars(spent)} spent, and the "
            f"next request could cost {dollars(next_request)}")


def prices_json(prices: Prices) -> dict[str, Any]:
    """The prices as JSON: USD per million tokens as decimal strings."""
    def text(amount: Decimal | None) -> str | None:
        return None if amount is None else exact(amount)

    return {"source": prices.source, "usd_per_million_tokens": [
        {"above_prompt_tokens": r.above_tokens, "input": text(r.input_usd),
         "cached_input": text(r.cached_usd), "cache_write": text(r.write_usd),
         "output": text(r.output_usd)} for r in prices.rates]}


def prices_from_json(data: Any) -> Prices | None:
    """What `prices_json` made; None of None."""
    if data is None:
        return None

    def amount(text: str | None) -> Decimal | None:
        return None if text is None else Decimal(text)

    return Prices(source=data["source"], rates=tuple(
        Rate(above_tokens=row["above_prompt_tokens"], input_usd=Decimal(row["input"]),
             output_usd=Decimal(row["output"]), cached_usd=amount(row["cached_input"]),
             write_usd=amount(row["cache_write"]))
        for row in data["usd_per_million_tokens"]))


def exact(amount: Decimal) -> str:
    """All the digits of an amount and no more: 0.00141, 200, 0."""
    return f"{amount.normalize():f}"


def dollars(amount: Decimal, rounding: str = ROUND_HALF_EVEN) -> str:
    """USD to the cent, or to three figures where those are smaller: $1,234.50, $0.0123, $0."""
    if not amount:
        return "$0"
    shown = amount.quantize(Decimal(1).scaleb(min(-2, amount.adjusted() - 2)), rounding)
    return f"{'-' if amount < 0 else ''}${abs(shown):,f}"
