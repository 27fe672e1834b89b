"""What a picture's panels are made of: points, bars, rows, lanes and charts, as data and words.

Pure data and functions; `panels.py` and its neighbours make panels of a run, `drawing.py` draws
them. Seconds, tokens and shares; a figure that is unknown is None in a row or a lane, and neither
a point nor a bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from request_timing.formats import UNKNOWN, count, ms, percent
from request_timing.records.sample import Sample
from request_timing.report.remarks import inseparable
from request_timing.stats.fits import Curve, Line

FROM_TURN = 2  # medians are of the turns that had an earlier one to reuse
WIDE = 10  # a range this many times its smallest value is drawn on a logarithmic scale
SENSIBLE = 1e12  # no token count and no time is larger; a file may say anything
TIME, TOKENS, SHARE = "ms", "tokens", "share"  # what a value is: seconds are shown in ms

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Seconds against tokens, a point a request; `said` are the lines beneath."""

    name: str
    title: str
    x_label: str
    y_label: str
    points: tuple[tuple[float, float], ...]
    line: Line | None
    curve: Curve | None
    is_log: bool
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One turn of one arm: `height` on top of `base`, in tokens or seconds."""

    arm: str
    turn: int
    base: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """*cache* or a replay turn by turn, arms side by side.

    Of a server that counts, tokens recomputed (`height`) on top of tokens reused (`base`); else
    TTFT in seconds. gaps: (arm, turn) without a figure; is_labelled: few enough for a number each.
    """

    name: str
    title: str
    y_label: str
    is_tokens: bool
    arms: tuple[str, ...]
    bars: tuple[Bar, ...]
    gaps: tuple[tuple[str, int], ...]
    medians: dict[str, float | None]
    is_labelled: bool
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one arm over the turns, in seconds; median None: nothing is known."""

    figure: str
    arm: str
    values: tuple[float, ...]
    median: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """TTFT and inter-token latency of the arms on one scale."""

    name: str
    title: str
    rows: tuple[Row, ...]
    is_log: bool
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row: a bar of `value` in one of the panel's kinds, a mark, and a word beside it.

    None is not known; of a mark, or that there is none.
    """

    label: str
    kind: str
    value: float | None
    mark: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Horizontal bars, a row each. unit: of value and mark; mark_label: what the mark is."""

    name: str
    title: str
    x_label: str
    unit: str
    kinds: tuple[str, ...]
    mark_label: str
    lanes: tuple[Lane, ...]
    is_log: bool
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one kind, and the line through their medians, if there is one.

    style: which of the drawing's marks and colours; the same for a kind in every picture.
    """

    label: str
    style: int
    points: tuple[Point, ...]
    path: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Points against tokens. unit: of y; fit: a line with its label; at: an x that was found."""

    name: str
    title: str
    x_label: str
    y_label: str
    unit: str
    series: tuple[Series, ...]
    fit: tuple[str, tuple[Point, ...]] | None
    at: tuple[str, float] | None
    is_log: bool
    said: tuple[str, ...]


Panel: TypeAlias = Points | Bars | Phases | Lanes | Chart


def missing_words(samples: Sequence[Sample], drawn: int) -> list[str]:
    """How many samples are not in the picture, and why; nothing where all are."""
    failed = sum(s.error is not None for s in samples)
    left_out = sum(s.error is None and not s.counts for s in samples)
    unknown = len(samples) - failed - left_out - drawn
    parts = [f"{n} {why}" for n, why in (
        (failed, "failed"), (left_out, "left out (not cold, or cut)"),
        (unknown, "without a known figure")) if n]
    return [f"not drawn, of {len(samples)} requests: {', '.join(parts)}"] if parts else []


def clock_words(samples: Sequence[Sample]) -> list[str]:
    """What the clock could not tell apart, a line each."""
    return [" ".join(text.split()) for text in inseparable(samples)]


def usable(value: float | None) -> float | None:
    """A figure that can be drawn; None for one that is unknown, below zero or beyond any sense.

    Strict JSON still allows 1e999, which is an infinity here.
    """
    return value if value is not None and 0 <= value <= SENSIBLE else None


def is_wide(values: Sequence[float]) -> bool:
    """Whether values ask for a logarithmic scale, and can be shown on one."""
    return bool(values) and min(values) > 0 and max(values) >= WIDE * min(values)


def shown_value(value: float, is_tokens: bool) -> str:
    """A bar's number as the tables have it: tokens, or milliseconds."""
    return count(value) if is_tokens else ms(value)


def written(value: float | None, unit: str) -> str:
    """A value as the tables have it: tokens, milliseconds of seconds, or a share."""
    if value is None:
        return UNKNOWN
    return percent(value) if unit == SHARE else ms(value) if unit == TIME else count(value)


def trace(fit: Line | Curve, low: float, high: float, *, is_log: bool, steps: int = 100
          ) -> list[tuple[float, float]]:
    """Points of a fit between two x, evenly spaced on the axis; on a logarithmic one only those
    above zero."""
    found = []
    for step in range(steps + 1):
        part = step / steps
        x = low * (high / low) ** part if is_log else low + (high - low) * part
        y = fit.at(x) if isinstance(fit, Curve) else fit.intercept + fit.slope * x
        if y > 0 or not is_log:
            found.append((x, y))
    return found


def known_points(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[Point, ...]:
    """The pairs of which both figures are known."""
    return tuple((known_x, known_y) for x, y in pairs
                 if (known_x := usable(x)) is not None and (known_y := usable(y)) is not None)


def unknown_lanes(lanes: Sequence[Lane]) -> list[str]:
    """How many lanes have no bar; nothing where all have one."""
    unknown = sum(lane.value is None for lane in lanes)
    return [f"no figure: {unknown} of {len(lanes)} rows"] if unknown else []


def left_out(samples: Sequence[Sample]) -> list[str]:
    """How many samples failed or do not count; nothing where all count."""
    return missing_words(samples, sum(s.counts for s in samples))
