"""The page in a real browser: it fits, it loads nothing, it says nothing, and what it shows."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import browser as chromium
from conftest import ROOT
from finished_run import finished
from hostile_text import EVIL
from request_timing.cli.output import html_of
from request_timing.pictures import plot
from request_timing.records.run import Run, load_run
from table_samples import NATIVE

pytestmark = pytest.mark.skipif(chromium.CHROMIUM is None, reason=chromium.MISSING)

WIDTHS = (380, 1400)
CHART = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 400" width="640pt" '
         'height="400pt"><rect x="40" y="20" width="560" height="340" fill="none" '
         'stroke="#1b1f24"/><text x="50" y="60">TTFT ms</text></svg>')


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def runs() -> dict[str, Run]:
    """A saved run of each tool, and one whose texts are long and hostile."""
    long = "x" * 200 + EVIL
    hostile = finished(*(replace(s, notes=(long,)) for s in NATIVE), model=long, url=f"http://{long}")
    hostile.settings, hostile.command = {long: long}, [long]
    saved = ROOT / "sample_output"
    return {"local": load_run(saved / "demo_local_cache.json"),
            "cloud": load_run(saved / "demo_api_timing.json"), "hostile": hostile}


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of a run with charts wider than a telephone."""
    monkeypatch.setattr(plot, "svg_panels",
                        lambda run: dict.fromkeys(("length", "output", "cache"), CHART))
    path = tmp_path / "page.html"
    path.write_text(html_of(runs()[request.param]), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", ["local", "cloud", "hostile"], indirect=True)
def test_the_page_fits_and_is_silent(
    browser: chromium.Browser, page: Path, width: int, dark: bool, tmp_path: Path
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.value("innerWidth") == width
    assert browser.value("document.documentElement.scrollWidth") <= width
    # Nothing but a box that scrolls by itself holds more than it shows.
    assert browser.value(
        "[...document.querySelectorAll('body, body *')].filter(e => !e.closest('.scroll, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML)") == []
    assert browser.requests == [page.as_uri()]
    assert browser.console == []
    assert browser.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")
    picture = tmp_path / "page.png"
    browser.screenshot(picture)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">I", data[16:20])[0] == width


@pytest.mark.parametrize("page", ["local"], indirect=True)
def test_a_wide_table_scrolls_in_its_box(browser: chromium.Browser, page: Path) -> None:
    browser.open(page, 380)
    wide = ("[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
            ".length")
    assert browser.value(wide) > 0
    browser.open(page, 1400)
    assert browser.value(wide) == 0


@pytest.mark.parametrize("page", ["hostile"], indirect=True)
def test_no_text_of_a_run_became_an_element(browser: chromium.Browser, page: Path) -> None:
    browser.open(page, 1400)
    assert browser.value("document.querySelectorAll('script, img, iframe, [onerror]').length") == 0
    assert EVIL in browser.value("document.querySelector('h1').textContent")


@pytest.mark.parametrize("page", ["local"], indirect=True)
def test_what_a_screen_reader_is_given(browser: chromium.Browser, page: Path) -> None:
    browser.open(page, 1400)
    browser.call("Accessibility.enable")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    assert [name for role, name in named if role == "image"] == [
        f"Chart: {name}. Its figures are in the tables below."
        for name in ("length", "output", "cache")]
    # The tree comes in no reading order.
    headings = {name for role, name in named if role == "heading"}
    assert {"local_cache: SmolLM2-135M-Instruct.Q4_1.gguf", "Verdict", "append: HIT",
            "prepend: NO HIT", "Method"} <= headings
    roles = {role for role, _ in named}
    assert {"main", "banner", "contentinfo", "table", "columnheader", "rowheader"} <= roles
    assert not [role for role, name in named if role in ("region", "image", "heading") and not name]


def test_the_check_sees_a_page_that_is_too_wide_and_one_that_loads(
    browser: chromium.Browser, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<div style="width:900px">x</div><img src="absent.png">'
                   "<script>console.error('no')</script>")
    browser.open(bad, 380)
    assert browser.value("document.documentElement.scrollWidth") == 908
    assert len(browser.requests) == 2 and "absent.png" in browser.requests[1]
    assert any("no" in line for line in browser.console)
