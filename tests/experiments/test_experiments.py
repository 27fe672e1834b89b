"""The experiments against a backend of known behaviour: order, prompts, cold proof, history."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from request_timing.experiments.basic import EXPERIMENTS, schedule
from request_timing.prompts.filler import common_prefix
from request_timing.records.names import EXPERIMENT_NAMES
from request_timing.servers.backend import ASSISTANT, USER, Message
from scripted_backend import Scripted, joined, ran, settings


def test_every_condition_is_asked_as_often_as_planned() -> None:
    samples = ran(Scripted())
    assert sorted((s.experiment, s.arm, s.turn, s.repeat) for s in samples) == sorted(
        [("length", size, 1, n) for size in ("200", "400") for n in (1, 2)]
        + [("output", size, 1, n) for size in ("5", "10") for n in (1, 2)]
        + [("cache", arm, turn, 1) for arm in ("append", "prepend", "repeat", "cold")
           for turn in (1, 2, 3)]
        + [("cache", "cold", turn, 2) for turn in (1, 2, 3)])


def test_sizes_are_what_was_asked_within_two_percent() -> None:
    for sample in ran(Scripted(), experiments=("length",)):
        assert sample.prompt_tokens == pytest.approx(int(sample.arm), rel=0.02)


def test_no_two_cold_prompts_begin_alike() -> None:
    backend = Scripted()
    ran(backend, experiments=("length", "output"))
    assert len({joined(p)[0] for p in backend.prompts}) == len(backend.prompts) == 8


def test_appended_turns_extend_the_prompt_with_the_answer_really_given() -> None:
    backend = Scripted(interleave=False)
    samples = ran(backend, experiments=("cache",))
    appended = [p for p, s in zip(backend.prompts, samples, strict=True) if s.arm == "append"]
    first = next(n for n, s in enumerate(samples) if s.arm == "append")
    for n, (before, after) in enumerate(itertools.pairwise(appended), start=first):
        assert after[: len(before)] == before
        answer, question = after[len(before):]
        assert answer == Message(ASSISTANT, f"answer {n}")
        assert question.role == USER and f"Question {n - first + 2}" in question.text


def test_prepended_turns_begin_anew_each_time_even_within_one_instant() -> None:
    backend = Scripted(interleave=False)
    samples = ran(backend, experiments=("cache",))
    prompts = [joined(p) for p, s in zip(backend.prompts, samples, strict=True)
               if s.arm == "prepend"]
    stamps = [text.split("\n")[0] for text in prompts]
    assert stamps[0] == "Current time: 2026-01-02T03:04:05.000000Z"
    assert len(set(stamps)) == 3
    # Behind the stamp, each turn extends the one before, as in the other arm.
    bodies = [text.removeprefix(stamp) for text, stamp in zip(prompts, stamps, strict=True)]
    assert all(after.startswith(before) for before, after in itertools.pairwise(bodies))


def test_the_arms_share_the_document_but_not_the_beginning() -> None:
    backend = Scripted(interleave=False)
    ran(backend, experiments=("cache",), document="my own words", turns=1)
    prompts = [joined(prompt) for prompt in backend.prompts]
    assert len(prompts) == 4
    assert all("my own words" in prompt for prompt in prompts)
    assert len({prompt[0] for prompt in prompts}) == 4


def test_a_reused_cold_sample_is_marked_and_leaves_the_averages() -> None:
    samples = ran(Scripted(reused=50), experiments=("length", "cache"))
    marked = {(s.experiment, s.arm, s.turn) for s in samples if not s.counts}
    assert marked == {("length", "200", 1), ("length", "400", 1), ("cache", "append", 1),
                      ("cache", "repeat", 1)} | {("cache", "cold", n) for n in (1, 2, 3)}
    assert "not_cold: 50 of" in next(s for s in samples if not s.counts).notes[0]


def test_a_common_head_is_not_held_against_a_cold_sample() -> None:
    assert all(s.counts for s in ran(Scripted(reused=Scripted.head_tokens)))


def test_a_failed_turn_stays_out_of_the_history() -> None:
    backend = Scripted(interleave=False, fails_at=5)
    samples = ran(backend, experiments=("cache",))
    assert [(s.arm, s.turn) for s in samples if s.error is not None] == [("append", 2)]
    third = joined(backend.prompts[6])
    assert "Question 1" in third and "Question 3" in third and "Question 2" not in third


def scheduled(interleave: bool, **known: Any) -> list[tuple[str, int, int]]:
    return list(schedule(settings(**known), interleave, random.Random(0)))


def test_arms_as_blocks_have_the_controls_first() -> None:
    assert scheduled(False) == [
        ("repeat", 1, 1), ("repeat", 2, 1), ("cold", 1, 1), ("cold", 2, 1),
        ("append", 1, 1), ("append", 2, 1), ("append", 3, 1),
        ("prepend", 1, 1), ("prepend", 2, 1), ("prepend", 3, 1)]


def test_arms_turn_by_turn_are_in_random_order_within_each_turn() -> None:
    mixed = scheduled(True, turns=40)
    each = [("append", 1), ("cold", 1), ("cold", 2), ("prepend", 1), ("repeat", 1)]
    for turn in range(1, 41):
        of_turn = mixed[(turn - 1) * 5 : turn * 5]
        assert sorted((arm, repeat) for arm, _, repeat in of_turn) == each
        assert {n for _, n, _ in of_turn} == {turn}
    for place in range(5):  # no arm keeps a place
        assert len({(arm, repeat) for arm, _, repeat in mixed[place::5]}) == 5
    assert mixed == scheduled(True, turns=40)


def test_the_repeat_control_is_one_prompt_and_each_cold_one_begins_anew() -> None:
    backend = Scripted()
    samples = ran(backend, experiments=("cache",))
    prompts: dict[str, list[str]] = {}
    for prompt, sample in zip(backend.prompts, samples, strict=True):
        prompts.setdefault(sample.arm, []).append(joined(prompt))
    assert len(set(prompts["repeat"])) == 1
    assert len({text[0] for text in prompts["cold"]}) == 6


def test_predicted_reuse_is_what_a_prompt_shares_with_an_earlier_one_and_its_answer() -> None:
    samples = ran(Scripted(interleave=False), experiments=("cache",))
    by_arm = {(s.arm, s.turn): s for s in samples}
    assert by_arm["cold", 2].shared_chars == 0
    assert by_arm["repeat", 2].predicted_reuse == 1.0
    # What is new is the question: "answer N" came from the server and is held.
    question = len("\n\nQuestion 2: which word stands out?\nAnswer:")
    second = by_arm["append", 2]
    assert second.shared_tokens == second.shared_chars == second.prompt_chars - question
    assert (by_arm["prepend", 2].predicted_reuse or 0) < 0.1  # the date, up to its last digit


@pytest.mark.parametrize(("a", "b", "shared"), [
    ("", "", 0), ("a", "", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("abc", "abcd", 3),
    ("xbc", "abc", 0), ("é語x", "é語y", 2),
])
def test_common_prefix(a: str, b: str, shared: int) -> None:
    assert common_prefix(a, b) == common_prefix(b, a) == shared


def test_until_sure_looks_a_few_times_further_and_further_apart() -> None:
    assert settings(turns=3).looks == ()
    assert settings(turns=3, until_sure=True, max_turns=40).looks == (8, 12, 18, 27, 40)
    assert settings(turns=10, until_sure=True, max_turns=10).looks == (10,)


def test_until_sure_stops_when_the_verdict_is_firm() -> None:
    # Reported zero reuse even of the repeat: firm at the first look.
    samples = ran(Scripted(), experiments=("cache",), until_sure=True, max_turns=40)
    assert max(s.turn for s in samples) == 8
    spent = ran(Scripted(), experiments=("cache",), until_sure=True, max_turns=40, max_tokens=3000)
    assert max(s.turn for s in spent) < 8


def test_one_seed_makes_the_same_choices_alone_or_together_but_never_the_same_prompts() -> None:
    both, alone = Scripted(), Scripted()
    together, single = ran(both), ran(alone, experiments=("cache",))
    order = [(s.arm, s.turn, s.repeat) for s in together if s.experiment == "cache"]
    assert order == [(s.arm, s.turn, s.repeat) for s in single]
    assert not {s.prompt_hash for s in together} & {s.prompt_hash for s in single}


def test_every_name_of_only_is_in_the_table_but_fit_which_sends_nothing() -> None:
    assert set(EXPERIMENTS) == {*EXPERIMENT_NAMES, "replay"} - {"fit"}
