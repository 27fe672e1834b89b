"""What *ladder* and *position* send and find, on servers of known truth that take no time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from request_timing.experiments.lab import Lab, Settings
from request_timing.experiments.minimum import minimum
from request_timing.experiments.reuse import (
    CHANGED,
    changed,
    document_tokens,
    ladder,
    position,
    rounds,
)
from request_timing.experiments.reuse_plan import sent
from request_timing.findings.measures import FIGURES
from request_timing.findings.reuse import (
    ANSWER_CACHE,
    MISSED,
    findings,
    rows,
    stamped,
    verdicts,
)
from request_timing.findings.verdict import (
    ARM_FAILED,
    CONTRADICTION,
    HIT,
    NO_HIT,
    NO_REUSE_HERE,
    NONSENSE_COUNT,
    TOO_NOISY,
    UNDECIDED,
)
from request_timing.records.names import LABELS, LADDER, POSITION
from request_timing.records.sample import Failure, Sample
from request_timing.servers.backend import Prompt
from request_timing.servers.timing import Event
from simulated import Simulated, lab_of

TIMED: dict[str, Any] = {"report_cached": False, "prefill_s_per_token": 1e-4, "fixed_s": 0.005,
                         "decode_s_per_token": 0.001, "noise_sigma": 0.05}
RETURNS = ("two_in_turn", "after_1", "after_2", "after_4")
Experiment = Callable[[Lab], Iterator[Sample]]


def ran(experiment: Experiment, backend: Simulated, **settings: Any) -> list[Sample]:
    return list(experiment(lab_of(backend, **settings)))


def codes(samples: list[Sample], experiment: str = LADDER) -> dict[str, str]:
    return {row.arm: row.code for row in rows(samples, experiment)}


class Recorded(Simulated):
    """Keeps the prompts."""

    def __init__(self, **known: Any) -> None:
        super().__init__(**known)
        self.prompts: list[str] = []

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        self.prompts.append("".join(message.text for message in prompt))
        return super().stream(prompt, output_tokens)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("name", "experiment"), [("ladder", ladder), ("position", position)])
def test_the_plan_is_what_is_sent_at_the_most(
    native: bool, name: str, experiment: Experiment
) -> None:
    backend = Simulated(native=native, cache="prefix", report_cached=False)
    lab = lab_of(backend)
    samples = list(experiment(lab))
    requests, tokens, outputs = sent(
        lab.settings, backend.count_tokens, interleave=not native)[name]
    assert len(samples) == requests
    assert sum(s.prompt_tokens or 0 for s in samples) == pytest.approx(tokens, rel=0.05)
    assert sum(s.asked_output_tokens for s in samples) == outputs


@pytest.mark.parametrize("cache", ["off", "prefix"])
@pytest.mark.parametrize("native", [True, False])
def test_minimum_sends_no_more_than_its_plan(native: bool, cache: str) -> None:
    backend = Simulated(native=native, cache=cache, block_tokens=64)
    lab = lab_of(backend)
    samples = list(minimum(lab))
    requests, tokens, _ = sent(
        lab.settings, backend.count_tokens, interleave=not native)["minimum"]
    assert len(samples) <= requests
    assert sum(s.prompt_tokens or 0 for s in samples) <= tokens


def test_reported_counts_end_the_rounds_early() -> None:
    samples = ran(ladder, Simulated(cache="prefix"))
    assert {s.repeat for s in samples} == {1, 2}
    assert {s.repeat for s in ran(ladder, Simulated(cache="prefix", report_cached=False))} == set(
        range(1, 9))
    assert {s.repeat for s in ran(ladder, Simulated(native=True, cache="prefix"))} == {1}


def test_enough_rounds_for_a_verdict_on_each_row() -> None:
    few = Settings(experiments=(), lengths=(1,), outputs=(1,), context=1, turns=2, repeats=1,
                   seed=0)
    assert 0.5 ** rounds(few, counted=False) <= 0.05 / len(LABELS)
    assert rounds(replace(few, turns=12), counted=False) == 12


@pytest.mark.parametrize(("context", "tokens"), [
    (51_000, 12_750), (2048, 512), (1000, 500), (400, 400)])
def test_the_document_is_a_share_of_the_context(context: int, tokens: int) -> None:
    assert document_tokens(lab_of(Simulated(), context=context).settings) == tokens


def test_every_row_begins_with_a_prompt_of_its_own_that_nothing_shares() -> None:
    backend = Recorded(native=True, cache="prefix")
    samples = ran(ladder, backend)
    cold = [text for text, s in zip(backend.prompts, samples, strict=True) if s.turn == 1]
    assert len({text[0] for text in cold}) == len(cold) == 13
    assert all(s.counts for s in samples)


def test_interleaved_rows_come_in_another_order_each_round_with_two_cold_prompts() -> None:
    samples = ran(ladder, Simulated(cache="prefix", report_cached=False))
    orders = [[s.arm for s in samples if s.repeat == n and s.turn == 1] for n in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]
    for repeat, group in itertools.groupby(samples, lambda s: s.repeat):
        assert sorted(s.turn for s in group if s.arm == "cold") == [1, 2], repeat


# The server keeps its latest prompts. Of 0 1 2 3 4 3 2 0 the return to 3 needs the latest two, that
# to 2 the latest four, that to 0 the latest seven.
@pytest.mark.parametrize("keep", [1, 2, 3, 4, 6, 7])
def test_conversations_that_were_left_return_after_as_many_others_as_they_say(keep: int) -> None:
    found = codes(ran(ladder, Simulated(native=True, cache="prefix", keep_prompts=keep)))
    for others, needed in ((1, 2), (2, 4), (4, 7)):
        assert found[f"after_{others}"] == (HIT if keep >= needed else MISSED)
    assert found["two_in_turn"] == (HIT if keep > 1 else MISSED)


def test_a_changed_token_is_where_it_is_said_to_be() -> None:
    assert changed("abcdefgh", 50) == "abcd0fgh"
    assert changed("abcdefgh", 100) == "abcdefg0"
    backend = Recorded(native=True, cache="prefix")
    samples = ran(position, backend)
    first = backend.prompts[0]
    for percent, prompt in zip((100, 75, 50, 25), backend.prompts[1:], strict=False):
        differs = [n for n, (a, b) in enumerate(zip(first, prompt, strict=True)) if a != b]
        assert len(differs) == 1 and prompt[differs[0]] == CHANGED
        document = len(first) - len("\n\nQuestion 1: which word stands out?\nAnswer:")
        assert differs[0] == pytest.approx(document * percent / 100, abs=1)
    assert backend.prompts[5][0] != first[0]
    shared = [row.shared_tokens for row in rows(samples, POSITION)]
    assert shared == pytest.approx([row.reused_tokens for row in rows(samples, POSITION)], abs=1)


@pytest.mark.parametrize("native", [True, False])
def test_a_stamp_costs_by_its_granularity(native: bool) -> None:
    samples = ran(position, Simulated(native=native, cache="prefix", minimum_tokens=64))
    known = {s.by: s for s in stamped(samples, FIGURES["ttft_s"])}
    times = 1 if native else 2
    assert {by: (s.changed, s.n) for by, s in known.items()} == {
        "second": (4 * times, 4 * times), "minute": (2 * times, 4 * times),
        "hour": (1 * times, 4 * times), "day": (0, 4 * times)}
    cost = {by: s.recomputed_tokens or 0 for by, s in known.items()}
    whole, question = known["second"].input_tokens or 0, cost["day"]
    assert cost["second"] == whole
    assert question < 20
    # Of four requests so many read all again, and the others the question alone.
    assert cost["minute"] == pytest.approx((whole + question) / 2, abs=2)
    assert cost["hour"] == pytest.approx((whole + 3 * question) / 4, abs=2)


@pytest.mark.parametrize(("server", "expected"), [
    ({"cache": "prefix"}, {"middle_changed": HIT}),
    ({"cache": "prefix", "block_tokens": 128, "minimum_tokens": 1024}, {"middle_changed": MISSED}),
    ({"cache": "prefix", "write_delay_requests": 1}, dict.fromkeys(
        ("repeat", "append", "other_question", "middle_changed", "tail_cut"), MISSED)),
], ids=["prefix", "blocks and minimum", "a delayed write"])
def test_verdicts_by_count(server: dict[str, Any], expected: dict[str, str]) -> None:
    found = codes(ran(ladder, Simulated(native=True, **server), context=8000))
    assert found == dict.fromkeys(LABELS, HIT) | {"head_changed": NO_HIT} | expected


def test_verdicts_by_time_are_those_of_the_counts() -> None:
    servers: tuple[dict[str, Any], ...] = ({}, {"block_tokens": 128, "minimum_tokens": 1024})
    for server in servers:
        samples = ran(ladder, Simulated(cache="prefix", **TIMED, **server), context=8000)
        middle = MISSED if server else HIT
        assert codes(samples) == dict.fromkeys(LABELS, HIT) | {
            "head_changed": NO_HIT, "middle_changed": middle}


def test_one_place_is_told_from_time_too() -> None:
    samples = ran(ladder, Simulated(cache="prefix", keep_prompts=1, **TIMED), context=8000)
    found = codes(samples)
    assert {found[arm] for arm in RETURNS} == {MISSED} and found["repeat"] == HIT


@pytest.mark.parametrize("experiment", [ladder, position])
@pytest.mark.parametrize("report", [True, False])
def test_a_server_that_never_reuses(experiment: Experiment, report: bool) -> None:
    samples = ran(experiment, Simulated(**TIMED | {"report_cached": report}), context=8000)
    assert set(codes(samples, experiment.__name__).values()) == {NO_REUSE_HERE}


@pytest.mark.parametrize("report", [True, False])
def test_a_cache_of_whole_answers_is_no_prefix_cache(report: bool) -> None:
    backend = Simulated(cache="response", **TIMED | {"report_cached": report})
    found = codes(ran(ladder, backend, context=8000))
    assert found.pop("repeat") == ANSWER_CACHE
    assert set(found.values()) == {NO_REUSE_HERE}


def test_a_whole_answer_that_is_announced_is_left_out() -> None:
    samples = [replace(s, notes=("response_cache: HIT",)) if s.arm == "repeat" and s.turn == 2
               else s for s in ran(ladder, Simulated(native=True))]
    assert codes(samples)["repeat"] == ANSWER_CACHE


def test_reuse_of_prompts_that_share_nothing_cannot_be_used() -> None:
    samples = [replace(s, cached_tokens=s.prompt_tokens)
               for s in ran(ladder, Simulated(native=True))]
    assert set(codes(samples).values()) == {NONSENSE_COUNT}


def test_more_reuse_than_is_shared_is_a_contradiction() -> None:
    samples = [replace(s, cached_tokens=900) if s.arm == "head_changed" and s.turn == 2 else s
               for s in ran(ladder, Simulated(native=True, cache="prefix"))]
    assert codes(samples)["head_changed"] == CONTRADICTION


def test_a_row_that_failed_leaves_the_rest() -> None:
    failed = Failure(kind="http", message="no")
    samples = [replace(s, error=failed) if s.arm == "append" else s
               for s in ran(ladder, Simulated(native=True, cache="prefix"))]
    found = codes(samples)
    assert found["append"] == ARM_FAILED and found["repeat"] == HIT


def test_a_row_that_a_stopped_run_did_not_come_to_has_not_failed() -> None:
    samples = ran(ladder, Simulated(native=True, cache="prefix"))
    last = max(n for n, s in enumerate(samples) if s.arm == "after_4" and s.turn == 1)
    found = codes(samples[:last + 1])
    assert (found["after_4"], found["append"]) == ("not_reached", HIT)


def test_too_much_noise_and_too_few_rounds_decide_nothing() -> None:
    samples = ran(ladder, Simulated(cache="prefix", **TIMED), context=8000)
    few = [s for s in samples if s.repeat <= 4]
    assert set(codes(few).values()) == {UNDECIDED}
    assert "that takes 8 rounds" in rows(few, LADDER)[0].text
    drifting = [replace(s, arrivals_s=tuple(3 * t for t in s.arrivals_s))
                if s.arm == "cold" and s.turn == 2 else s for s in samples]
    assert set(codes(drifting).values()) == {TOO_NOISY}


def test_findings_are_of_what_was_run() -> None:
    assert findings([]) == []
    samples = ran(position, Simulated(native=True, cache="prefix"))
    assert [v.arm for v in verdicts(samples)] == [
        "0", "25", "50", "75", "100", "second", "minute", "hour", "day"]
    first = findings(samples)[1]
    assert set(first) == {"experiment", "arm", "code", "text", "evidence"}
    assert (first["arm"], first["code"]) == ("25", HIT)
    evidence = first["evidence"]
    assert evidence["reused_tokens"] + evidence["recomputed_tokens"] == evidence["input_tokens"]
