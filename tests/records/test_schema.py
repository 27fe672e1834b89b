"""The published JSON Schema: it holds of every record, and refuses what is none."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from conftest import ROOT
from request_timing.findings import verdict
from request_timing.findings.derive import to_text
from request_timing.records.sample import Failure
from run_samples import FAILED, FULL, run_of
from table_samples import NATIVE

SCHEMA = json.loads(
    (ROOT / "request_timing" / "records" / "run.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
SAVED = sorted((ROOT / "sample_output").glob("*.json"))


def wrong(data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(data)]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_every_saved_run_is_valid(path: Path) -> None:
    assert wrong(json.loads(path.read_text(encoding="utf-8"))) == []


def fresh() -> dict[str, Any]:
    run = run_of(FULL, FAILED, *NATIVE)
    run.created_at += "+00:00"
    data: dict[str, Any] = json.loads(to_text(run))
    return data


def test_a_run_with_a_failure_and_a_verdict_is_valid() -> None:
    assert wrong(fresh()) == []
    assert fresh()["verdicts"] and fresh()["samples"][1]["error"]


def test_every_verdict_code_is_known_to_it() -> None:
    codes = SCHEMA["$defs"]["verdict"]["properties"]["code"]["enum"]
    decided = (verdict.HIT, verdict.PARTIAL, verdict.NO_HIT, verdict.NO_REUSE_HERE,
               verdict.TOO_NOISY, verdict.CONTRADICTION, verdict.NOT_CACHE, verdict.UNDECIDED)
    assert sorted(codes) == sorted([*decided, *verdict.IMPOSSIBLE])


def test_every_field_of_a_sample_is_described() -> None:
    described = SCHEMA["$defs"]["sample"]["properties"]
    assert [name for name in FULL.to_json() if name not in described] == []


@pytest.mark.parametrize("name", ["usage_raw", "response_headers"])
def test_what_a_later_sample_may_carry(name: str) -> None:
    data = fresh()
    for value in ({}, {"x-cache": "HIT"}, None):
        data["samples"][0][name] = value
        assert wrong(data) == []
    data["samples"][0][name] = "HIT"
    assert wrong(data) != []


def test_a_failure_may_say_when_to_come_again() -> None:
    data = fresh()
    for value in (1.5, 0, None):
        data["samples"][1]["error"]["retry_after_s"] = value
        assert wrong(data) == []
    data["samples"][1]["error"]["retry_after_s"] = -1
    assert wrong(data) != []


def test_names_may_be_added_where_it_says_so() -> None:
    data = fresh()
    for part in (data, data["samples"][0], data["endpoint"], data["settings"],
                 data["environment"], data["verdicts"][0]["evidence"], data["summaries"][0]):
        part["of_a_later_version"] = {"any": [1, None]}
    assert wrong(data) == []
    assert "additional properties" in SCHEMA["description"].lower()


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(("change", "at"), [
    (lambda d: d.pop("samples"), "$: 'samples' is a required property"),
    (lambda d: d.pop("schema_version"), "$: 'schema_version'"),
    (lambda d: d.update(schema_version=2), "$.schema_version: 1 was expected"),
    (lambda d: d.update(schema_version="1"), "$.schema_version: 1 was expected"),
    (lambda d: d.update(complete=None), "$.complete: None is not of type 'boolean'"),
    (lambda d: d.update(tool="ab"), "$.tool: 'ab' is not one of"),
    (lambda d: d.update(command="local_cache.py --demo"), "$.command"),
    (lambda d: d.update(created_at="yesterday"), "$.created_at"),
    (lambda d: d.update(created_at="2026-01-01T00:00:00"), "$.created_at"),
    (lambda d: d.update(samples={}), "$.samples"),
    (lambda d: d["settings"].update(lengths=[0]), "$.settings.lengths[0]"),
    (lambda d: d["samples"][0].pop("arrivals_s"), "$.samples[0]: 'arrivals_s'"),
    (lambda d: d["samples"][0].update(arrivals_s=[-0.1]), "$.samples[0].arrivals_s[0]"),
    (lambda d: d["samples"][0].update(arrivals_s=["0.1"]), "$.samples[0].arrivals_s[0]"),
    (lambda d: d["samples"][0].update(arrival_kinds=["sound"]), "$.samples[0].arrival_kinds[0]"),
    (lambda d: d["samples"][0].update(cached_tokens=-1), "$.samples[0].cached_tokens"),
    (lambda d: d["samples"][0].update(cached_tokens=1.5), "$.samples[0].cached_tokens"),
    (lambda d: d["samples"][0].update(cached_tokens="0"), "$.samples[0].cached_tokens"),
    (lambda d: d["samples"][0].update(ttft_s=-1), "$.samples[0].ttft_s"),
    (lambda d: d["samples"][0].update(turn=0), "$.samples[0].turn"),
    (lambda d: d["samples"][0].update(turn=True), "$.samples[0].turn"),
    (lambda d: d["samples"][0].update(arm=""), "$.samples[0].arm"),
    (lambda d: d["samples"][0].update(arm=1000), "$.samples[0].arm"),
    (lambda d: d["samples"][0].update(experiment="all"), "$.samples[0].experiment"),
    (lambda d: d["samples"][0]["server"].update(prompt_s=1), "$.samples[0].server"),
    (lambda d: d["samples"][0]["connection"].update(new="yes"), "$.samples[0].connection.new"),
    (lambda d: d["samples"][1]["error"].pop("kind"), "$.samples[1].error: 'kind'"),
    (lambda d: d["samples"][1].update(error="HTTP 500"), "$.samples[1].error"),
    (lambda d: d["samples"][0].update(response_headers={"a": 1}),
     "$.samples[0].response_headers.a"),
    (lambda d: d["summaries"][0]["ttft_s"].pop("median"), "$.summaries[0].ttft_s"),
    (lambda d: d["summaries"][0].update(ttft_s=0.5), "$.summaries[0].ttft_s"),
    (lambda d: d["verdicts"][0].update(code="HIT"), "$.verdicts[0].code"),
    (lambda d: d["verdicts"][0]["evidence"].update(ttft_ratio_interval=[1]),
     "$.verdicts[0].evidence.ttft_ratio_interval"),
    (lambda d: d["verdicts"][0]["evidence"].update(p_value=1.1), "$.verdicts[0].evidence.p_value"),
])
def test_what_is_no_record_is_refused(change: Change, at: str) -> None:
    data = copy.deepcopy(fresh())
    change(data)
    found = wrong(data)
    assert len(found) == 1 and found[0].startswith(at), found


@pytest.mark.parametrize("data", [None, [], "run", 7, {}])
def test_other_json_is_refused(data: Any) -> None:
    assert wrong(data) != []


def test_a_count_that_means_nothing_is_kept_as_it_came() -> None:
    data = json.loads(to_text(run_of(replace(FULL, cached_tokens=99),
                                     replace(FAILED, error=Failure(kind="x", message="")))))
    data["created_at"] += "Z"
    assert wrong(data) == []
