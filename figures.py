"""Figures as people read them: the one place where seconds become milliseconds."""

from __future__ import annotations

UNKNOWN = "-"
MS_PER_S = 1000.0


def count(value: float | None) -> str:
    """A count of tokens: 51,222."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds: 14,210, 183, 5.46."""
    return UNKNOWN if seconds is None else figures(seconds * MS_PER_S)


def figures(value: float) -> str:
    """Three figures, or all of those before the decimal point: 14,210, 18.0, 0.130, 0."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"
