"""Prices of a model from PyPI's genai-prices, where that is installed; nothing is ever fetched.

The package brings its data with it. It can renew them over the network, but only when asked to,
which this file does not do.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from request_timing.costs.money import Prices, Rate

PACKAGE = "genai-prices"
# Prices that a request of text may have in that package, and that this tool can count.
COUNTED = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
# Others that such a request may have to pay as well: with one of them a bill would be wrong.
UNCOUNTED = ("requests_kcount", "output_reasoning_mtok", "output_citation_mtok", "input_mchars",
             "input_text_messages_kcount")


def listed_prices(url: str, model: str, at: datetime) -> Prices | None:
    """The prices of `model` at the endpoint `url` as in force at that time (UTC if naive).

    None where the package is not installed, is of a kind not known here, or knows no such
    provider or model, or knows fees that cannot be counted.
    """
    try:
        import genai_prices
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    # Whatever another version of the package has instead of these names, no price is known then.
    with contextlib.suppress(LookupError, AttributeError, TypeError):
        snapshot = get_snapshot()
        provider, found = snapshot.find_provider_model(model, None, None, url)
        at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        listed = found.get_prices(at)
        if any(getattr(listed, name, None) is not None for name in UNCOUNTED):
            return None
        values = {name: getattr(listed, name, None) for name in COUNTED}
        if values["input_mtok"] is None or values["output_mtok"] is None:
            return None
        newest = max((day for day in _dates(snapshot.providers) if day <= at.date()), default=None)
        dated = f", newest dated price {newest}" if newest else ""
        return Prices(rates=_rates(values), source=(
            f"of {provider.id} {found.id} at {at:%Y-%m-%d %H:%M} UTC, from {PACKAGE} "
            f"{genai_prices.__version__} (as installed{dated})"))
    return None


def _rates(values: dict[str, Any]) -> tuple[Rate, ...]:
    """A rate for each prompt length at which any of the prices changes."""
    starts = {0} | {tier.start for value in values.values() for tier in getattr(value, "tiers", ())}
    return tuple(
        Rate(above_tokens=start, input_usd=_price(values["input_mtok"], start) or Decimal(0),
             output_usd=_price(values["output_mtok"], start) or Decimal(0),
             cached_usd=_price(values["cache_read_mtok"], start),
             write_usd=_price(values["cache_write_mtok"], start))
        for start in sorted(starts))


def _price(value: Any, start: int) -> Decimal | None:
    """The price of prompts longer than `start`: that of the last step not above it."""
    if value is None:
        return None
    steps = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start]
    return Decimal(steps[-1] if steps else getattr(value, "base", value))


def _dates(providers: Any) -> list[date]:
    """From when each dated price in the package's data holds: the only dates that it has."""
    return [price.constraint.start_date for provider in providers for model in provider.models
            if isinstance(model.prices, list) for price in model.prices
            if hasattr(price.constraint, "start_date")]
