"""Prices from genai-prices: the package's own figures, nothing fetched, and None where unknown."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any

import pytest
from genai_prices import Usage, calc_price, data_snapshot

from request_timing.costs.money import Prices, request_cost
from request_timing.costs.price_list import listed_prices

AT = datetime(2026, 11, 29, 17, 42, tzinfo=UTC)
OPENAI, GOOGLE = "https://api.openai.com/v1", "https://generativelanguage.googleapis.com/v1beta"


def known(url: str, model: str, at: datetime = AT) -> Prices:
    prices = listed_prices(url, model, at)
    assert prices is not None
    return prices


@pytest.mark.parametrize(("url", "model", "prompt", "cached"), [
    (OPENAI, "gpt-4o", 100_000, 60_000), (OPENAI, "gpt-5", 1000, 0),
    ("https://api.x.ai/v1", "grok-4-fast", 90_000, 64), (GOOGLE, "gemini-2.5-pro", 199_999, 7),
    (GOOGLE, "gemini-2.5-pro", 200_000, 7), (GOOGLE, "gemini-2.5-pro", 200_001, 7),
    ("https://api.deepseek.com/v1", "deepseek-chat", 51_000, 50_944),
])
def test_a_bill_is_what_the_package_itself_would_say(
    url: str, model: str, prompt: int, cached: int
) -> None:
    theirs = calc_price(Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=33),
                        model, provider_api_url=url, genai_request_timestamp=AT)
    ours = request_cost(known(url, model), prompt, cached, 33)
    assert ours.low_usd == ours.high_usd == theirs.total_price


def test_the_source_names_package_model_and_dates() -> None:
    source = known(OPENAI, "gpt-4o").source
    assert source.startswith("of openai gpt-4o at 2026-11-29 17:42 UTC, from genai-prices "
                             f"{version('genai-prices')} (as installed, newest dated price 20")


@pytest.mark.parametrize(("url", "model"), [
    ("https://space.ai-builders.com/backend/v1", "deepseek"), ("http://127.0.0.1:8080/v1", "x"),
    (OPENAI, "no-such-model-at-all"), ("", ""), ("://", "gpt-4o"),
])
def test_an_unknown_provider_or_model_has_no_price(url: str, model: str) -> None:
    assert listed_prices(url, model, AT) is None


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = threading.active_count()
    assert known(OPENAI, "gpt-4o").rates
    assert threading.active_count() == before
    assert not data_snapshot.get_snapshot().from_auto_update


def test_without_the_package_no_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert listed_prices(OPENAI, "gpt-4o", AT) is None


@dataclass
class Step:
    start: int
    price: Decimal


@dataclass
class Stepped:
    base: Decimal
    tiers: list[Step]


class Listed:
    """A model of the package with prices of our own."""

    id = "m"
    prices: Any = ()

    def __init__(self, **prices: Any) -> None:
        self.listed = prices

    def get_prices(self, _: datetime) -> Listed:
        return self

    def __getattr__(self, name: str) -> Any:
        return self.listed.get(name)


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prices | None]:
    def ask(**prices: Any) -> Prices | None:
        class Snapshot:
            providers = ()

            def find_provider_model(self, *_: object) -> tuple[Any, Listed]:
                return Listed(), Listed(**prices)

        monkeypatch.setattr(data_snapshot, "_custom_snapshot", Snapshot())
        return listed_prices(OPENAI, "m", AT)

    return ask


def test_steps_of_different_prices_make_one_list_of_rates(
    listing: Callable[..., Prices | None]
) -> None:
    prices = listing(
        input_mtok=Stepped(Decimal(1), [Step(100, Decimal(2)), Step(300, Decimal(3))]),
        output_mtok=Stepped(Decimal(5), [Step(200, Decimal(6))]), cache_read_mtok=Decimal("0.1"))
    assert prices is not None
    assert [(r.above_tokens, r.input_usd, r.output_usd, r.cached_usd, r.write_usd)
            for r in prices.rates] == [
        (above, Decimal(price_in), Decimal(price_out), Decimal("0.1"), None)
        for above, price_in, price_out in ((0, 1, 5), (100, 2, 5), (200, 2, 6), (300, 3, 6))]


def test_fees_that_cannot_be_counted_and_half_a_price_are_no_price(
    listing: Callable[..., Prices | None]
) -> None:
    assert listing(input_mtok=Decimal(1), output_mtok=Decimal(2)) is not None
    assert listing(input_mtok=Decimal(1)) is None
    assert listing(input_mtok=Decimal(1), output_mtok=Decimal(2),
                   requests_kcount=Decimal(5)) is None
