"""Cases in which a verdict once came out wrong: each is an instance of a kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from request_timing.findings.verdict import verdicts
from request_timing.records.sample import TEXT, Sample, ServerTimings
from verdict_samples import HITS, PROMPT, Turn, cache_sample, failed, full, judged, never, run


def on(*turns: int) -> Turn:
    """Reported in full on these turns alone."""
    return lambda turn: 0.99 if turn in turns else 0.0


def quick_on(*turns: int) -> Turn:
    return lambda turn: 0.1 if turn in turns else 1.0


def test_rare_hits_of_the_control_are_reuse_all_the_same() -> None:
    third = on(3, 6, 9)
    samples = run(turns=9, reported={"append": third, "repeat": third})
    assert judged(samples).code == "partial"
    assert judged(samples, "prepend").code == "no_hit"


def test_a_late_start_says_how_much_is_reused_once_it_holds() -> None:
    late = on(5, 6)
    verdict = judged(run(reported={"append": late, "repeat": late}))
    assert verdict.code == "hit"
    assert "99 % of the prompt is reused from turn 5 on" in verdict.text


def native(arm: str, turn: int, reused: float) -> Sample:
    return cache_sample(arm, turn, cached=reused, shared=reused,
                        server=ServerTimings(cache_n=round(reused * PROMPT)))


def test_a_failed_first_turn_makes_the_second_the_first() -> None:
    samples = [failed(native("repeat", 1, 0)), native("repeat", 2, 0), native("cold", 1, 0),
               native("cold", 2, 0), failed(native("append", 1, 0)), native("append", 2, 0),
               native("append", 3, 0.99), native("prepend", 1, 0), native("prepend", 2, 0.01)]
    append, prepend = judged(samples), judged(samples, "prepend")
    assert (append.code, prepend.code) == ("hit", "no_hit")
    assert "from turn" not in append.text  # turn 3 was the first that could


def test_a_real_small_hit_is_never_called_no_reuse() -> None:
    wrong = sum(judged(run(turns=8, append=0.88, repeat=0.88, sigma=0.1, seed=seed)).code
                == "no_reuse_here" for seed in range(60))
    assert wrong <= 6


def test_what_is_faster_is_never_said_to_be_as_slow() -> None:
    for seed in range(60):
        samples = run(turns=8, append=0.85, repeat=0.5, sigma=0.1, seed=seed)
        verdict = next(v for v in verdicts(samples, looks=5) if v.arm == "append")
        interval = verdict.evidence["ttft_ratio_interval"]
        assert interval is None or interval[1] >= 1 or "as slow as cold" not in verdict.text


def test_a_part_of_what_a_repeat_saves_is_partial() -> None:
    verdict = judged(run(turns=12, append=0.6, repeat=0.1))
    assert verdict.code == "partial"
    assert "of what an identical repeat saves" in verdict.text


def test_a_cache_in_blocks_is_a_hit_up_to_its_block() -> None:
    # 128-token blocks under prompts of 1,500 tokens: all but the last, unfilled block.
    samples = [replace(s, prompt_tokens=1500, prompt_chars=1500, shared_chars=1480,
                       cached_tokens=1408 if s.turn % 2 else 1280)
               if s.arm == "append" and s.turn > 1 else s
               for s in run(append=0.1, repeat=0.1, reported=HITS)]
    assert judged(samples).code == "hit"


def test_a_decode_that_moved_is_seen_without_usage_too() -> None:
    samples = [replace(s, output_tokens=None, prompt_tokens=None)
               for s in run(append=0.2, repeat=0.2, decode={"append": 0.2})]
    assert judged(samples).code == "not_cache"


def test_a_decode_that_could_not_be_compared_is_not_said_to_be_steady() -> None:
    samples = [replace(s, arrivals_s=s.arrivals_s[:1], arrival_kinds=(TEXT,))
               for s in run(append=0.1, repeat=0.1)]
    verdict = judged(samples)
    assert verdict.code == "hit"
    assert "decode could not be compared" in verdict.text


def test_a_miss_of_most_that_was_shared_is_no_plain_no_hit() -> None:
    counted = run(repeat=0.1, shared={"append": 0.9}, reported={"repeat": full, "append": never})
    assert judged(counted).code == "contradiction"
    timed = run(turns=12, repeat=0.1, shared={"append": 0.9})
    assert judged(timed).code == "contradiction"


def test_a_counter_that_counts_cold_prompts_is_nonsense_in_every_arm() -> None:
    always = [replace(s, cached_tokens=9900, notes=("not_cold: 9900 of 10000 tokens reused",)
                      if s.arm == "cold" else ()) for s in run(reported=HITS)]
    assert judged(always).code == judged(always, "prepend").code == "nonsense_count"
    control = run(reported=HITS | {"repeat": lambda _: 1.5})
    assert judged(control).code == "nonsense_count"


def test_time_alone_needs_both_controls() -> None:
    assert judged(run(turns=11, append=0.5)).code == "undecided"  # the repeat is no faster
    no_second = [failed(s) if s.arm == "cold" and s.repeat == 2 else s
                 for s in run(append=0.1, repeat=0.1)]
    assert judged(no_second).code == "undecided"
    no_repeat = [failed(s) if s.arm == "repeat" else s for s in run(reported={})]
    assert judged(no_repeat).code == "undecided"


def test_reuse_in_one_arm_is_reuse_by_the_server() -> None:
    samples = run(append=0.1, reported={"append": full})
    assert (judged(samples).code, judged(samples, "prepend").code) == ("hit", "no_hit")


@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_chance_makes_no_contradiction_of_an_honest_zero(sigma: float) -> None:
    for seed in range(100):
        samples = run(append=0.1, repeat=0.1, reported=HITS, sigma=sigma, seed=seed)
        assert judged(samples, "prepend").code in ("no_hit", "not_cache")


def test_what_could_not_have_been_shown_is_not_promised() -> None:
    samples = run(append=0.001, repeat=0.001)
    five = next(v for v in verdicts(samples, looks=5) if v.arm == "append")
    assert five.code == "undecided"  # 1/32 is more than 0.05 / 5
    assert "would have shown" not in five.text


def test_no_clock_says_which_clock_is_missing() -> None:
    no_cold = [failed(s) if s.arm == "cold" else s for s in run(append=0.1)]
    assert judged(no_cold).code == "no_clock"
    assert "no cold prompt of the same turns" in judged(no_cold).text


def test_a_hit_that_is_no_faster_says_so() -> None:
    verdict = judged(run(turns=20, append=1.0, repeat=1.0, reported=HITS))
    assert verdict.code == "hit"
    assert "yet is no faster" in verdict.text
