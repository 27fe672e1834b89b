"""Panels drawn on matplotlib's axes, with words that do not overlap.

matplotlib is imported only where something is drawn; `plot.py` says what to do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from request_timing.errors import one_line
from request_timing.findings.measures import REPLAYED
from request_timing.formats import MS_PER_S
from request_timing.pictures.drawing_more import draw_more
from request_timing.pictures.panel_parts import (
    FROM_TURN,
    Bars,
    Lanes,
    Panel,
    Phases,
    Points,
    shown_value,
    trace,
)
from request_timing.pictures.style import (
    COLOURS,
    DASHES,
    FAINT,
    FILL_HATCHES,
    FILLS,
    FONT,
    INK,
    MARKS,
    REUSED_COLOUR,
    TEXT_POINTS,
    TITLE_POINTS,
    logarithmic,
    say_nothing,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ft2font import FT2Font

POINTS_PER_INCH = 72
SLACK = 0.95  # of a width: the renderer's hinting may widen every letter a little
FINE = 16  # text is measured so many times larger: hinting rounds each letter to whole pixels
SIDE_INCHES, WORDS_INCHES = 1.0, 1.7  # of a panel, beside its axes: numbers, or words


def draw_panel(axes: Axes, panel: Panel, inches: float) -> None:
    """Draw a panel, its title and the lines beneath it on axes that have so many inches."""
    if isinstance(panel, Points):
        _draw_points(axes, panel)
    elif isinstance(panel, Bars):
        _draw_bars(axes, panel)
    elif isinstance(panel, Phases):
        _draw_phases(axes, panel)
    else:
        draw_more(axes, panel)
    has_words = isinstance(panel, Phases | Lanes)
    side = WORDS_INCHES if has_words else SIDE_INCHES
    axes.set_title(wrapped(panel.title, inches - side, TITLE_POINTS, bold=True), pad=8)
    said = "\n".join(wrapped(line, inches - side) for line in panel.said)
    axes.set_xlabel(f"{axes.get_xlabel()}\n{said}" if said else axes.get_xlabel())
    axes.grid(axis="x" if has_words else "y", color="#DDDDDD", linewidth=0.6)


def _draw_points(axes: Axes, panel: Points) -> None:
    axes.set_xlabel(panel.x_label)
    if not panel.points:
        say_nothing(axes)
        return
    xs, ys = zip(*panel.points, strict=True)
    fits = ((panel.line, "line (median slope)", FAINT if panel.curve else INK,
             "--" if panel.curve else "-"), (panel.curve, "a + b·x + c·x²", INK, "-"))
    for fit, label, colour, dashes in fits:
        if fit is not None:
            path = trace(fit, min(xs), max(xs), is_log=panel.is_log)
            axes.plot([x for x, _ in path], [y * MS_PER_S for _, y in path], dashes, color=colour,
                      linewidth=1.4, label=label)
    axes.plot(xs, [y * MS_PER_S for y in ys], "o", markersize=6, markerfacecolor="none",
              markeredgewidth=1.4, color=COLOURS["append"], label="one request")
    axes.set_ylabel(f"{panel.y_label} (ms)")
    if panel.is_log:
        logarithmic(axes, "x", xs)
        logarithmic(axes, "y", [y * MS_PER_S for y in ys])
    else:
        axes.set_xlim(0, (max(xs) or 1) * 1.05)
        axes.set_ylim(0, (max(ys) * MS_PER_S or 1) * 1.12)
        thousands(axes.xaxis)
        thousands(axes.yaxis)
    axes.legend(loc="lower right")


def _draw_bars(axes: Axes, panel: Bars) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("turn")
    if not panel.bars:
        say_nothing(axes)
        return
    top = max(bar.base + bar.height for bar in panel.bars)
    scale, unit = (1.0, "") if panel.is_tokens else (MS_PER_S, " (ms)")
    width = 0.8 / len(panel.arms)
    offset = {arm: (n - (len(panel.arms) - 1) / 2) * width for n, arm in enumerate(panel.arms)}
    turns = [bar.turn for bar in panel.bars] + [turn for _, turn in panel.gaps]
    what = "recomputed" if panel.is_tokens else "TTFT"
    edge = 0.6 if panel.is_labelled else 0.0
    for arm in panel.arms:
        mine = [bar for bar in panel.bars if bar.arm == arm]
        xs = [bar.turn + offset[arm] for bar in mine]
        axes.bar(xs, [bar.height * scale for bar in mine], width, [bar.base for bar in mine],
                 color=FILLS[arm], hatch=FILL_HATCHES[arm], edgecolor=INK, linewidth=edge,
                 label=f"{REPLAYED.get(arm, arm)}: {what}")
        if panel.is_tokens:
            axes.bar(xs, [bar.base for bar in mine], width, color=REUSED_COLOUR, edgecolor=FAINT,
                     linewidth=edge, label="reused" if arm == panel.arms[-1] else None)
        elif (middle := panel.medians[arm]) is not None:
            axes.hlines(middle * scale, FROM_TURN - 0.5, max(turns) + 0.5, colors=INK,
                        linestyles=DASHES[arm], linewidth=1,
                        label=f"{REPLAYED.get(arm, arm)}: median {shown_value(middle, False)} ms")
        for x, bar in zip(xs, mine, strict=True) if panel.is_labelled else ():
            axes.annotate(shown_value(bar.height, panel.is_tokens),
                          (x, bar.base + bar.height * scale), (0, 3), textcoords="offset points",
                          ha="center", va="bottom", rotation=90, fontsize=7.5,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    if panel.gaps:
        axes.plot([turn + offset[arm] for arm, turn in panel.gaps], [top * scale * 0.02] *
                  len(panel.gaps), "x", color=INK, markersize=5, label="no figure")
    axes.set_ylabel(panel.y_label + unit)
    axes.set_xlim(min(turns) - 0.6, max(turns) + 0.6)
    axes.set_ylim(0, (top * scale or 1) * (1.55 if panel.is_labelled else 1.35))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    thousands(axes.yaxis)
    axes.legend(loc="upper left", ncols=2)


def _draw_phases(axes: Axes, panel: Phases) -> None:
    drawn = [value for row in panel.rows for value in row.values]
    if not drawn:
        axes.set_xlabel("")
        say_nothing(axes)
        return
    labels = []
    places = [n + 0.35 * (n >= len(panel.rows) / 2) for n in range(len(panel.rows))]
    for place, row in zip(places, panel.rows, strict=True):
        axes.plot([value * MS_PER_S for value in row.values], [place] * len(row.values),
                  MARKS[row.arm], color=COLOURS[row.arm], markersize=7, alpha=0.75,
                  markeredgecolor=INK, markeredgewidth=0.7)
        if row.median is not None:
            axes.plot([row.median * MS_PER_S], [place], "|", color=INK, markersize=26,
                      markeredgewidth=2)
        known = "not known" if row.median is None else f"{shown_value(row.median, False)} ms"
        labels.append(f"{row.figure}\n{row.arm}: {known}")
    axes.set_yticks(places, labels)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    if panel.is_log:
        logarithmic(axes, "x", [value * MS_PER_S for value in drawn])
    else:
        axes.set_xlim(0, (max(drawn) * MS_PER_S or 1) * 1.1)
        thousands(axes.xaxis)
    axes.set_xlabel("ms, logarithmic" if panel.is_log else "ms")


def plain(text: str) -> str:
    """Text on one line, in letters that the font has; any other becomes a question mark."""
    font = _font(bold=False)
    return "".join(c if font.get_char_index(ord(c)) else "?" for c in one_line(text, limit=1000))


def wrapped(text: str, inches: float, points: float = TEXT_POINTS, *, bold: bool = False) -> str:
    """Text in lines that are at most so many inches wide in our font of that size."""
    font = _font(bold=bold)
    font.set_size(points, POINTS_PER_INCH * FINE)

    def fits(line: str) -> bool:
        font.set_text(line)
        return font.get_width_height()[0] / (64 * FINE) <= inches * POINTS_PER_INCH * SLACK

    lines = [""]
    for word in plain(text).split(" "):
        longer = f"{lines[-1]} {word}".lstrip(" ")
        if fits(longer):
            lines[-1] = longer
            continue
        lines.append("")
        for letter in word:  # a word wider than a line is broken where it has to be
            if not fits(lines[-1] + letter):
                lines.append("")
            lines[-1] += letter
    return "\n".join(line for line in lines if line)


def _font(*, bold: bool) -> FT2Font:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family=FONT, weight="bold" if bold else "normal")))
