"""*ladder*, *position* and *minimum* as text: exact tables, 80 columns, and the scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import run_script
from request_timing.cli import values
from request_timing.experiments.lab import Lab, Settings
from request_timing.experiments.minimum import minimum
from request_timing.experiments.plan import context_needed, fit_context
from request_timing.experiments.reuse import document_tokens, ladder, position
from request_timing.experiments.reuse_plan import SHAPES
from request_timing.records.names import DEFAULT_EXPERIMENTS, EXPERIMENT_NAMES
from request_timing.records.sample import Sample
from request_timing.report.reuse_tables import blocks, ladder_text, minimum_text
from scripted_backend import settings
from simulated import Simulated, lab_of
from truth_server import truth

Experiment = Callable[[Lab], Iterator[Sample]]
PLAIN: dict[str, Any] = {"prefill_s_per_token": 1e-4, "cache": "prefix"}


def ran(experiment: Experiment, **server: Any) -> list[Sample]:
    """Samples in which every document has exactly 1,000 tokens and every time is exact."""
    return list(experiment(lab_of(Simulated(native=True, **PLAIN | server))))


def test_the_table_of_ladder() -> None:
    samples = [replace(s, prompt_tokens=1000, shared_tokens=900, shared_chars=3600, server=None,
                       cached_tokens={"repeat": 900, "append": 896, "head_changed": 0,
                                      "after_1": 700}.get(s.arm, 0) if s.turn > 1 else 0,
                       arrivals_s=(0.5 if s.turn > 1 else 2.0,))
               for s in ran(ladder)]
    kept = ("repeat", "append", "after_1", "after_2")
    text = ladder_text([s if s.turn > 1 else replace(s, shared_tokens=0, shared_chars=0)
                        for s in samples if s.arm in kept])
    assert text == """\
ladder: which shapes of reuse work here (back after n: n others came in between)
           shape  input  shared  reused  recomputed  TTFT/cold  verdict
----------------  -----  ------  ------  ----------  ---------  -------
identical repeat  1,000     900     900         100     0.250x      hit
   appended turn  1,000     900     896         104     0.250x      hit
    back after 1  1,000     900     700         300     0.250x      hit
    back after 2  1,000     900       0       1,000     0.250x   missed
