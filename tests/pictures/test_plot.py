"""The picture itself: no words overlap, grey tells the arms apart, and every fault is one line."""

from __future__ import annotations

import itertools
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from conftest import ROOT, assert_one_line, run_script
from drawn_runs import cloud, failed, local, only, outside, replayed, uncounted
from picture_checks import (
    assert_readable,
    command,
    luminance,
    said,
)
from request_timing.cli import saved_files
from request_timing.errors import UserError
from request_timing.findings.derive import to_text
from request_timing.pictures import plot
from request_timing.pictures.drawing import plain, wrapped
from request_timing.pictures.panels import panels
from request_timing.pictures.style import (
    COLOURS,
    FILL_HATCHES,
    FILLS,
    HATCHES,
    MARKS,
    REUSED_COLOUR,
)
from request_timing.records.run import Run, load_run

SAVED = sorted((ROOT / "sample_output").glob("*.json"))
LONG_NAME = {"model": "W" * 300, "url": "https://gateway.example:8443/v1"}
def broken(turns: int) -> Run:
    """An incomplete cloud run without usage, of a long name, in which every third turn failed."""
    run = cloud(turns)
    run.complete, run.endpoint = False, LONG_NAME
    run.samples = [failed(s) if s.experiment == "cache" and s.turn % 3 == 0 else uncounted(s)
                   for s in run.samples]
    return run


def slow(turns: int) -> Run:
    """A run with figures as wide as they come."""
    run = local(turns)
    run.samples = [replace(s, arrivals_s=tuple(a * 1000 for a in s.arrivals_s), server=None)
                   for s in run.samples]
    run.tool = "api_timing"
    return run


@pytest.mark.parametrize("make", [local, cloud, broken, slow, replayed, outside])
@pytest.mark.parametrize("turns", [1, 3, 6, 12, 60])
def test_no_words_overlap_or_leave_the_picture(make: Callable[[int], Run], turns: int) -> None:
    assert_readable(plot.draw([make(turns)]))


@pytest.mark.parametrize("runs", [
    [only(local(6), "length")], [only(cloud(6), "output", "cache")], [only(local(12), "cache")],
    [local(6), cloud(60), only(broken(3), "length")], [load_run(path) for path in SAVED],
], ids=["one panel", "three panels", "two panels", "three runs", "the samples"])
def test_no_words_overlap_in_other_pictures(runs: Sequence[Run]) -> None:
    assert_readable(plot.draw(runs))


@pytest.mark.parametrize("turns", [3, 12, 60])
def test_no_words_overlap_in_a_panel_of_its_own(turns: int) -> None:
    for run in (local(turns), broken(turns), slow(turns), replayed(turns), outside(turns)):
        for panel in panels(run):
            assert_readable(plot._single(panel))


def test_the_overlap_test_can_see_an_overlap() -> None:
    figure = Figure()
    for n in range(6):
        figure.text(0.5, 0.5 + 0.001 * n, "over each other")
    with pytest.raises(AssertionError):
        assert_readable(figure)


def test_grey_paper_tells_the_series_apart() -> None:
    neighbours = [*COLOURS.values(), REUSED_COLOUR]
    assert min(abs(luminance(a) - luminance(b))
               for a, b in itertools.combinations(neighbours, 2)) > 0.2
    assert len(set(MARKS.values())) == len(set(HATCHES.values())) == len(COLOURS)
    replay = [FILLS[arm] for arm in ("as_sent", "what_if", "cold")]
    assert min(abs(luminance(a) - luminance(b)) for a, b in itertools.combinations(replay, 2)) > 0.2
    assert len({FILL_HATCHES[arm] for arm in ("as_sent", "what_if", "cold")}) == 3


@pytest.mark.parametrize("suffix", [".png", ".svg", ".SVG"])
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for out in (first, second):
        plot.write([local(3)], out)
    assert first.read_bytes() == second.read_bytes()
    if suffix == ".png":
        assert imread(first).shape[:2] == (1425, 1950)
    else:
        assert b"<dc:date>" not in first.read_bytes()
        assert b"<text" not in first.read_bytes()  # letters are paths: no font is needed


def test_several_runs_are_a_block_each() -> None:
    one, two = (plot.draw([local(3)] * n).get_size_inches() for n in (1, 2))
    assert two.tolist() == [one[0], 2 * one[1]]


def test_the_words_of_the_picture() -> None:
    text = said(plot.draw([broken(6)]))
    assert "INCOMPLETE" in text
    assert "no figure" in text
    assert "not drawn, of 12 requests: 4 failed" in text
    assert "inter-chunk latency" in text
    assert "no figure is known: nothing to draw" in text  # no tokens: no point of length
    assert "INCOMPLETE" not in said(plot.draw([local(3)]))


def test_svg_panels_stand_in_one_page_side_by_side() -> None:
    run = local(3)
    found = plot.svg_panels(run)
    assert list(found) == ["length", "output", "cache", "phases"]
    assert found == plot.svg_panels(run)
    ids: list[str] = []
    for name, text in found.items():
        root = ET.fromstring(text)
        assert text.startswith("<svg ") and root.get("viewBox") and root.get("width") is None
        mine = re.findall(r'\bid="([^"]+)"', text)
        used = re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text)
        assert used and set(used) <= set(mine), name
        ids += mine
        assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)  # nothing to be fetched
    assert len(ids) == len(set(ids))


def test_a_panel_has_words_for_those_who_cannot_see_it() -> None:
    run = only(local(3), "length")
    assert 'aria-label="Prefill grows by 550 ms per 1,000 input tokens"' in plot.svg_panels(
        run)["length"]


