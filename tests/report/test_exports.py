"""CSV and Markdown: exact cells, unknown and zero, and text that would be a formula or markup."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ROOT
from finished_run import finished
from request_timing.records.run import Run, load_run
from request_timing.records.sample import Failure
from request_timing.report.exports import COLUMNS, to_csv, to_markdown
from request_timing.report.text import render
from request_timing.report.text_blocks import Table, Title, blocks, body
from run_samples import FAILED, FULL, run_of
from table_samples import NATIVE

SAVED = sorted((ROOT / "sample_output").glob("*.json"))


def rows(run: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(run))))


def test_a_row_a_sample_to_the_letter() -> None:
    text = to_csv(run_of(FULL))
    assert text == (
        "experiment,arm,turn,repeat,sent_at,prompt_chars,prompt_hash,shared_chars,shared_tokens,"
        "asked_output_tokens,pieces,first_byte_s,ttft_s,total_s,inter_token_s,inter_chunk_s,"
        "prompt_tokens,cached_tokens,recomputed_tokens,output_tokens,reasoning_tokens,"
        "first_piece_tokens,finish_reason,server_reused_tokens,server_computed_tokens,"
        "server_prompt_ms,server_written_tokens,server_predicted_ms,server_slot,connection_new,"
        "connect_s,tls_s,counts,error_kind,error_message,http_status,retry_after_s,notes\n"
        "length,10,1,1,2026-01-01T00:00:00+00:00,3,abc,,,4,2,0.4,0.5,0.6,0.09999999999999998,"
        "0.09999999999999998,10,0,10,2,,,limit,0,10,400.0,2,100.0,0,true,0.001,,true,,,,,a note\n")


def test_a_failure_is_a_row_too_and_unknown_is_empty() -> None:
    row = rows(run_of(FAILED))[0]
    assert (row["counts"], row["error_kind"], row["error_message"], row["http_status"]) == (
        "false", "http", "HTTP 500: no", "500")
    assert (row["ttft_s"], row["server_slot"], row["connection_new"], row["retry_after_s"]) == (
        "", "", "", "")
    assert (row["cached_tokens"], row["pieces"]) == ("0", "0")


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_every_saved_run_comes_back_from_its_csv(path: Path) -> None:
    run = load_run(path)
    found = rows(run)
    assert len(found) == len(run.samples) > 0
    for row, sample in zip(found, run.samples, strict=True):
        assert list(row) == list(COLUMNS)
        assert [row["experiment"], row["arm"], row["sent_at"]] == [
            sample.experiment, sample.arm, sample.sent_at]
        assert float(row["ttft_s"]) == sample.ttft_s
        assert row["cached_tokens"] == ("" if sample.cached_tokens is None
                                        else str(sample.cached_tokens))


@pytest.mark.parametrize("evil", [
    '=HYPERLINK("http://x","y")', "+1+1", "-1+1", "@SUM(A1)", "  =1", "\t=1", "\n=1"])
def test_a_text_that_is_a_formula_is_made_a_text(evil: str) -> None:
    sample = replace(FULL, finish_reason=evil, notes=(evil,),
                     error=Failure(kind="http", message=evil))
    row = rows(run_of(sample))[0]
    assert row["finish_reason"] == row["error_message"] == row["notes"] == f"'{evil}"


def test_a_negative_number_is_a_number_and_quotes_and_line_ends_stay_in_their_cell() -> None:
    sample = replace(FULL, first_byte_s=-0.5, notes=('a "b", c\nd', "e"))
    row = rows(run_of(sample, FULL))[0]
    assert (row["first_byte_s"], row["notes"]) == ("-0.5", 'a "b", c\nd; e')
    assert len(rows(run_of(sample, FULL))) == 2


MARKDOWN = """\
### local\\_cache: tiny

http://x, 2026-01-01 00:00:00 UTC

**length**: time to read the input (prefill), every prompt cold

| asked | input | reused | prefill ms | quartiles | tokens/s | TTFT ms | n |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1,000 | 1,000 | 0 | 550 | 525..575 | 1,818 | 550 | 2 |
| 2,000 | 2,000 | 0 | 1,100 | - | 1,818 | 1,100 | 1 |

prefill grows by 550 ms per 1,000 input tokens (median slope, 3 requests)

local\\_cache VERSION; python 3.11.7, cpus 2

local\\_cache.py
"""


def test_the_markdown_of_a_run() -> None:
    run = finished(*NATIVE[:3])
    run.version = "VERSION"
    assert to_markdown(run) == MARKDOWN


def test_the_verdicts_come_first() -> None:
    text = to_markdown(finished(*NATIVE))
    assert text.index("- **append: HIT** 100 % of the prompt is reused\n") < text.index("| asked")
    assert "- **prepend: NO HIT** 0 % of the prompt is reused\n" in text
    assert "verdict" not in text


def test_markup_of_others_is_text() -> None:
    text = to_markdown(finished(
        replace(NATIVE[0], notes=("- [x](http://y) | `c` @team",)), NATIVE[1],
        model="<script>alert(1)</script>*a*_b_\n# c"))
    assert "### local\\_cache: &lt;script&gt;alert(1)&lt;/script&gt;\\*a\\*\\_b\\_ \\# c\n" in text
    assert "<script" not in text and "\n# c" not in text and "\n## " not in text
    assert "- [x]" not in text and "\\[x\\](http://y) \\| \\`c\\` @&#8203;team" in text


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_every_figure_of_the_terminal_is_in_the_markdown(path: Path) -> None:
    run = load_run(path)
    text = to_markdown(run)
    for cell in re.findall(r"[\d,.]*\d[\d,.]*", render(run).split("verdict")[0]):
        assert cell in text


@pytest.mark.parametrize(("line", "shown"), [
    ("- a", "\\- a"), ("1. a", "1\\. a"), ("12) a", "12\\) a"), ("---", "\\---"), ("===", "\\==="),
    ("1.5 a", "1.5 a"), ("-5", "-5"), ("+ a", "\\+ a"),
])
def test_a_line_is_no_item_and_no_rule(line: str, shown: str) -> None:
    run = finished(*NATIVE[:3])
    run.notes = [line]
    assert f"\n\n{shown}\n\n" in to_markdown(run)


def test_tables_come_back_as_cells_and_sentences_stay_sentences() -> None:
    found = body(finished(*NATIVE))
    titles = [block for block in found if isinstance(block, Title)]
    tables = [block for block in found if isinstance(block, Table)]
    assert [title.experiment for title in titles] == ["length", "output", "cache"]
    assert [len(table.rows) for table in tables] == [2, 2, 4, 3]
    assert tables[0].rows[1] == ("2,000", "2,000", "0", "1,100", "-", "1,818", "1,100", "1")
    assert tables[1].rows[0][-1] == ""  # a last cell that is empty
    assert tables[3].rows[2] == ("prepend/append", "", "2.00x", "", "2.00x")
    assert "short: answers that stopped before the length asked for" in found


def test_a_text_without_tables_and_a_table_at_the_end() -> None:
    assert blocks("") == []
    assert blocks("one line\n  goes on\n\nanother") == ["one line goes on", "another"]
    assert blocks("a   b\n--  --\n1   22") == [Table(headers=("a", "b"), rows=(("1", "22"),))]
    assert blocks("a   b\n--  --\na sentence") == [
        Table(headers=("a", "b"), rows=()), "a sentence"]
    assert blocks("--  --\n--  --")[0] == Table(headers=("--", "--"), rows=())
