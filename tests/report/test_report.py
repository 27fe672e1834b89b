"""The page of a run: what it says and in which order, what it escapes, and how the command ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT, Outcome, assert_one_line, environment, run_script
from finished_run import finished
from hostile_text import EVIL
from missing_packages import WITHOUT
from price_samples import FLAT
from request_timing import pictures
from request_timing.cli.output import html_of
from request_timing.costs.money import prices_json
from request_timing.findings.derive import to_text
from request_timing.records.run import Run, load_run
from request_timing.records.sample import Failure
from request_timing.report.text import render
from table_samples import NATIVE

SAVED = sorted((ROOT / "sample_output").glob("*.json"))
SVG = '<svg viewBox="0 0 400 300"><path d="M0 0L9 9"/></svg>'
NO_END = {"meta", "link", "path"}

Draw = Callable[[Run], dict[str, str]]


@pytest.fixture
def plot(monkeypatch: pytest.MonkeyPatch) -> Callable[[Draw], None]:
    """Puts a module in place of the plot whose charts are those of a function."""
    def put(draw: Draw) -> None:
        module = ModuleType("request_timing.pictures.plot")
        module.svg_panels = draw  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "request_timing.pictures.plot", module)
        monkeypatch.setattr(pictures, "plot", module, raising=False)

    return put


class Page(HTMLParser):
    """Texts of the elements asked for, and whether every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in NO_END:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in NO_END:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def of(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]


def test_the_verdict_is_first_and_the_parts_are_in_order() -> None:
    page = Page(html_of(finished(*NATIVE)))
    assert page.of("h1", "h2") == ["local_cache: tiny", "Verdict", "Charts", "Tables",
                                   "Environment", "Method"]
    assert page.of("b") == ["HIT", "NO HIT"]
    assert [t for t in page.of("h3") if ": " in t and not t.endswith(": ")] == [
        "length: time to read the input (prefill), every prompt cold",
        "output: time to write the output (decode), one short input",
        "cache: one long context over several turns"]
    assert len(page.of("li")) == 5


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_every_figure_of_the_terminal_is_on_the_page(path: Path) -> None:
    run = load_run(path)
    shown = " ".join(text for _, text in Page(html_of(run)).texts)
    for cell in re.findall(r"[\d,.]*\d[\d,.]*", render(run)):
        assert cell in shown


def test_tables_have_headers_of_columns_and_rows_and_their_box_can_be_reached() -> None:
    page = Page(html_of(finished(*NATIVE)))
    cells = [a for tag, a in page.attributes if tag == "th"]
    assert {a.get("scope") for a in cells} == {"col", "row"}
    boxes = [a for _, a in page.attributes if a.get("class") == "scroll"]
    assert len(boxes) == 5
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in boxes)
    assert ("html", {"lang": "en"}) in page.attributes


def test_a_hostile_run_is_text(plot: Callable[[Draw], None]) -> None:
    plot(lambda run: {EVIL: SVG})
    run = finished(replace(NATIVE[0], notes=(EVIL,)), *NATIVE[1:],
                   replace(NATIVE[0], error=Failure(kind=EVIL, message=EVIL)), model=EVIL)
    run.environment = {EVIL: EVIL}
    run.settings = {EVIL: [EVIL], "deep": {EVIL: EVIL},
                    "prices": prices_json(replace(FLAT, source=EVIL))}
    run.notes, run.command, run.version = [EVIL], [EVIL], EVIL
    html = html_of(run)
    page = Page(html)
    assert {tag for tag, _ in page.attributes} & {"script", "img", "iframe", "object"} == set()
    assert not [name for _, a in page.attributes for name in a if name.startswith("on")]
    assert "<script" not in html and "<img" not in html and "{{ 7*7 }}" in html
    assert page.of("h1") == [f"local_cache: {EVIL}"]
    assert EVIL in page.of("td") and EVIL in page.of("figcaption") and EVIL in page.of("p")


def test_nothing_is_loaded_from_anywhere() -> None:
    page = Page(html_of(load_run(SAVED[0])))
    policy = [a["content"] for _, a in page.attributes
              if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
                      "font-src data:"]
    assert [a for _, a in page.attributes if "src" in a] == []
    assert [a["href"] for _, a in page.attributes if "href" in a] == ["data:,"]


def test_charts_are_drawn_inline_with_a_name(plot: Callable[[Draw], None]) -> None:
    plot(lambda run: {"TTFT by input": SVG, "decode": SVG})
    html = html_of(finished(*NATIVE))
    page = Page(html)
    assert page.of("figcaption") == ["TTFT by input", "decode"]
    assert [a["aria-label"] for _, a in page.attributes if a.get("role") == "img"] == [
        f"Chart: {name}. Its figures are in the tables below." for name in page.of("figcaption")]
    assert html.count("<svg ") == 2


