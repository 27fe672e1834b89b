"""The verdict, case by case: synthetic runs in which it is known what happened."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from blank_sample import blank
from request_timing.findings.verdict import verdicts
from request_timing.records.sample import Sample, ServerTimings
from verdict_samples import (
    HITS,
    PROMPT,
    Turn,
    cache_sample,
    failed,
    full,
    judged,
    run,
)


def test_reported_predicted_and_timed_agree_on_a_hit_and_on_none() -> None:
    samples = run(append=0.1, repeat=0.1, reported=HITS)
    hit, none = judged(samples), judged(samples, "prepend")
    assert (hit.code, none.code) == ("hit", "no_hit")
    assert hit.evidence["predicted_reuse"] == 0.99
    assert hit.evidence["reported_reuse"] == 0.99
    assert hit.evidence["ttft_ratio"] == pytest.approx(0.1, rel=0.2)
    assert hit.evidence["p_value"] == 2**-5
    low, high = hit.evidence["ttft_ratio_interval"]
    assert low <= hit.evidence["ttft_ratio"] <= high
    assert hit.evidence["inter_token_ratio"] == pytest.approx(1, rel=0.1)
    assert hit.evidence["n"] == 5
    assert "99 % of the prompt is reused" in hit.text
    assert "would have shown" in none.text


def test_without_counts_time_alone_is_consistent_with_a_cache() -> None:
    samples = run(append=0.1, repeat=0.1)
    assert judged(samples).code == "hit"
    assert "consistent with prefix caching" in judged(samples).text
    assert judged(samples, "prepend").code == "no_hit"


def test_a_repeat_that_is_not_reused_is_the_servers_doing() -> None:
    samples = run(reported={})
    assert judged(samples).code == judged(samples, "prepend").code == "no_reuse_here"
    assert "sliding-window" in judged(samples).text


def test_a_repeat_that_is_no_faster_either_shows_no_reuse_where_nothing_is_reported() -> None:
    samples = run(turns=12)
    assert judged(samples).code == "no_reuse_here"


def test_hits_that_are_not_reported_are_a_contradiction() -> None:
    verdict = judged(run(append=0.25, repeat=0.25, reported={}))
    assert verdict.code == "contradiction"
    assert "does not report its hits" in verdict.text


def test_a_predicted_hit_that_does_not_come_where_repeats_do_is_a_contradiction() -> None:
    verdict = judged(run(repeat=0.1, reported={"repeat": full}))
    assert verdict.code == "contradiction"
    assert "predicted 99 %, reported 0 %" in verdict.text


def test_reuse_without_a_common_beginning_is_a_contradiction() -> None:
    counted = run(append=0.1, prepend=0.1, repeat=0.1, reported=HITS | {"prepend": full})
    assert judged(counted, "prepend").code == "contradiction"
    assert "--cache-reuse" in judged(counted, "prepend").text
    timed = run(append=0.1, prepend=0.1, repeat=0.1)
    assert judged(timed, "prepend").code == "contradiction"
    assert "not a prefix cache" in judged(timed, "prepend").text


def test_a_decode_that_moved_too_is_not_the_cache() -> None:
    told: tuple[dict[str, Turn] | None, ...] = (None, HITS)
    for reported in told:
        both = run(append=0.2, repeat=0.2, decode={"append": 0.4}, reported=reported)
        assert judged(both).code == "not_cache"
    only_decode = run(decode={"append": 0.4})
    assert judged(only_decode).code == "not_cache"


def test_a_slightly_slower_decode_is_what_a_longer_context_costs() -> None:
    assert judged(run(append=0.1, repeat=0.1, decode={"append": 1.1}, reported=HITS)).code == "hit"


def test_a_noisy_clock_gives_no_verdict_but_does_not_overrule_counts() -> None:
    noisy = run(append=0.2, repeat=0.2, cold_2=0.3)
    assert judged(noisy).code == "too_noisy"
    counted = run(append=0.2, repeat=0.2, cold_2=0.3, reported=HITS)
    assert judged(counted).code == "hit"


def test_a_delayed_write_holds_from_a_later_turn() -> None:
    def late(turn: int) -> float:
        return 0.99 if turn >= 4 else 0.0

    verdict = judged(run(append=lambda t: 0.1 if t >= 4 else 1.0, repeat=0.1,
                         reported={"append": late, "repeat": full}))
    assert verdict.code == "hit"
    assert verdict.evidence["holds_from_turn"] == 4
    assert "from turn 4 on" in verdict.text


def test_a_mixture_of_machines_is_partial() -> None:
    def every_second(turn: int) -> float:
        return 0.99 if turn % 2 else 0.0

    verdict = judged(run(turns=9, append=lambda t: 0.1 if t % 2 else 1.0, repeat=0.1,
                         reported={"append": lambda t: every_second(t + 1), "repeat": full}))
    assert verdict.code == "partial"
    assert "4 of 8 turns" in verdict.text


def test_reuse_that_stops_in_the_middle_is_partial_and_says_where() -> None:
    verdict = judged(run(append=0.6, repeat=0.1, reported={"append": lambda _: 0.4,
                                                           "repeat": full}))
    assert verdict.code == "partial"
    assert "stops after 40 % of the prompt" in verdict.text


def test_a_small_common_head_is_no_hit() -> None:
    samples = run(append=0.1, repeat=0.1, reported=HITS | {"prepend": lambda _: 0.03})
    assert judged(samples, "prepend").code == "no_hit"


def test_in_a_short_context_all_that_could_be_reused_is_a_hit() -> None:
    samples = run(append=0.2, repeat=0.1, shared={"append": 0.8},
                  reported={"append": lambda _: 0.79, "repeat": full})
    assert judged(samples).code == "hit"


def test_nothing_to_judge_has_a_code_and_a_line_of_its_own() -> None:
    whole = run(append=0.1, repeat=0.1, reported=HITS)
    cases = {
        "all_failed": [failed(s) for s in whole],
        "arm_failed": [failed(s) if s.arm == "append" else s for s in whole],
        "first_turn_only": [s for s in whole if s.turn == 1],
        "nonsense_count": run(reported=HITS | {"append": lambda _: 1.5}),
        "no_clock": [cache_sample(s.arm, s.turn, repeat=s.repeat, ttft_s=0) for s in whole],
    }
    for code, samples in cases.items():
        verdict = judged(samples)
        assert verdict.code == code
        assert verdict.text and "nan" not in verdict.text.lower()
    assert len({judged(samples).text for samples in cases.values()}) == len(cases)


def test_an_arm_alone_or_no_cache_at_all_is_no_error() -> None:
    assert verdicts([]) == []
    assert verdicts([blank()]) == []
    alone = [s for s in run(append=0.1, reported=HITS) if s.arm == "append"]
    assert judged(alone).code == "hit"  # by count; nothing to time it against
    assert judged(alone).evidence["ttft_ratio"] is None
    timed = [s for s in run(append=0.1) if s.arm == "append"]
    assert judged(timed).code == "no_clock"


def test_a_llama_servers_counts_decide_and_its_blocks_are_not_timed() -> None:
    def native(arm: str, turn: int, reused: float) -> Sample:
        return cache_sample(arm, turn, cached=reused, shared=reused,
                            server=ServerTimings(cache_n=round(reused * PROMPT)))

    samples = [native("repeat", 1, 0), native("repeat", 2, 1), native("cold", 1, 0),
               native("cold", 2, 0), native("append", 1, 0), native("append", 2, 0.99),
               native("prepend", 1, 0), native("prepend", 2, 0.01)]
    assert (judged(samples).code, judged(samples, "prepend").code) == ("hit", "no_hit")


@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_a_server_without_a_cache_is_rarely_called_one(sigma: float) -> None:
    # Time alone, 300 runs: "hit" for append, whose prompts share their beginning, would be wrong.
    wrong = sum(judged(run(sigma=sigma, seed=seed)).code == "hit" for seed in range(300))
    assert wrong / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    for seed in range(300):
        assert judged(run(sigma=sigma, seed=seed), "prepend").code != "hit"


def test_more_looks_ask_for_more_evidence() -> None:
    samples = run(append=0.1, repeat=0.1)
    assert verdicts(samples)[0].code == "hit"
    assert verdicts(samples, looks=5)[0].code == "undecided"  # p is 1/32, of 0.05 / 5


def test_the_head_of_a_short_prompt_is_no_partial_hit() -> None:
    """22 tokens of a chat template's, in front of 280 others: 7 % of the prompt, and no reuse."""
    head = [replace(s, prompt_tokens=300, cached_tokens=22) if s.arm == "prepend" else s
            for s in run(reported={"append": lambda _: 0.98, "repeat": lambda _: 0.99})]
    assert judged(head, "prepend").code == "no_hit"


def test_a_repeat_that_came_from_a_cache_of_answers_is_no_control() -> None:
    samples = [replace(s, notes=("response_cache: a whole answer",)) if s.arm == "repeat" else s
               for s in run(turns=12, append=1.0)]
    found = judged(samples)
    assert found.code == "undecided" and "no identical repeat" in found.text
