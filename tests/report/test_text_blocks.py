"""The text of a run taken apart: what a replay's tables and summary become on a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT
from request_timing.records.run import load_run
from request_timing.report.text_blocks import Table, Title, blocks, body


def test_a_column_of_words_without_a_rule_is_a_column() -> None:
    text = ("turn  tokens  what broke\n----  ------\n   1     100\n"
            "   2     110  a time, in a place\n\nafter")
    assert blocks(text) == [
        Table(headers=("turn", "tokens", "what broke"),
              rows=(("1", "100", ""), ("2", "110", "a time, in a place"))), "after"]


def test_what_a_replay_comes_to_is_a_paragraph_a_line() -> None:
    assert blocks("in all, from turn 2\n  as sent: 1\n  mended: 2\n    and more\nend\n  of it") == [
        "in all, from turn 2", "as sent: 1", "mended: 2 and more", "end of it"]


def test_a_line_that_goes_on_belongs_to_what_is_right_above_it() -> None:
    assert blocks("fit: a title\n     what it is\n\n  apart\nwhat\n  goes on") == [
        Title(experiment="fit", text="a title"), "what it is", "apart", "what goes on"]


@pytest.mark.parametrize("path", sorted((ROOT / "sample_output").glob("*.json")),
                         ids=lambda path: path.stem)
def test_every_experiment_of_a_saved_run_has_its_title(path: Path) -> None:
    run = load_run(path)
    titles = [block.experiment for block in body(run) if isinstance(block, Title)
              and block.experiment not in ("what if", "control")]
    asked = run.settings.get("experiments") or ()
    assert sorted(titles) == sorted({s.experiment for s in run.samples} | {"fit"} & {*asked})


def test_the_saved_replay_has_two_tables_of_seven_columns() -> None:
    found = body(load_run(ROOT / "sample_output" / "replay_local_cache.json"))
    tables = [block for block in found if isinstance(block, Table)]
    assert [(len(t.headers), t.headers[-1], len(t.rows)) for t in tables] == [
        (7, "what broke", 6)] * 2
    assert tables[0].rows[1][-1] == "a time, each minute"
    assert isinstance(found[0], Title)
