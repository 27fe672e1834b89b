"""The verdict on a replay, case by case: conversations of which it is known what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from blank_sample import blank
from request_timing.findings.replay import replay_verdicts
from request_timing.findings.verdict import Verdict
from request_timing.records.sample import BROKE, TEXT, Failure, Sample
from request_timing.report.replay_tables import replay_table

PROMPT = 10_000
COLD_S, WARM_S = 2.0, 0.2


def turns_of(arm: str, shared: Sequence[float], cached: Sequence[float] | None,
             ttft_s: Sequence[float] | None = None, **known: Any) -> list[Sample]:
    """An arm from its turn 2 on: what each shares with the turn before, and is reported cached."""
    samples = []
    for turn in range(1, len(shared) + 2):
        came_s = COLD_S + turn / 100 if ttft_s is None or turn == 1 else ttft_s[turn - 2]
        told = None if cached is None else 0.0 if turn == 1 else cached[turn - 2]
        samples.append(blank(
            experiment="replay", arm=arm, turn=turn, prompt_chars=PROMPT, prompt_tokens=PROMPT,
            shared_chars=0 if turn == 1 else round(shared[turn - 2] * PROMPT), output_tokens=4,
            cached_tokens=None if told is None else round(told * PROMPT),
            arrivals_s=(came_s, came_s + 0.01), arrival_kinds=(TEXT, TEXT), **known))
    return samples


def cold(n: int) -> list[Sample]:
    return turns_of("cold", [0.0] * n, [0.0] * n)


def judged(samples: list[Sample], arm: str = "as_sent") -> Verdict:
    (found,) = [v for v in replay_verdicts(samples) if v.arm == arm]
    assert found.experiment == "replay" and found.text
    return found


CASES: dict[str, tuple[Sequence[float], Sequence[float], str, str]] = {
    "appends": ([0.98] * 5, [0.97] * 5, "hit", "97 % of the prompt is reused; predicted 98 %"),
    "in_blocks": ([0.98] * 5, [0.96] * 5, "hit", "96 %"),
    "clock_in_front": ([0.02] * 5, [0.02] * 5, "no_hit", "2 % of the prompt"),
    "breaks_half_way": ([0.6] * 5, [0.6] * 5, "partial", "reuse stops after 60 %"),
    "breaks_early": ([0.3] * 5, [0.3] * 5, "partial", "reuse stops after 30 %"),
    "two_of_five_break": (
        [0.98, 0.02, 0.98, 0.02, 0.98], [0.98, 0.02, 0.98, 0.02, 0.98], "partial",
        "3 of 5 turns reuse an earlier one to its end; in 2 turns the prompt leaves every earlier "
        "turn before its end"),
    "the_server_loses_some": (
        [0.98] * 4, [0.98, 0.0, 0.98, 0.0], "partial",
        "2 of 4 turns reuse an earlier one to its end; in 2 turns the server did not reuse all "
        "that is shared"),
    "both_are_to_blame": (
        [0.98, 0.98, 0.02], [0.98, 0.0, 0.02], "partial",
        "1 of 3 turns reuse an earlier one to its end; in 1 turn the prompt leaves every earlier "
        "turn before its end, in 1 turn the server did not"),
    "less_than_a_block_is_shared": (
        [0.98, 0.01, 0.98], [0.98, 0.0, 0.98], "partial",
        "; in 1 turn the prompt leaves every earlier turn before its end"),
    "more_than_is_shared": ([0.02] * 5, [0.98] * 5, "contradiction", "an earlier run"),
    "shared_and_never_reused": ([0.98] * 5, [0.0] * 5, "undecided", "--only cache"),
    "nothing_to_reuse": ([0.0] * 5, [0.0] * 5, "no_hit", "0 % of the prompt"),
}


@pytest.mark.parametrize("name", CASES)
def test_by_count(name: str) -> None:
    shared, cached, code, words = CASES[name]
    found = judged(turns_of("as_sent", shared, cached))
    assert (found.code, words in found.text) == (code, True), found.text


def test_what_was_mended_shows_that_the_server_does_reuse() -> None:
    samples = [*turns_of("as_sent", [0.98] * 4, [0.0] * 4),
               *turns_of("what_if", [0.98] * 4, [0.98] * 4)]
    assert judged(samples, "what_if").code == "hit"
    assert judged(samples).code == "contradiction"


def test_both_arms_are_judged_each_by_itself() -> None:
    samples = [*turns_of("as_sent", [0.02] * 4, [0.02] * 4),
               *turns_of("what_if", [0.97] * 4, [0.97] * 4)]
    assert [(v.arm_in_words, v.code_in_words) for v in replay_verdicts(samples)] == [
        ("as sent", "NO HIT"), ("mended", "HIT")]


@pytest.mark.parametrize(("shared", "ttft_s", "code", "words"), [
    (0.98, WARM_S, "undecided", "faster than cold, as reuse would be"),
    (0.02, WARM_S, "contradiction", "though the turns share only 2 %"),
    (0.02, None, "no_hit", "which is all that could be reused"),
    (0.98, None, "undecided", "not shown to be lower than cold"),
])
def test_time_alone_never_gives_a_hit(
    shared: float, ttft_s: float | None, code: str, words: str
) -> None:
    n = 8
    times = None if ttft_s is None else [ttft_s + turn / 100 for turn in range(n)]
    found = judged([*turns_of("as_sent", [shared] * n, None, times), *turns_of(
        "cold", [0.0] * n, None)])
    assert (found.code, words in found.text) == (code, True), found.text
    assert found.evidence["n"] == n and found.evidence["ttft_ratio"] is not None


def sized(*turns: tuple[int, int, int], **known: Any) -> list[Sample]:
    """An arm of (prompt tokens, tokens shared with the turn before, tokens cached)."""
    return [blank(**{
        "experiment": "replay", "arm": "as_sent", "turn": turn, "prompt_chars": own,
        "shared_chars": shared, "shared_tokens": shared, "prompt_tokens": own,
        "cached_tokens": cached, "arrivals_s": (1.0,), "arrival_kinds": (TEXT,)} | known)
        for turn, (own, shared, cached) in enumerate(turns, 1)]


def test_a_turn_is_set_against_the_turn_before() -> None:
    """Ten times as long each, and all of the turn before is reused: 10 % of a prompt, and a hit."""
    found = judged(sized((100, 0, 0), (1_000, 100, 100), (10_000, 1_000, 1_000)))
    assert (found.code, found.evidence["reused_turns"]) == ("hit", [2, 3])
    assert "10 % of the prompt is reused; predicted 10 %" in found.text


def test_going_back_to_an_earlier_place_is_a_hit() -> None:
    found = judged(sized((2_000, 0, 0), (1_500, 1_499, 1_499), (1_000, 999, 999), (500, 499, 499)))
    assert (found.code, found.evidence["n"]) == ("hit", 3)


@pytest.mark.parametrize("own", [200, 500, 1_000])
def test_a_break_in_the_middle_of_a_short_prompt_is_none(own: int) -> None:
    shared = own * 52 // 100
    found = judged(sized((own, 0, 0), *[(own + 20, shared, shared)] * 4))
    assert (found.code, found.evidence["reused_turns"]) == ("partial", [])


@pytest.mark.parametrize(("own", "tail"), [(300, 40), (1_000, 60), (2_000, 90), (50_000, 2_000)])
def test_a_clock_at_the_end_of_the_turn_before_is_no_break(own: int, tail: int) -> None:
    found = judged(sized((own, 0, 0), *[
        (own + 100 * n, own + 100 * (n - 1) - tail, own + 100 * (n - 1) - tail)
        for n in range(1, 4)]))
    assert found.code == "hit"


@pytest.mark.parametrize(("own", "head", "code"), [
    (300, 22, "no_hit"), (400, 60, "no_hit"), (300, 70, "partial"), (5_000, 60, "no_hit"),
    (5_000, 300, "partial"),
])
def test_a_common_head_is_no_reuse_however_short_the_prompt(own: int, head: int, code: str) -> None:
    found = judged(sized((own, 0, 0), *[(own + 20, head, head)] * 4))
    assert found.code == code
    assert "; in 4 turns the prompt leaves every earlier turn before its end" in found.text


def test_a_sub_agent_in_between_breaks_nothing() -> None:
    """A A B A: the last one shares little with B, and all of the A before it."""
    samples = sized((5_000, 0, 0), (5_200, 5_000, 5_000), (1_000, 10, 10), (5_400, 10, 5_200))
    samples[3] = replace(samples[3], best_turn=2, best_tokens=5_200)
    found = judged(samples)
    assert (found.code, found.evidence["reused_turns"]) == ("partial", [2, 4])
    assert "2 of 3 turns reuse an earlier one to its end; in 1 turn the prompt leaves" in found.text


def test_a_turn_that_failed_or_was_void_gives_no_hit_away() -> None:
    broken = Failure(kind="http", message="HTTP 400", http_status=400)
    first, second, third = sized((5_000, 0, 0), (5_100, 5_000, 5_000), (5_200, 15, 15))
    failed = replace(first, error=broken, prompt_tokens=None, cached_tokens=None)
    void = replace(second, notes=("void: the turn before was not answered",))
    assert judged([failed, void, third]).code == "no_hit"
    lost = replace(second, error=broken, prompt_tokens=None, cached_tokens=None)
    assert judged([first, lost, replace(third, notes=("void: …",))]).code == "arm_failed"


def test_what_is_not_reported_is_not_lost() -> None:
    samples = sized((5_000, 0, 0), *[(5_000, 4_990, 4_990)] * 5)
    samples = [s if s.turn > 3 else replace(s, cached_tokens=None) for s in samples]
    found = judged(samples)
    assert (found.code, found.evidence["n"]) == ("hit", 3)


@pytest.mark.parametrize("tokens_per_char", [0.25, 1.0, 60.0])
def test_characters_stand_for_the_tokens_that_they_are(tokens_per_char: float) -> None:
    """Each turn appends something whose characters are many tokens, or few: CJK, an image."""
    samples, chars, tokens = [], 1_000, 300
    for turn in range(1, 6):
        samples.append(blank(
            experiment="replay", arm="as_sent", turn=turn, prompt_chars=chars, prompt_tokens=tokens,
            shared_chars=0 if turn == 1 else chars - 50, arrivals_s=(1.0,), arrival_kinds=(TEXT,),
            cached_tokens=0 if turn == 1 else tokens - round(50 * tokens_per_char)))
        chars, tokens = chars + 50, tokens + round(50 * tokens_per_char)
    assert judged(samples).code == "hit"


def test_the_cost_of_a_break_is_what_the_turn_before_had_and_the_server_did_not_lose() -> None:
    def told(*samples: Sample) -> str:
        return replay_table(list(samples), native=False)

    first, second = sized((1_000, 0, 0), (1_000, 100, 100))
    second = replace(second, notes=(f"{BROKE}a time, in messages[0]",), avoidable_share=0.8)
    assert "about 800 of 2,000 tokens sent were computed again" in told(first, second)
    other = replace(second, avoidable_share=0.0)  # another text altogether
    assert "computed again" not in told(first, other)
    appended = sized((1_000, 0, 0), (1_000, 985, 0))[1]
    lost = replace(appended, notes=(f"{BROKE}the last message of the user",), avoidable_share=0.01)
    assert "about 10 of 2,000" in told(first, lost)


def test_what_cannot_be_judged() -> None:
    broken = Failure(kind="http", message="HTTP 500", http_status=500)
    sent = turns_of("as_sent", [0.98] * 3, [0.98] * 3)
    failed = turns_of("as_sent", [0.98] * 3, None, error=broken)
    nonsense = turns_of("as_sent", [0.98] * 3, [1.2] * 3)
    assert judged(failed).code == "all_failed"
    assert judged(sent[:1]).code == "first_turn_only"
    assert judged([*sent[:1], *failed[1:]]).code == "arm_failed"
    assert judged(nonsense).code == "nonsense_count"
    assert judged(turns_of("as_sent", [0.98] * 3, None)).code == "no_clock"
    assert replay_verdicts([]) == []


def test_a_count_of_cold_turns_that_claims_reuse_is_nonsense() -> None:
    samples = [*turns_of("as_sent", [0.98] * 3, [0.98] * 3),
               *turns_of("cold", [0.0] * 3, [0.9] * 3)]
    assert judged(samples).code == "nonsense_count"


def test_a_count_decides_where_cold_turns_stand_beside_it() -> None:
    found = judged([*turns_of("as_sent", [0.98] * 5, [0.98] * 5, [WARM_S] * 5), *cold(5)])
    assert found.code == "hit"
    assert "TTFT" in found.text and found.evidence["ttft_ratio"] < 0.2
