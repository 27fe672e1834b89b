"""The verdict on a server whose cache is known, by its reported counts: no clock is asserted."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import Lab, Settings, cache
from openai_api import OpenAIEndpoint
from truth_server import truth
from verdict import Verdict, verdicts

SETTINGS = Settings(experiments=("cache",), lengths=(1,), outputs=(1,), context=1500, turns=5,
                    repeats=1, seed=3)


def judged(turns: int = 5, **server: Any) -> dict[str, Verdict]:
    """The verdicts of one run, by arm, on a server that reports its cached tokens.

    A constant long TTFT is all that the clock sees, so that it can contradict nothing.
    """
    with truth(fixed_s=0.02, report_cached=True, **server) as known:
        endpoint = OpenAIEndpoint(f"{known.url}/v1", key=None, model="truth", provider=None)
        endpoint.calibrate((20, 200))
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
