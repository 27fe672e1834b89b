"""The experiments against a backend of known behaviour: order, prompts, cold proof, history."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from experiments import (
    ASSISTANT,
    USER,
    Lab,
    Message,
    Prompt,
    Settings,
    run,
    schedule,
)
from record import TEXT, Sample
from timing import End, Event, Piece, RequestFailed, Sent, Usage

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Scripted:
    """A backend whose token is a character, that reuses what it is told and fails when told."""

    head_tokens = 3

    def __init__(self, *, interleave: bool = True, reused: int = 0, fails_at: int = -1) -> None:
        self.interleave_arms = interleave
        self.prompts: list[Prompt] = []
        self._reused, self._fails_at = reused, fails_at

    def count_tokens(self, text: str) -> int:
        return len(text)

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        number = len(self.prompts)
        self.prompts.append(prompt)
        yield Sent(at_s=0)
        if number == self._fails_at:
            raise RequestFailed("http", "no")
        yield Piece(at_s=1, kind=TEXT, text=f"answer {number}")
        yield Usage(prompt_tokens=sum(len(m.text) for m in prompt), cached_tokens=self._reused,
                    output_tokens=output_tokens)
        yield End(finish_reason="length")


def settings(**known: Any) -> Settings:
    chosen: dict[str, Any] = {
        "experiments": ("length", "output", "cache"), "lengths": (200, 400), "outputs": (5, 10),
        "context": 500, "turns": 3, "repeats": 2, "seed": 1}
    return Settings(**chosen | known)


def ran(backend: Scripted, **known: Any) -> list[Sample]:
    return list(run(Lab(backend=backend, settings=settings(**known), now=lambda: NOW)))


def joined(prompt: Prompt) -> str:
    return "".join(message.text for message in prompt)


def test_every_condition_is_asked_as_often_as_planned() -> None:
    samples = ran(Scripted())
    assert sorted((s.experiment, s.arm, s.turn, s.repeat) for s in samples) == sorted(
        [("length", size, 1, n) for size in ("200", "400") for n in (1, 2)]
        + [("output", size, 1, n) for size in ("5", "10") for n in (1, 2)]
        + [("cache", arm, turn, 1) for arm in ("append", "prepend") for turn in (1, 2, 3)])


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
    for n, (before, after) in enumerate(itertools.pairwise(appended)):
        assert after[: len(before)] == before
        answer, question = after[len(before):]
        assert answer == Message(ASSISTANT, f"answer {n}")
        assert question.role == USER and f"Question {n + 2}" in question.text


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
    append, prepend = map(joined, backend.prompts)
    assert "my own words" in append and "my own words" in prepend
    assert append.split("\n")[0] not in prepend


def test_a_reused_cold_sample_is_marked_and_leaves_the_averages() -> None:
    samples = ran(Scripted(reused=50), experiments=("length", "cache"))
    marked = {(s.experiment, s.arm, s.turn) for s in samples if not s.counts}
    assert marked == {("length", "200", 1), ("length", "400", 1), ("cache", "append", 1)}
    assert "not_cold: 50 of" in next(s for s in samples if not s.counts).notes[0]


def test_a_common_head_is_not_held_against_a_cold_sample() -> None:
    assert all(s.counts for s in ran(Scripted(reused=Scripted.head_tokens)))


def test_a_failed_turn_stays_out_of_the_history() -> None:
    backend = Scripted(interleave=False, fails_at=1)
    samples = ran(backend, experiments=("cache",))
    assert [s.error is None for s in samples] == [True, False, True, True, True, True]
    third = joined(backend.prompts[2])
    assert "Question 1" in third and "Question 3" in third and "Question 2" not in third


def test_blocks_and_turn_by_turn() -> None:
    blocks = schedule(2, False, random.Random(0))
    assert blocks == [("append", 1), ("append", 2), ("prepend", 1), ("prepend", 2)]
    mixed = schedule(20, True, random.Random(0))
    assert [turn for _, turn in mixed] == sorted(list(range(1, 21)) * 2)
    assert sorted(mixed) == sorted((arm, t) for arm in ("append", "prepend") for t in range(1, 21))
    first = [arm for arm, _ in mixed[::2]]
    assert 4 < first.count("append") < 16  # neither arm always goes first
    assert mixed == schedule(20, True, random.Random(0))


def test_one_seed_makes_the_same_choices_alone_or_together_but_never_the_same_prompts() -> None:
    both, alone = Scripted(), Scripted()
    together, single = ran(both), ran(alone, experiments=("cache",))
    order = [(s.arm, s.turn) for s in together if s.experiment == "cache"]
    assert order == [(s.arm, s.turn) for s in single]
    assert not {s.prompt_hash for s in together} & {s.prompt_hash for s in single}
