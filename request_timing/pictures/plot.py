"""Draw saved runs as one picture: a panel or two for each experiment.

Reads nothing but the JSON of a run (or the journal that a killed one left).
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from request_timing.errors import UserError, one_line
from request_timing.pictures.drawing import draw_panel, plain, wrapped
from request_timing.pictures.panel_parts import Lanes, Panel
from request_timing.pictures.panels import caption, headline, panels
from request_timing.pictures.style import FAINT, STYLE, TEXT_POINTS
from request_timing.records.run import Run, load_run, sound

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SUFFIXES = (".png", ".svg")
MOST_RUNS = 12
BLOCK_INCHES = 13.0, 4.3  # a run's width, and the height of a row of its panels
ONE_PANEL_INCHES = 8.0  # the width where no run has more than one
PANEL_INCHES = 6.2, 4.3
HEAD_INCHES = 0.9
LANE_INCHES = 0.7  # of words beside a column, more than beside one of numbers
PIXELS_PER_INCH = 150
HEAD_POINTS = 14.0


def drawable(path: Path) -> Run:
    """A run that can be drawn. Raises UserError for a file without one."""
    with sound(path):
        run = load_run(path)
        shown = panels(run)
        if shown and any(sample.counts for sample in run.samples):
            headline(run, shown)  # values of another kind fail here and not in the drawing
            caption(run)
            return run
    raise UserError(f"{path}: expected a valid sample of an experiment that is drawn, found none "
                    f"among {len(run.samples)}; --show of the script that wrote it says why")


def check(out: Path) -> None:
    """Raises UserError where a picture could not be written there: before anything is measured."""
    if out.suffix.lower() not in SUFFIXES:
        raise UserError(f"{out}: expected a name that ends in {' or '.join(SUFFIXES)}, found "
                      f"{out.suffix or 'no suffix'!r}; give the picture another name")
    if not out.parent.is_dir():
        raise UserError(f"{out}: expected a folder {out.parent}, found none; make it first")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists, and a picture is never overwritten: give --out another "
                      "name, or move the file")
    _matplotlib()


def write(runs: Sequence[Run], out: Path) -> None:
    """Draw the runs into a new PNG or SVG; the same runs give the same bytes.

    Raises UserError where it cannot be written or is there already.
    """
    check(out)
    picture = _saved(lambda: draw(runs), out.suffix.lower()[1:])
    try:
        with out.open("xb") as file:
            file.write(picture)
    except FileExistsError:
        check(out)
    except OSError as error:
        raise UserError(
            f"{out}: cannot be written ({error.strerror}); give a path in a folder that "
            "exists and is writable"
        ) from None


def _saved(figure: Callable[[], Figure], kind: str) -> bytes:
    """A picture's bytes without a date; drawn and saved under our style alone."""
    from matplotlib import style

    told: dict[str, Any] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with style.context(["default", STYLE]):
        target = io.BytesIO()
        figure().savefig(target, format=kind, dpi=PIXELS_PER_INCH, metadata=told)
    return target.getvalue()


def svg_panels(run: Run) -> dict[str, str]:
    """Each panel of a run as an <svg> element to put into a page, by the panel's name.

    The element has a viewBox and no size: the page gives it a width. Raises UserError without
    matplotlib.
    """
    _matplotlib()
    return {panel.name: _inline(panel) for panel in panels(run)}


def _inline(panel: Panel) -> str:
    """The panel's name begins every id, so that a page can hold all panels of a run."""
    text = _saved(lambda: _single(panel), "svg").decode("utf-8")
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg"):], flags=re.S)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\1{panel.name}-", text)
    element, rest = text.split(">", 1)
    element = re.sub(r'\s(width|height)="[^"]*"', "", element)
    label = quoteattr(plain(panel.title))
    return f"{element} role=\"img\" aria-label={label}>{rest}".strip()


def draw(runs: Sequence[Run]) -> Figure:
    """The runs as one figure, a block a run. Raises UserError without matplotlib."""
    _matplotlib()
    from matplotlib import style

    shown = [panels(run) for run in runs]
    rows = [max(1, (len(found) + 1) // 2) for found in shown]
    heights = [HEAD_INCHES + BLOCK_INCHES[1] * n for n in rows]
    with style.context(["default", STYLE]):
        width = BLOCK_INCHES[0] if max(map(len, shown), default=0) > 1 else ONE_PANEL_INCHES
        figure = _blank(width, sum(heights))
        blocks = figure.subfigures(len(runs), 1, height_ratios=heights, squeeze=False)[:, 0]
        for block, run, found, n in zip(blocks, runs, shown, rows, strict=True):
            _draw_block(block, run, found, n, width)
    return figure


def _blank(width: float, height: float) -> Figure:
    """A figure of so many inches, outside pyplot: no window and no state that others share."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), facecolor="white",
                  layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))


def _single(panel: Panel) -> Figure:
    from matplotlib import style

    with style.context(["default", STYLE]):
        figure = _blank(*PANEL_INCHES)
        draw_panel(figure.subplots(), panel, PANEL_INCHES[0])
    return figure


def _draw_block(block: SubFigure, run: Run, shown: Sequence[Panel], rows: int, width: float
                ) -> None:
    text = wrapped(headline(run, shown), width - 0.3, HEAD_POINTS, bold=True)
    if not run.complete:
        text = f"{text}\nINCOMPLETE: this run was stopped before its end".strip()
    block.suptitle(text, fontsize=HEAD_POINTS, fontweight="bold", x=0.01, ha="left")
    block.supxlabel(wrapped(caption(run), width - 0.3), fontsize=TEXT_POINTS, color=FAINT,
                    x=0.01, ha="left")
    columns = min(2, len(shown))
    grid = block.add_gridspec(rows, max(1, columns))
    # The axes of a column begin together: beside the words of lanes all have less room.
    room = width / max(1, columns) - LANE_INCHES * any(isinstance(one, Lanes) for one in shown)
    odd = len(shown) % 2 and columns == 2  # then the first panel takes a whole row
    for place, panel in enumerate(shown, start=1 if odd else 0):
        row, column = divmod(place, max(1, columns))
        whole = odd and place == 1
        cell = grid[0, :] if whole else grid[row, column]
        draw_panel(block.add_subplot(cell), panel, width if whole else room)


def _matplotlib() -> None:
    """Raises UserError where matplotlib is not installed; keeps its log off the terminal."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"a picture needs matplotlib, found none ({one_line(error)}); run: python -m "
            "pip install -r requirements-plot.txt"
        ) from None