reused: identical repeat, appended turn, back after 1
shared, but computed again: back after 2
2 conversations are kept, and not 3"""


def test_the_table_of_minimum_from_counts_and_from_time() -> None:
    samples = ran(minimum, block_tokens=16)
    lines = minimum_text(samples).splitlines()
    assert lines[1] == "prefix  characters  reused  cold ms  second ms  pairs  is reused"
    assert lines[3].split() == ["8", "32", "0", "2.20", "2.20", "1", "no"]
    assert lines[-2:] == [
        "the shortest prefix reused has 16 tokens; reuse then grows in steps of 16; of",
        "  one of 2,000 tokens 2,000 are reused (reported counts)"]
    silent = minimum_text([replace(s, cached_tokens=None, server=None) for s in samples])
    assert "reused  cold" not in silent and "unclear" in silent


SERVERS: list[dict[str, Any]] = [
    {}, {"cache": "off"}, {"cache": "response"}, {"minimum_tokens": 1024, "block_tokens": 128},
    {"keep_prompts": 1}, {"report_cached": False, "noise_sigma": 0.3},
    {"report_cached": False, "cache": "off"}, {"report_cached": False, "cache": "response"}]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("server", SERVERS)
def test_no_line_is_wider_than_a_terminal(server: dict[str, Any], native: bool) -> None:
    lab = lab_of(Simulated(native=native, **PLAIN | server), context=40_000)
    lab.settings = replace(lab.settings, max_tokens=100_000)
    samples = [s for experiment in (ladder, position, minimum) for s in experiment(lab)]
    for name, text in blocks(samples, native=native):
        assert name in SHAPES
        assert max(map(len, text.splitlines())) <= 80, text


def test_what_failed_and_what_is_missing_is_drawn_too() -> None:
    samples = [s for experiment in (ladder, position, minimum) for s in ran(experiment)]
    for count in (1, 2, 5, 27, 40):
        assert blocks(samples[:count], native=True)
        assert blocks(samples[-count:], native=True)
    assert blocks([], native=True) == []


def test_names_of_experiments() -> None:
    assert values.experiment_names("all") == EXPERIMENT_NAMES
    assert values.experiment_names("position, length") == ("length", "position")
    assert set(SHAPES) < set(EXPERIMENT_NAMES)
    assert DEFAULT_EXPERIMENTS == ("length", "output", "cache")


def chosen(*names: str, **known: Any) -> Settings:
    return settings(experiments=names, **known)


def test_a_small_context_scales_the_document_instead_of_leaving_it_out() -> None:
    fitting, lines = fit_context(chosen(*SHAPES, context=51_000), 2048, 1, len)
    assert fitting.experiments == SHAPES and lines == []
    assert fitting.context == 1505 and document_tokens(fitting) == 500
    with_cache, lines = fit_context(chosen("cache", *SHAPES, context=51_000), 2048, 1, len)
    assert with_cache.experiments == SHAPES and len(lines) == 1


def test_a_context_too_small_for_any_shape_leaves_them_out() -> None:
    fitting, lines = fit_context(chosen(*SHAPES), 600, 1, len)
    assert fitting.experiments == ()
    assert lines[0] == ("ladder left out: needs 768 tokens of context, the server has 600 a slot; "
                        "start it with -c 768, or leave it out")


@pytest.mark.parametrize("context", [300, 2000, 51_000])
@pytest.mark.parametrize("name", SHAPES)
def test_a_server_started_for_them_holds_them(name: str, context: int) -> None:
    wanted = chosen(name, context=context)
    need = context_needed(wanted)
    fitting, lines = fit_context(wanted, need, 1, len)
    assert lines == []
    backend = Simulated(native=True, cache="prefix")
    experiment = {"ladder": ladder, "position": position, "minimum": minimum}[name]
    sizes = [s.prompt_tokens or 0 for s in experiment(Lab(backend=backend, settings=fitting))]
    assert max(sizes) + 16 <= need


def test_local_cache_measures_them_and_keeps_the_findings(tmp_path: Path) -> None:
    with truth(cache="prefix", block_tokens=64, minimum_tokens=256) as known:
        outcome = run_script("local_cache.py", "--url", known.url, "--only",
                             "ladder,position,minimum", "--context", "1200", cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert "identical repeat" in outcome.out and "stamp by" in outcome.out
    assert "the shortest prefix reused has 256 tokens; reuse then grows in steps of 64" in " ".join(
        outcome.out.split())
    assert outcome.record is not None
    found = {(f["experiment"], f["arm"]): f for f in outcome.record["findings"]}
    assert found["ladder", "repeat"]["code"] == "hit"
    assert found["position", "0"]["code"] == "no_hit"
    assert found["minimum", "minimum"]["evidence"]["step"] == 64
    shown = run_script("local_cache.py", "--show", "run.json", cwd=tmp_path, save=False)
    assert shown.out == outcome.out


def test_api_timing_measures_them_by_the_reported_counts(tmp_path: Path) -> None:
    with truth(cache="prefix", block_tokens=64, minimum_tokens=256) as known:
        outcome = run_script("api_timing.py", "--base-url", f"{known.url}/v1", "--only",
                             "ladder,minimum", "--context", "1200", cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    found = {(f["experiment"], f["arm"]): f for f in outcome.record["findings"]}
    assert found["ladder", "append"]["code"] == "hit"
    evidence = found["minimum", "minimum"]["evidence"]
    assert (evidence["shared"], evidence["step"]) == (256, 64)
