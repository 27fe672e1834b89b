"""Shared by tests: FLAT, NO_CACHED, STEPPED, d."""

from __future__ import annotations

from decimal import Decimal

from request_timing.costs.money import (
    Prices,
    Rate,
)


def d(text: str) -> Decimal:
    return Decimal(text)


FLAT = Prices(source="from the flags", rates=(
    Rate(input_usd=d("0.28"), cached_usd=d("0.028"), output_usd=d("0.42")),))
NO_CACHED = Prices(source="x", rates=(Rate(input_usd=d("2"), output_usd=d("8")),))
STEPPED = Prices(source="x", rates=(
    Rate(input_usd=d("1.25"), cached_usd=d("0.125"), output_usd=d("10")),
    Rate(input_usd=d("2.5"), cached_usd=d("0.25"), output_usd=d("15"), above_tokens=200_000)))
