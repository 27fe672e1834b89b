"""Figures as people read them: counts, seconds as milliseconds, shares, intervals.

Pure functions that return text; what is unknown is a dash in a cell.
"""

from __future__ import annotations

UNKNOWN = "-"
MS_PER_S = 1000.0


def count(value: float | None) -> str:
    """A count of tokens: 51,222."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds: 14,210, 183, 5.46."""
    return UNKNOWN if seconds is None else significant(seconds * MS_PER_S)


def percent(share: float, *, fixed: bool = False) -> str:
    """A share in a sentence: 98.7 %, 98 %; fixed: with a place always, 98.0 %."""
    return f"{100 * share:.1f} %" if fixed else f"{round(100 * share, 1):g} %"


def percent_cell(share: float | None) -> str:
    """A share in a column, where nothing stands between number and sign: 98.0%."""
    return UNKNOWN if share is None else percent(share, fixed=True).replace(" ", "")


def between(interval: tuple[float, float] | None, scale: float = 1.0) -> str:
    """An interval behind its value: (95 %: 1.20 to 3.40), or why there is none."""
    if interval is None:
        return "(too few points for an interval)"
    low, high = (significant(scale * bound) for bound in interval)
    return f"(95 %: {low} to {high})"


def significant(value: float) -> str:
    """Three figures, or all of those before the decimal point: 14,210, 18.0, 0.130, 0."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"