def test_the_real_charts_bring_no_prologue_into_the_page() -> None:
    html = html_of(finished(*NATIVE))
    assert html.count("<svg ") == 4 and "<?xml" not in html and html.count("<!DOCTYPE") == 1


def test_without_matplotlib_the_page_is_whole_and_says_what_to_install(tmp_path: Path) -> None:
    done = report_without("matplotlib", tmp_path)
    assert (done.status, done.err) == (0, "")
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "No charts: a picture needs matplotlib, found none" in html
    assert "pip install -r requirements-plot.txt" in html
    assert Page(html).of("b") == ["HIT", "NO HIT"]


def test_a_run_without_panels_says_that_there_is_nothing_to_draw() -> None:
    run = finished(replace(NATIVE[-1], arm="cold"))  # a control alone is no panel
    assert "No charts: this run holds nothing to draw." in html_of(run)


def test_an_unfinished_run_and_one_without_cache_say_so() -> None:
    run = finished(*NATIVE[:3])
    assert "stopped before its end" not in html_of(run)
    run.complete = False
    html = html_of(run)
    assert "This run was stopped before its end: what follows is of the 3 requests" in html
    assert "None: neither <i>cache</i> nor a replay" in html


def test_a_replay_has_a_verdict_on_top_and_a_key_to_its_arms() -> None:
    html = html_of(load_run(ROOT / "sample_output" / "replay_local_cache.json"))
    page = Page(html)
    assert page.of("h3")[:2] == ["as sent:", "mended:"]
    assert page.of("b")[:2] == ["NO HIT", "HIT"]
    assert any(text.startswith("as sent: the captured turns; mended:") for text in page.of("p"))
    assert "append: new text" not in html


def test_a_bill_is_a_table() -> None:
    run = finished(*NATIVE)
    run.settings["prices"] = prices_json(FLAT)
    page = Page(html_of(run))
    assert "Cost" in page.of("h2") and "USD" in page.of("th")
    assert "prices from the flags" in page.of("p")


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_its_ground_in_both_schemes(scheme: int) -> None:
    """WCAG 2.1, 1.4.3: a contrast of 4.5 to 1 at least."""
    css = (ROOT / "request_timing" / "report" / "page.html.j2").read_text(encoding="utf-8")
    named = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
             for block in re.findall(r":root \{(.*?)\}", css, re.S)][scheme]
    for ground in ("paper", "panel"):
        for ink in ("ink", "quiet", "good", "bad", "open"):
            light, dark = sorted((luminance(named[ink]), luminance(named[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_command_writes_beside_the_run_and_never_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(to_text(finished(*NATIVE)))
    done = run_script("report", "a.json", cwd=tmp_path, save=False)
    assert (done.status, done.out, done.err) == (0, "a.html\n", "")
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert_one_line(run_script("report", "a.json", cwd=tmp_path, save=False), 2,
                    "a.html exists, and is not overwritten")
    done = run_script("report", "a.json", "--out", "b.html", cwd=tmp_path, save=False)
    assert done.status == 0 and (tmp_path / "b.html").exists()
    assert_one_line(run_script("report", "a.json", "--out", "no/b.html", cwd=tmp_path,
                               save=False), 2, "--out no/b.html: cannot write there")


@pytest.mark.parametrize(("content", "says"), [
    ("{}", "found something else"), ("", "found something else"),
    ('{"schema_version": 9}', "schema_version 1, found 9"),
    (to_text(finished(*NATIVE)).replace('"environment": {', '"environment": 7, "x": {'),
     "values of another kind"),
])
def test_a_file_that_is_no_run_is_one_line(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "a.json").write_text(content)
    assert_one_line(run_script("report", "a.json", cwd=tmp_path, save=False), 2, says)
    assert not (tmp_path / "a.html").exists()


def test_without_jinja2_one_line_says_what_to_install(tmp_path: Path) -> None:
    assert_one_line(report_without("jinja2", tmp_path), 2, "jinja2",
                    "pip install -r requirements-report.txt")


def report_without(package: str, tmp_path: Path) -> Outcome:
    """The command on a run, a.json, with a Python that has not that package."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT.format(package=package))
    (tmp_path / "a.json").write_text(to_text(finished(*NATIVE)))
    return run_script("report", "a.json", cwd=tmp_path, save=False,
                      env=environment(PYTHONPATH=str(tmp_path / "site")))
