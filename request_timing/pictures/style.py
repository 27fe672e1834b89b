"""The look of every panel: font, colours, marks and scales; and what empty axes say.

matplotlib is imported only where something is drawn; `plot.py` says what to do without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from request_timing.findings.measures import AS_SENT, COLD, WHAT_IF

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT = "DejaVu Sans"  # comes with matplotlib: the same letters on every machine
TITLE_POINTS, TEXT_POINTS = 10.0, 8.5
# Okabe and Ito's colours, which the colour-blind can tell apart; chosen of them by luminance, so
# that grey paper can too. Marks and hatching differ as well.
COLOURS = {"append": "#0072B2", "prepend": "#E69F00"}
MARKS = {"append": "o", "prepend": "s"}
HATCHES = {"append": "", "prepend": "///"}
# A replay has other arms in the same picture's language: broken is orange, mended is blue.
FILLS = COLOURS | {AS_SENT: COLOURS["prepend"], WHAT_IF: COLOURS["append"], COLD: "#F7F7F7"}
FILL_HATCHES = HATCHES | {AS_SENT: HATCHES["prepend"], WHAT_IF: HATCHES["append"], COLD: "..."}
DASHES: dict[str, Any] = {"append": "--", "prepend": ":", AS_SENT: ":", WHAT_IF: "--", COLD: "-."}
REUSED_COLOUR, INK, FAINT = "#DDDDDD", "#1A1A1A", "#767676"
STYLE: dict[str, Any] = {
    "font.family": FONT, "font.size": 9, "axes.titlesize": TITLE_POINTS,
    "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.labelsize": TEXT_POINTS, "xtick.labelsize": TEXT_POINTS,
    "ytick.labelsize": TEXT_POINTS, "legend.fontsize": TEXT_POINTS,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.edgecolor": FAINT, "text.color": INK, "axes.labelcolor": INK, "hatch.linewidth": 0.6,
    "legend.frameon": False, "text.parse_math": False,  # a model's name may hold dollars
    "svg.fonttype": "path", "svg.hashsalt": "plot",
}


def say_nothing(axes: Axes) -> None:
    """Axes that say that there is nothing to draw."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "no figure is known: nothing to draw", transform=axes.transAxes,
              ha="center", va="center", color=FAINT)


def logarithmic(axes: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis around the values, with a tick at 1, 2, 5 or, over many decades, at 1."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = min(values), max(values)
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(low / 1.4, high * 1.4)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < low * 300 else (1,)))
    axis.set_minor_formatter(NullFormatter())
    thousands(axis)


def thousands(axis: Any) -> None:
    """Numbers with commas, and no more digits than they have."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
