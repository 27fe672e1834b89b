"""Lanes and charts drawn on matplotlib's axes, in the style of `style.py`.

matplotlib is imported only where something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from request_timing.formats import MS_PER_S
from request_timing.pictures.panel_parts import SHARE, TIME, Chart, Lanes, written
from request_timing.pictures.style import COLOURS, INK, logarithmic, say_nothing, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's, four that differ in grey too; marks and dashes differ as well.
SERIES_COLOURS = (COLOURS["append"], COLOURS["prepend"], INK, "#F0E442")
SERIES_MARKS = ("o", "s", "^", "D")
SERIES_DASHES = ("-", "--", ":", "-.")
LANE_COLOURS = (COLOURS["prepend"], COLOURS["append"])
LANE_HATCHES = ("///", "")
LANE_MARKS = ("s", "o")
HIGHEST_ON_SHARES = 1.05
MOST_TICKS, SPARSE_FROM = 5, 100


def draw_more(axes: Axes, panel: Lanes | Chart) -> None:
    """Draw a panel of either kind, but for its title and the lines beneath."""
    if isinstance(panel, Lanes):
        _draw_lanes(axes, panel)
    else:
        _draw_chart(axes, panel)


def _draw_lanes(axes: Axes, panel: Lanes) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator

    scale = MS_PER_S if panel.unit == TIME else 100.0 if panel.unit == SHARE else 1.0
    unit = {TIME: " (ms)", SHARE: " (%)"}.get(panel.unit, "")
    shown = [v * scale for lane in panel.lanes for v in (lane.value, lane.mark) if v is not None]
    if not shown:
        say_nothing(axes)
        return
    for n, kind in enumerate(panel.kinds):
        mine = [(place, lane.value * scale) for place, lane in enumerate(panel.lanes)
                if lane.kind == kind and lane.value is not None]
        places, values = [place for place, _ in mine], [value for _, value in mine]
        colour = LANE_COLOURS[n] if len(panel.kinds) > 1 else LANE_COLOURS[1]
        if panel.is_log:  # a bar has no foot on a logarithmic scale
            axes.plot(values, places, LANE_MARKS[n], color=colour, markersize=7,
                      markeredgecolor=INK, markeredgewidth=0.7, label=kind)
        else:
            hatch = LANE_HATCHES[n] if len(panel.kinds) > 1 else ""
            axes.barh(places, values, 0.7, color=colour, edgecolor=INK, hatch=hatch,
                      linewidth=0.6, label=kind)
    marks = [(lane.mark * scale, place) for place, lane in enumerate(panel.lanes)
             if lane.mark is not None]
    if marks and not panel.is_log:  # a rim, so that it shows on a dark bar
        axes.plot([x for x, _ in marks], [y for _, y in marks], "|", color="white",
                  markersize=13, markeredgewidth=4.5)
    if marks:
        axes.plot([x for x, _ in marks], [y for _, y in marks], "|", color=INK, markersize=12,
                  markeredgewidth=2, label=panel.mark_label)
    if panel.is_log:
        logarithmic(axes, "x", shown)
        # The words on both sides leave room for a few ticks.
        few = (1,) if max(shown) > SPARSE_FROM * min(shown) else (1, 3)
        axes.xaxis.set_major_locator(LogLocator(subs=few))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
        highest = 100 * HIGHEST_ON_SHARES if panel.unit == SHARE else max(shown) * 1.05 or 1
        axes.set_xlim(0, max(highest, max(shown)))
        thousands(axes.xaxis)
    gaps = [place for place, lane in enumerate(panel.lanes) if lane.value is None]
    if gaps:
        axes.plot([axes.get_xlim()[0]] * len(gaps), gaps, "x", color=INK, markersize=5,
                  clip_on=False, label="no figure")
    labels = [lane.label for lane in panel.lanes]
    axes.set_yticks(range(len(labels)), labels)
    for place, lane in enumerate(panel.lanes):
        axes.text(1.01, place, f"{written(lane.value, panel.unit)}  {lane.note}", va="center",
                  transform=axes.get_yaxis_transform(), fontsize=8.0)
    axes.set_ylim(len(labels) - 0.4, -0.6 - 0.16 * len(labels))  # the legend stands on top
    axes.set_xlabel(f"{panel.x_label}{unit if '(ms)' not in panel.x_label else ''}"
                    f"{', logarithmic' if panel.is_log else ''}")
    axes.legend(loc="upper left", ncols=4, borderaxespad=0.2, columnspacing=1.2)


def _draw_chart(axes: Axes, panel: Chart) -> None:
    points = [point for one in panel.series for point in one.points]
    axes.set_xlabel(panel.x_label)
    if not points:
        say_nothing(axes)
        return
    scale = MS_PER_S if panel.unit == TIME else 1.0
    for one in panel.series:
        if one.path:
            axes.plot([x for x, _ in one.path], [y * scale for _, y in one.path],
                      SERIES_DASHES[one.style], color=INK, linewidth=1.0)
        axes.plot([x for x, _ in one.points], [y * scale for _, y in one.points],
                  SERIES_MARKS[one.style], color=SERIES_COLOURS[one.style], markersize=6.5,
                  markeredgecolor=INK, markeredgewidth=0.7, alpha=0.85, label=one.label)
    if panel.fit is not None:
        label, path = panel.fit
        axes.plot([x for x, _ in path], [y * scale for _, y in path], "-", color=INK,
                  linewidth=1.4, label=label)
    if panel.at is not None:
        label, at = panel.at
        axes.axvline(at, color=INK, linestyle="--", linewidth=1.2, label=label)
    unit = " (ms)" if panel.unit == TIME else ""
    axes.set_ylabel(f"{panel.y_label}{unit}")
    _scales(axes, panel, [x for x, _ in points], [y * scale for _, y in points])
    # Lines over many decades leave no corner free but the one that _scales made.
    axes.legend(loc="upper left" if any(one.path for one in panel.series) else "best")


def _scales(axes: Axes, panel: Chart, xs: Sequence[float], ys: Sequence[float]) -> None:
    if not panel.is_log:
        axes.set_xlim(0, (max(xs) or 1) * 1.05)
        axes.set_ylim(0, (max(ys) or 1) * 1.12)
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        return
    logarithmic(axes, "x", xs)
    if min(ys) > 0:
        logarithmic(axes, "y", ys)
        axes.set_ylim(min(ys) / 1.4, max(ys) * (max(ys) / min(ys)) ** 0.35 * 1.4)  # the legend
        return
    _from_zero(axes, ys)


def _from_zero(axes: Axes, ys: Sequence[float]) -> None:
    """A logarithmic scale that has a place for zero beneath its smallest power of ten."""
    from matplotlib.ticker import FixedLocator, NullLocator

    above = [y for y in ys if y > 0]
    if not above:
        axes.set_ylim(-0.05, 1)
        axes.set_yticks([0])
        return
    least = 1.0
    while least > min(above):
        least /= 10
    while least * 10 <= min(above):
        least *= 10
    scaled: Any = axes
    scaled.set_yscale("symlog", linthresh=least, linscale=0.6)
    ticks = [0.0]
    tick = least
    while tick <= max(above) * 1.4:
        ticks.append(tick)
        tick *= 10
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(-0.12 * least, max(above) * (max(above) / least) ** 0.4 * 1.6)
    thousands(axes.yaxis)
