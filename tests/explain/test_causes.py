"""Every kind of break, in a table of conversations: the exact offset, place and cause."""

from __future__ import annotations

from typing import Any

import pytest

from explain_cases import (
    A1,
    A2,
    DOC,
    FORMS,
    IDS,
    LONG,
    Q1,
    Q2,
    Q3,
    SYS,
    TIMES,
    Case,
    chat,
    tool,
    user,
)
from explain_cases_history import HISTORY
from request_timing.explain.causes import compare
from request_timing.explain.kinds import APPEND, KINDS
from request_timing.prompts.rendering import render

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


PUT = {"type": "string", "description": "max age in seconds"}
SEALED = [{"type": "reasoning.encrypted", "data": "QWxhZGRpbjpvcGVu"}]
# (what one turn has, and the next has not so; kind and detail of the break)
READ: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "a tool's property that is called cache_control": (
        {"tools": [tool("put", properties={"cache_control": PUT})]},
        {"tools": [tool("put", properties={"cache_control": PUT | {"description": "how long"}})]},
        "system", "another definition of a tool"),
    "a stored prompt's version": (
        {"prompt": {"id": "p", "version": "1"}}, {"prompt": {"id": "p", "version": "2"}},
        "system", "another prompt"),
    "documents": ({"documents": [{"text": "A"}]}, {"documents": [{"text": "B"}]}, "system",
                  "other documents"),
    "the choice of a tool": ({"tool_choice": "auto"}, {"tool_choice": "none"}, "system",
                             "another tool_choice"),
}


@pytest.mark.parametrize("name", READ)
def test_what_a_model_reads_is_compared(name: str) -> None:
    old, new, kind, detail = READ[name]
    found = compare(render(chat(SYS, Q1) | old), render(chat(SYS, Q1, A1, Q2) | new))
    assert [(item.kind, item.detail) for item in found.breaks] == [(kind, detail)]


def test_marks_of_what_to_cache_are_not_read() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    parts = [{"type": "search_result", "content": [{"type": "text", "text": "x"} | mark]} | mark]
    bare = [{"type": "search_result", "content": [{"type": "text", "text": "x"}]}]
    marked = chat(SYS | mark, {"role": "user", "content": parts}, tools=[tool("f") | mark]) | mark
    same = chat(SYS, {"role": "user", "content": bare}, tools=[tool("f")])
    assert render(marked).data == render(same).data


@pytest.mark.parametrize("field", ["reasoning_details", "reasoning_content"])
def test_thinking_that_is_gone_is_seen_in_any_field(field: str) -> None:
    thought: Any = SEALED if field == "reasoning_details" else "Hm, Monday."
    found = compare(render(chat(Q1, A1 | {field: thought}, Q2)), render(chat(Q1, A1, Q2, A2, Q3)))
    assert [item.kind for item in found.breaks] == ["thinking"]


def test_the_input_of_a_custom_tool_is_compared() -> None:
    def body(code: str) -> dict[str, Any]:
        return {"input": [Q1, {"type": "custom_tool_call", "call_id": "c", "name": "run",
                               "input": code}, Q2]}

    assert compare(render(body("print(1)")), render(body("print(2)"))).breaks


def test_one_tool_of_many_allowed_leaves_the_prompt_as_it_is() -> None:
    """What `allowed_tools` was made for: a choice that changes without the cache being lost."""
    choices = [{"tool_choice": {"type": "allowed_tools", "tools": [{"name": name}]}}
               for name in "ab"]
    found = compare(*(render(chat(SYS, Q1, **choice)) for choice in choices))
    assert found.breaks == ()


@pytest.mark.parametrize("name", APPENDS)
def test_what_only_adds_breaks_nothing(name: str) -> None:
    before, after = map(render, APPENDS[name])
    found = compare(before, after)
    assert (found.breaks, found.avoidable_chars, found.is_same) == ((), 0, False)
    assert found.nothing == ("nothing: it is the beginning of the turn before"
                             if "shorter" in name else "nothing: it appends")


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
