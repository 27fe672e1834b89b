"""Every kind of break, in a table of conversations: the exact offset, place and cause."""

from __future__ import annotations

import pytest

from causes import compare
from explain_cases import A1, A2, DOC, FORMS, IDS, LONG, Q1, Q2, Q3, SYS, TIMES, Case, chat, user
from explain_cases_history import HISTORY
from kinds import APPEND, KINDS
from rendering import render

CASES = [*TIMES, *IDS, *FORMS, *HISTORY]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_offset_place_and_cause(case: Case) -> None:
    found = compare(render(case.before), render(case.after))
    first = found.breaks[0]
    kinds = (first.kind, *(item.kind for item in found.breaks[1:][:len(case.then)]))
    assert (kinds, first.at.offset_bytes, first.at.place) == (
        (case.kind, *case.then), len(case.shared.encode()), case.place), first
    assert first.detail == (case.detail or first.detail)
    if case.kind != "model":
        assert render(case.after).data.startswith(case.shared.encode())
        assert found.first == first.at


def test_there_are_enough_cases_and_every_kind_has_one() -> None:
    assert len(CASES) >= 40
    assert {case.kind for case in CASES} | {APPEND} == set(KINDS)


APPENDS = {
    "messages": (chat(SYS, Q1), chat(SYS, Q1, A1, Q2)),
    "a plain prompt": (LONG, LONG + "And more.\n"),
    "the last message goes on": (chat(SYS, user("One.")), chat(SYS, user("One. Two."))),
    "a date in the new question": (chat(SYS, Q1), chat(SYS, Q1, A1, user("On 2026-01-02?"))),
    "a text as parts": (chat(SYS, user("Hello")), chat(SYS, {"role": "user", "content": [
        {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]}, A1, Q2)),
    "cache_control moves on": (
        {"system": "s", "messages": [{"role": "user", "content": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]},
        {"system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
                                     A1, Q2]}),
    "a shorter turn that begins alike": (chat(SYS, Q1, A1, Q2), chat(SYS, Q1)),
}


@pytest.mark.parametrize("name", APPENDS)
def test_what_only_adds_breaks_nothing(name: str) -> None:
    before, after = map(render, APPENDS[name])
    found = compare(before, after)
    assert (found.breaks, found.avoidable_chars, found.is_same) == ((), 0, False)


def test_the_same_turn_twice() -> None:
    found = compare(render(chat(SYS, Q1)), render(chat(SYS, Q1)))
    assert (found.breaks, found.is_same) == ((), True)


def test_what_a_clock_costs_is_what_stands_behind_it() -> None:
    before, after = f"Time: 10:41\n{DOC}", f"Time: 10:42\n{DOC}New question"
    found = compare(render(before), render(after))
    assert found.first.shared_chars == len("Time: 10:4")
    assert found.avoidable_chars == len("\n" + DOC)


def test_what_a_window_costs_is_what_is_left_of_it() -> None:
    found = compare(render(chat(SYS, Q1, A1, Q2, A2, Q3)), render(chat(SYS, Q2, A2, Q3)))
    header = len("<|user|>\n")
    behind = sum(len(f"<|{m['role']}|>\n{m['content']}\n") for m in (Q2, A2, Q3))
    assert found.avoidable_chars == behind - header
