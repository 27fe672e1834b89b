"""Checks of pictures, shared by tests of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from conftest import Outcome, run_script

TOLERATED_PIXELS = 0.5


def text_boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is really drawn, with its box in pixels.

    matplotlib also makes labels of ticks beyond an axis, and does not draw them.
    """
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")  # it is laid out now, and stays so
    drawn: list[Text] = []
    draw = Text.draw

    def noted(text: Text, renderer: RendererBase) -> None:
        drawn.append(text)
        draw(text, renderer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", noted)
        canvas.draw()
    return [(text.get_text(), text.get_window_extent(canvas.get_renderer()))
            for text in drawn if text.get_visible() and text.get_text().strip()]


def overlap(a: Bbox, b: Bbox) -> bool:
    sides = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return bool(min(sides) > TOLERATED_PIXELS)


def assert_readable(figure: Figure) -> None:
    boxes = text_boxes(figure)
    assert len(boxes) >= 3
    width, height = figure.canvas.get_width_height()
    for text, box in boxes:
        assert min(box.x0, box.y0) >= -1, text
        assert (box.x1 <= width + 1, box.y1 <= height + 1) == (True, True), text
    assert [(a, b) for (a, box), (b, other) in itertools.combinations(boxes, 2)
            if overlap(box, other)] == []


def luminance(colour: str) -> float:
    """Rec. 601, which is what a conversion to grey computes: 0 is black, 1 is white."""
    red, green, blue = (int(colour[n:n + 2], 16) / 255 for n in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def said(figure: Figure) -> str:
    return "\n".join(text for text, _ in text_boxes(figure))


def command(tmp_path: Path, *words: str) -> Outcome:
    return run_script("plot", *words, cwd=tmp_path, save=False)
