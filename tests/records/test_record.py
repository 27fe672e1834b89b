"""The record: what is stored comes back, what is derived is computed anew, nothing is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from blank_sample import blank
from request_timing.findings.derive import to_text, whole_record
from request_timing.records.journal import Journal
from request_timing.records.run import RecordError, load_run
from request_timing.records.sample import Sample
from run_samples import FAILED, FULL, run_of


@pytest.mark.parametrize("sample", [FULL, FAILED, blank()])
def test_a_sample_comes_back_from_its_json(sample: Sample) -> None:
    assert Sample.from_json(json.loads(json.dumps(sample.to_json()))) == sample


def test_the_json_carries_the_derived_seconds_and_null_for_unknown() -> None:
    data = FULL.to_json()
    assert (data["ttft_s"], data["total_s"]) == (0.5, 0.6)
    assert data["inter_token_s"] == pytest.approx(0.1)
    assert data["reasoning_tokens"] is None
    assert data["cached_tokens"] == 0


def test_derived_figures_in_a_file_are_computed_anew(tmp_path: Path) -> None:
    data = json.loads(to_text(run_of(FULL)))
    data["samples"][0]["ttft_s"] = 99.0
    data["summaries"] = "wrong"
    path = tmp_path / "old.json"
    path.write_text(json.dumps(data))
    again = load_run(path)
    assert again.samples[0].ttft_s == 0.5
    assert whole_record(again)["summaries"][0]["ttft_s"]["median"] == 0.5


def test_to_text_is_strict_json_with_a_line_a_sample() -> None:
    text = to_text(run_of(FULL, FAILED))
    assert json.loads(text)["samples"] == [json.loads(json.dumps(s.to_json()))
                                           for s in (FULL, FAILED)]
    assert sum('"prompt_hash"' in line for line in text.splitlines()) == 2
    with pytest.raises(ValueError, match="JSON"):
        to_text(run_of(replace(FULL, first_byte_s=float("nan"))))


def test_the_journal_holds_each_sample_at_once_and_gives_way_to_the_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.json", run_of())
    journal.add(FULL)
    partial = load_run(journal.path)
    assert partial.samples == [FULL] and not partial.complete
    path = journal.finish(to_text, complete=True)
    assert path == tmp_path / "run.json"
    assert load_run(path).samples == [FULL] and load_run(path).complete
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_journal_cut_anywhere_loads_up_to_the_cut(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.json", run_of())
    journal.add(FULL)
    journal.add(FAILED)
    data = journal.path.read_bytes()
    header_ends = data.index(b"\n")
    for cut in range(header_ends, len(data) + 1, 7):
        journal.path.write_bytes(data[:cut])
        samples = load_run(journal.path).samples
        assert samples == [FULL, FAILED][: len(samples)]
        # Only the line that the cut went through is lost.
        assert len(samples) >= data[:cut].count(b"\n") - 1


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    out.write_text("mine")
    with pytest.raises(RecordError, match="never overwritten"):
        Journal(out, run_of())
    out.unlink()
    journal = Journal(out, run_of())
    with pytest.raises(RecordError, match="another run"):
        Journal(out, run_of())
    journal.add(FULL)
    out.write_text("taken meanwhile")
    assert journal.finish(to_text, complete=True) == tmp_path / "run-2.json"
    assert out.read_text() == "taken meanwhile"


def test_a_run_without_a_sample_leaves_nothing(tmp_path: Path) -> None:
    Journal(tmp_path / "run.json", run_of()).discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("content", "says"), [
    (b"", "found something else"),
    (b"not json", "found something else"),
    (b"[1, 2]", "found something else"),
    (b'{"a": 1}', "found something else"),
    (b"\xff\xfe", "no UTF-8"),
    (b'{"schema_version": 99, "samples": []}', "schema_version 1, found 99"),
    (b'{"schema_version": 1, "samples": [{}]}', "but"),
    (b'{"schema_version": 1, "samples": [7]}', "but"),
])
def test_a_file_that_is_no_record_is_refused_in_one_line(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(RecordError) as refused:
        load_run(path)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        load_run(tmp_path / "absent.json")
