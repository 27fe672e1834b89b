"""The picture of the experiments on shapes of reuse and on physics: readable, in grey too."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drawn_more import everything, six, unknown_to_all, ways
from drawn_runs import failed, local
from panel_samples import LADDER, NAMES
from picture_checks import assert_readable, command, luminance, said
from request_timing.findings.derive import to_text
from request_timing.findings.measures import of_experiment
from request_timing.pictures import plot
from request_timing.pictures.drawing_more import (
    LANE_HATCHES,
    LANE_MARKS,
    SERIES_COLOURS,
    SERIES_DASHES,
    SERIES_MARKS,
)
from request_timing.pictures.panels import panels
from request_timing.records.run import Run
from request_timing.records.sample import Sample


def never() -> Run:
    """A server that reuses nothing."""
    return six(cache="off")


def blocks() -> Run:
    """A server with a minimum and blocks, so that some prefixes are reused and some are not."""
    return six(minimum_tokens=512, block_tokens=128)


def all_failed() -> Run:
    """A run of which every request failed."""
    run = six()
    run.samples = [failed(s) for s in run.samples]
    return run


def with_samples(*samples: Sample) -> Run:
    """A complete run of these."""
    run = local(1)
    run.samples = list(samples)
    return run


def huge() -> Run:
    """Figures as wide as they come."""
    run = six()
    run.samples = [replace(s, arrivals_s=tuple(1e4 * a for a in s.arrivals_s), server=None)
                   for s in run.samples]
    return run


@pytest.mark.parametrize("make", [six, everything, unknown_to_all, never, blocks, all_failed, huge])
def test_no_words_overlap_or_leave_the_picture(make: Callable[[], Run]) -> None:
    assert_readable(plot.draw([make()]))


@pytest.mark.parametrize("make", [six, unknown_to_all, blocks, huge])
def test_no_words_overlap_in_a_panel_of_its_own(make: Callable[[], Run]) -> None:
    for panel in panels(make()):
        assert_readable(plot._single(panel))


@pytest.mark.parametrize("name", ["ladder", "minimum", "depth", "workload", "restore"])
def test_one_experiment_alone_is_readable(name: str) -> None:
    assert_readable(plot.draw([with_samples(*of_experiment(blocks().samples, name))]))


def test_two_runs_beside_each_other_are_readable() -> None:
    assert_readable(plot.draw([six(), local(3), with_samples(*LADDER)]))


def test_grey_paper_tells_the_series_apart() -> None:
    assert min(abs(luminance(a) - luminance(b))
               for a, b in itertools.combinations(SERIES_COLOURS, 2)) > 0.2
    assert [len(set(kinds)) for kinds in (SERIES_MARKS, SERIES_DASHES, LANE_HATCHES, LANE_MARKS)
            ] == [4, 4, 2, 2]


def test_the_words_of_the_picture() -> None:
    text = said(plot.draw([unknown_to_all()]))
    for words in ("INCOMPLETE: this run was stopped", "judged by the clock", "undecided",
                  "no figure: 4 of 8 rows", "no figure is known: nothing to draw",
                  "whole request (ms)", "decode, a token (ms)", "prompt tokens"):
        assert words in text
    whole = said(plot.draw([six()]))
    assert "INCOMPLETE" not in whole
    for words in ("identical repeat", "99.9 %  hit", "tokens recomputed", "shortest reused: 8",
                  "TTFT (ms), logarithmic", "share of the prompt (%)", "host memory"):
        assert words in whole


def test_a_bar_is_never_drawn_on_a_logarithmic_scale() -> None:
    figure = plot._single(next(p for p in panels(six()) if p.name == "pauses"))
    (axes,) = figure.axes
    assert (axes.get_xscale(), len(axes.patches)) == ("log", 0)


def test_zero_has_a_place_beside_many_decades() -> None:
    figure = plot._single(next(p for p in panels(blocks()) if p.name == "minimum"))
    (axes,) = figure.axes
    assert axes.get_yscale() == "symlog" and 0 in axes.get_yticks()
    assert axes.get_ylim()[0] < 0


def test_svg_panels_have_them_all() -> None:
    found = plot.svg_panels(six())
    assert list(found) == NAMES
    assert found == plot.svg_panels(six())
    for name, text in found.items():
        assert ET.fromstring(text).get("viewBox"), name
    assert 'aria-label="slot: RESTORED · host: RESTORED · disk: RESTORED"' in found["restore"]


def test_the_command_draws_a_run_of_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(to_text(with_samples(*ways())), encoding="utf-8")
    done = command(tmp_path, "run.json")
    assert (done.status, done.out, done.err) == (0, "run.png\n", "")