def test_a_name_of_any_letters_is_drawn_as_it_is(recwarn: pytest.WarningsRecorder) -> None:
    run = local(3)
    run.endpoint = {"model": "we$ird$_{x} <b>&amp; \x1b[2J 模型", "url": "http://[::1]:8080"}
    assert "we$ird$_{x} <b>&amp; \\x1b[2J ?? at [::1]:8080" in said(plot.draw([run]))
    assert [str(w.message) for w in recwarn if "Glyph" in str(w.message)] == []


def test_words_are_wrapped_by_their_true_width() -> None:
    assert wrapped("iiii " * 5, 1) == "iiii iiii iiii iiii iiii"
    assert len(wrapped("WWWW " * 5, 1.2).splitlines()) == 3
    assert wrapped("x" * 40, 1).replace("\n", "") == "x" * 40
    assert (wrapped("", 1), plain("a\nb")) == ("", "a b")


# --- the command


def saved(tmp_path: Path, run: Run, name: str = "run.json") -> Path:
    path = tmp_path / name
    path.write_text(to_text(run), encoding="utf-8")
    return path


def test_the_command_writes_the_picture_and_names_it(tmp_path: Path) -> None:
    saved(tmp_path, local(3))
    done = command(tmp_path, "run.json")
    assert (done.status, done.out, done.err) == (0, "run.png\n", "")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    again = command(tmp_path, "run.json")
    assert_one_line(again, 2, "run.png exists", "--out")
    both = command(tmp_path, "run.json", str(SAVED[0]), "--out", "both.svg")
    assert (both.status, both.err) == (0, "")


def test_a_journal_of_a_killed_run_is_drawn_as_incomplete(tmp_path: Path) -> None:
    run = local(3)
    run.complete = False
    lines = [run.header(), *(s.to_json() for s in run.samples)]
    (tmp_path / "run.json.partial.jsonl").write_text(
        "\n".join(map(json.dumps, lines)) + '\n{"cut')
    done = command(tmp_path, "run.json.partial.jsonl", "--out", "x.png")
    assert (done.status, done.err) == (0, "")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that ends with status 2."""
    try:
        status = saved_files.main(["plot", *words])
    except SystemExit as end:
        status = int(str(end.code))
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "defect" not in err
    return err


RUN = json.loads(to_text(local(3)))


@pytest.mark.parametrize(("content", "says"), [
    (RUN | {"schema_version": 99}, "expected schema_version 1, found 99"),
    ({"hello": 1}, "expected a run's JSON or journal"),
    ([], "expected a run's JSON or journal"),
    (RUN | {"samples": []}, "expected a valid sample"),
    (RUN | {"samples": [s | {"error": {"kind": "http", "message": "no"}}
                        for s in RUN["samples"]]}, "found none among 14"),
    (RUN | {"samples": [s for s in RUN["samples"] if s["arm"] == "cold"]}, "found none among 3"),
    (RUN | {"samples": [RUN["samples"][0] | {"prompt_tokens": "10"}]}, "another kind"),
    (RUN | {"samples": [5]}, "expected a run's JSON"),
    (RUN | {"endpoint": 5}, "another kind"),
    (RUN | {"created_at": None}, "another kind"),
])
def test_a_file_that_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    content: object, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text(json.dumps(content))
    line = refused(capsys, "bad.json")
    assert line.startswith("request-timing plot: bad.json: ") and says in line
    assert not Path("bad.png").exists()


@pytest.mark.parametrize(("words", "says"), [
    ("missing.json", "cannot be read (No such file"),
    ("text.json", "expected a run's JSON"),
    ("binary.json", "no UTF-8"),
    ("run.json --out run.pdf", "run.pdf: expected a name that ends in .png or .svg, found '.pdf'"),
    ("run.json --out run", "found 'no suffix'"),
    ("run.json --out none/run.png", "expected a folder none, found none; make it first"),
    ("run.json --out there.svg", "there.svg exists, and a picture is never overwritten"),
    ("run.json --out folder.png", "folder.png exists"),
    ("run.json --output x.png", "did you mean --out?"),
    ("", "required: RUN.json"),
    ("run.json " * 13, "expected at most 12 runs in a picture, found 13"),
])
def test_a_command_that_cannot_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, local(3))
    Path("text.json").write_text("not a run")
    Path("binary.json").write_bytes(b"\x89PNG\xff")
    Path("there.svg").write_text("precious")
    Path("folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert says in refused(capsys, *words.split())
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("there.svg").read_text() == "precious"


def test_numbers_beyond_any_sense_are_no_figures(tmp_path: Path) -> None:
    text = to_text(local(3)).replace('"prompt_ms": 500,', '"prompt_ms": 1e999,')
    assert text.count("1e999") == 1  # strict JSON, and an infinity to Python
    path = tmp_path / "run.json"
    path.write_text(text)
    plot.write([load_run(path)], tmp_path / "x.png")
    assert "not drawn, of 3 requests: 1 without a known figure" in said(
        plot.draw([load_run(path)]))


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for use in (lambda: plot.check(tmp_path / "x.png"), lambda: plot.svg_panels(local(3)),
                lambda: plot.draw([local(3)])):
        with pytest.raises(UserError, match=r"pip install -r requirements-plot\.txt"):
            use()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match="No space left on device"):
        plot.write([local(1)], tmp_path / "x.png")


def test_help_imports_no_matplotlib(tmp_path: Path) -> None:
    done = run_script("plot", "--help", cwd=tmp_path, save=False)
    assert done.status == 0 and "--out" in done.out
