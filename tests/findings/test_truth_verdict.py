"""The verdict on a server whose cache is known, by its reported counts: no clock is asserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import at, no_patience, run_script
from request_timing.experiments.basic import cache
from request_timing.experiments.calibration import calibrate
from request_timing.experiments.lab import Lab, Settings
from request_timing.findings.verdict import Verdict, verdicts
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from truth_server import truth

SETTINGS = Settings(experiments=("cache",), lengths=(1,), outputs=(1,), context=1500, turns=5,
                    repeats=1, seed=3)


def judged(turns: int = 5, **server: Any) -> dict[str, Verdict]:
    """The verdicts of one run, by arm, on a server that reports its cached tokens.

    A constant long TTFT is all that the clock sees, so that it can contradict nothing.
    """
    with truth(fixed_s=0.02, report_cached=True, **server) as known:
        endpoint = OpenAIEndpoint(at(f"{known.url}/v1"), key=None, model="truth", provider=None)
        calibrate(endpoint, (20, 200), no_patience())
        samples = list(cache(Lab(backend=endpoint, settings=SETTINGS)))
    return {verdict.arm: verdict for verdict in verdicts(samples)}


@pytest.mark.parametrize(("server", "append", "prepend"), [
    ({"cache": "off"}, "no_reuse_here", "no_reuse_here"),
    ({"cache": "prefix"}, "hit", "no_hit"),
    ({"cache": "prefix", "block_tokens": 16}, "hit", "no_hit"),
    ({"cache": "prefix", "minimum_tokens": 50_000}, "no_reuse_here", "no_reuse_here"),
], ids=["off", "prefix", "blocks", "minimum"])
def test_the_counts_of_a_known_cache(server: dict[str, Any], append: str, prepend: str) -> None:
    found = judged(**server)
    assert (found["append"].code, found["prepend"].code) == (append, prepend)


def test_a_delayed_write_is_reported_with_the_turn_from_which_it_holds() -> None:
    # Five requests a turn: what is written eight requests late is missed in turn 2.
    found = judged(cache="prefix", write_delay_requests=8)["append"]
    assert found.code == "hit"
    assert found.evidence["holds_from_turn"] == 3


def test_the_prediction_is_what_a_perfect_cache_then_reports() -> None:
    evidence = judged(cache="prefix")["append"].evidence
    assert evidence["reported_reuse"] == pytest.approx(evidence["predicted_reuse"], abs=0.02)


def test_until_sure_stops_at_the_first_firm_look_and_says_what_it_took(tmp_path: Path) -> None:
    with truth(cache="prefix", report_cached=True) as known:
        outcome = run_script(
            "api_timing.py", "--base-url", f"{known.url}/v1", "--only", "cache", "--context", "600",
            "--turns", "3", "--until-sure", "--max-turns", "20", cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert {s["turn"] for s in outcome.samples("cache")} == set(range(1, 9))
    assert "append: HIT" in outcome.out and "prepend: NO HIT" in outcome.out
    assert "this took 8 turns, 40 requests" in outcome.out


def test_the_budget_ends_it_before_it_is_spent(tmp_path: Path) -> None:
    with truth(cache="prefix", report_cached=True) as known:
        outcome = run_script(
            "api_timing.py", "--base-url", f"{known.url}/v1", "--only", "cache", "--context", "600",
            "--turns", "3", "--until-sure", "--max-tokens", "15000", cwd=tmp_path)
    spent = sum(s["prompt_tokens"] for s in outcome.samples("cache"))
    assert 7500 < spent <= 15_000
