"""What --explain prints, to the letter; and that fifty turns of a megabyte fit in memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from explain_cases import A1, A2, Q1, Q2, Q3, chat, system
from request_timing.errors import UserError
from request_timing.explain.align import columns
from request_timing.report.explain import explain

BODY = "A long text that stays.\n" * 40
TURNS = [chat(system(f"Now: 10:4{n}\n{BODY}"), *[Q1, A1, Q2, A2, Q3][:2 * n + 1])
         for n in range(3)]
MOST_BYTES = 400_000_000


def explained(path: Path, values: list[Any]) -> str:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return explain(path)


TEXT = """\
explain: 3 turns, chat bodies

turn   chars  shared      %  what broke
----  ------  ------  -----  ----------
   1   1,042       -      -
   2   1,170      20    1.7  a time that changes each minute
   3   1,298      20    1.5  a time that changes each minute

turn 2 (and turn 3): a time that changes each minute
  at byte 20, line 2, in messages[0].content
  before  <|system|>␊Now: 10:4«0»␊A long text that stays.␊A long text that st…
  after   <|system|>␊Now: 10:4«1»␊A long text that stays.␊A long text that st…
  remedy: send it to the hour or day only, or move it behind all that stays, to
    the end of the last user message

summary
  sent                 3,510 characters in 3 turns
  recomputed           3,470 (98.9 %), not the beginning of an earlier turn
  avoidable            2,170 (61.8 %), sent before and behind a break
  2,170 by a time that changes each minute, in messages[0].content, 2 times"""


def test_the_whole_text(tmp_path: Path) -> None:
    text = "\n".join(line.rstrip() for line in explained(tmp_path / "t.jsonl", TURNS).split("\n"))
    assert text == TEXT


@pytest.mark.parametrize("values", [
    TURNS, ["漢字" * 200 + str(n) + "😀" * 90 for n in range(3)], ["\x1b[2J" * 40, "\0" * 99, "x"],
    ["a", "a", "b" * 200], [chat(system("x" * n * 99)) for n in range(1, 70)], ["", "", ""],
    [chat(Q1) | {"model": "m" * 300}, chat(Q1)], [chat(Q1, tools=[{"name": "n" * 200}]), chat(Q1)],
])
def test_nothing_is_wider_than_a_terminal(tmp_path: Path, values: list[Any]) -> None:
    for line in explained(tmp_path / "t.jsonl", values).split("\n"):
        assert columns(line) <= 80
        assert line.isprintable()


def test_appending_the_same_turn_and_mixed_kinds(tmp_path: Path) -> None:
    text = explained(tmp_path / "t.jsonl", [chat(Q1), chat(Q1, A1, Q2), chat(Q1, A1, Q2), "plain"])
    assert "nothing: it appends" in text
    assert "nothing: the same turn again" in text
    assert "3 chat bodies and 1 plain prompts" in text
    text = explained(tmp_path / "t.jsonl", [chat(Q1, A1, Q2), chat(Q1)])
    assert "nothing: it is the beginning of the turn before" in text


def test_one_turn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least two turns to compare, found one"):
        explained(tmp_path / "t.jsonl", [chat(Q1)])


def test_how_often_a_time_changes_is_told_by_all_turns(tmp_path: Path) -> None:
    times = ["10:41:07", "10:42:07", "10:42:09", "10:43:09"]  # a minute, seconds, a minute
    text = explained(tmp_path / "t.jsonl", [chat(system(f"Now: {now}\n{BODY}"), Q1)
                                            for now in times])
    assert "each minute" not in text
    assert text.count("a time that changes each second") == 5
    text = explained(tmp_path / "t.jsonl", [chat(system(f"Now: {now}\n{BODY}"), Q1)
                                            for now in times[:2]])
    assert "a time that changes each minute" in text
    assert "turn 2: a time that changes each minute" in text


def test_scattered_words_are_not_kept(tmp_path: Path) -> None:
    """Two texts of like build have nothing in common that a cache could keep."""
    template = ("You are a {} in {}.\nYou are asked to {}.\nThe user is {}.\n"
                "The answer is to be {}.\n")
    text = explained(tmp_path / "t.jsonl", [
        template.format("pirate", "Tortuga", "sail to the west", "a captain", "short and loud"),
        template.format("lawyer", "Kingston", "read this well", "the other side", "polite")])
    assert "avoidable                0 (" in text


@pytest.mark.parametrize("wide", ["", "😀"])
def test_fifty_turns_of_a_megabyte_fit(tmp_path: Path, wide: str) -> None:
    path, body = tmp_path / "t.jsonl", BODY * 1042  # a megabyte
    with path.open("w", encoding="utf-8") as file:
        for number in range(50):
            line = chat(system(f"Now: 10:{number:02}{wide}\n{body}"), Q1)
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    tracemalloc.start()
    try:
        text = explain(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "turns 3 to 50" in text
    assert peak < MOST_BYTES


def test_turns_of_ten_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    text = explained(path, [f"Now: 10:4{n}\n" + BODY * 10_420 for n in range(2)])
    assert "a time that changes each minute" in text
    assert f"{11 + len(BODY) * 10_420:,}" in text
