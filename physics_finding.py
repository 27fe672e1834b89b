"""What an experiment says: a code for programs, plain words for people, and the figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one experiment says: a code for programs, words for people, and the figures."""

    experiment: str
    arm: str
    code: str
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)


def number(value: float) -> str:
    """Three figures, or all of those before the decimal point."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def percent(value: float) -> str:
    """A share: 98.7 %."""
    return f"{round(100 * value, 1):g} %"


def between(interval: Interval | None, scale: float = 1.0) -> str:
    """(95 %: 1.2 to 3.4), or why there is none."""
    if interval is None:
        return "(too few points for an interval)"
    return f"(95 %: {number(scale * interval[0])} to {number(scale * interval[1])})"
