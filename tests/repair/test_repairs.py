"""A repair is measured by what it is for: the repaired turns break less, and no text is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from explain_cases import A1, A2, DOC, Q1, Q2, Q3, SYS, answer, chat, system, tool, user
from explain_cases_history import MEMORY, OTHER, THOUGHT
from request_timing.explain.causes import compare
from request_timing.explain.turns import explain_turns
from request_timing.prompts.captured import turn_of
from request_timing.prompts.lossless_json import to_json
from request_timing.prompts.rendering import render
from request_timing.repair.repairs import repair
from request_timing.repair.transforms import coarse


def repaired(*values: Any) -> tuple[list[Any], tuple[str, ...], list[int], list[int]]:
    """The bodies after the repair, what was said, and avoidable characters before and after."""
    turns = [turn_of(value, "x", "x") for value in values]
    before = list(explain_turns(turns))
    done = repair(turns, [item.comparison for item in before])
    after = list(explain_turns(done.turns))
    return ([turn.body() for turn in done.turns], done.lines,
            [item.avoidable_chars for item in before], [item.avoidable_chars for item in after])


def test_a_clock_moves_behind_the_last_question() -> None:
    bodies, lines, before, after = repaired(
        chat(system(f"Now: 10:41\n{DOC}"), Q1), chat(system(f"Now: 10:42\n{DOC}"), Q1, A1, Q2))
    assert bodies[0]["messages"] == [system(DOC), user(Q1["content"] + "\n\nNow: 10:41")]
    assert bodies[1]["messages"] == [system(DOC), Q1, A1, user(Q2["content"] + "\n\nNow: 10:42")]
    assert lines == (
        "the time in messages[0].content moved to the end of the last user message, 2 turns",)
    assert (before[1] > len(DOC), after[1] == 0) == (True, True)


def test_a_clock_in_a_sentence_takes_its_sentence_along() -> None:
    text = "You are kind. It is 10:4{} now. " + " ".join(DOC.split("\n"))
    bodies, *_ = repaired(text.format(1), text.format(2))
    assert bodies[1].startswith("You are kind. The lighthouse")
    assert bodies[1].endswith("\n\nIt is 10:42 now.")


def test_an_id_in_anthropic_parts_moves_into_a_part() -> None:
    def body(session: str) -> dict[str, Any]:
        return {"system": [{"type": "text", "text": f"Session: {session}\n{DOC}"}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}

    bodies, _, _, after = repaired(body("a1b2c3d4e5"), body("99b2c3d4e5"))
    assert bodies[1]["system"][0]["text"] == DOC
    assert bodies[1]["messages"][0]["content"][-1]["text"] == "Session: 99b2c3d4e5"
    assert after[1] <= 1  # the line end behind the session


def test_a_time_in_a_tool_is_made_coarser() -> None:
    def body(now: str) -> dict[str, Any]:
        return chat(SYS, Q1, tools=[tool("f") | {"about": f"It is 2026-01-01 {now}."}])

    bodies, lines, before, after = repaired(body("10:41:07"), body("10:42:09"))
    assert bodies[0] == bodies[1]
    assert "made coarser: to the day" in lines[0]
    assert (before[1] > 0, after[1]) == (True, 0)


def test_tools_keep_the_order_in_which_they_were_first_sent() -> None:
    tools = [tool("b", required=["y", "x"]), tool("a")]
    bodies, _, before, after = repaired(chat(Q1, tools=tools), chat(Q1, A1, Q2, tools=tools[::-1]))
    assert bodies[0]["tools"] == bodies[1]["tools"] == tools
    assert (before[1] > 0, after[1]) == (True, 0)


def test_lines_in_another_order_keep_the_first() -> None:
    bodies, lines, before, after = repaired(f"Files:\nmain.py\nrun.py\ntest.py\n{DOC}",
                                       f"Files:\nrun.py\ntest.py\nmain.py\n{DOC}more")
    assert lines == ("the list in prompt written as the turn before wrote it, 1 turn",)
    assert bodies[1] == f"Files:\nmain.py\nrun.py\ntest.py\n{DOC}more"
    assert (before[1] > len(DOC), after[1]) == (True, 0)


@pytest.mark.parametrize(("old", "new"), [
    ({"type": "object", "title": "T"}, {"title": "T", "type": "object"}), ({"n": 10}, {"n": 10.0}),
])
def test_json_is_written_as_it_was_first(old: dict[str, Any], new: dict[str, Any]) -> None:
    bodies, *_, after = repaired(chat(Q1, tools=[tool("f", **old)]),
                                 chat(Q1, A1, Q2, tools=[tool("f", **new)]))
    assert to_json(bodies[0]["tools"]) == to_json(bodies[1]["tools"])
    assert after[1] == 0


def test_characters_become_one_form() -> None:
    *_, before, after = repaired(chat(system(DOC), Q1),
                                 chat(system(DOC.replace("\n", "\r\n")), Q1, A1, Q2))
    assert (before[1] > 0, after[1]) == (True, 0)


def test_a_block_in_front_moves_behind() -> None:
    bodies, lines, before, after = repaired(
        chat(system(MEMORY + DOC), Q1), chat(system(OTHER + DOC), Q1, A1, Q2))
    assert lines == ("blocks in front moved to the end of the last user message, 2 turns",)
    assert "sister" in bodies[1]["messages"][-1]["content"]
    assert (before[1] > len(DOC), after[1] < 20) == (True, True)


def test_a_memory_message_moves_behind() -> None:
    bodies, _, before, after = repaired(chat(SYS, Q1), chat(SYS, system(MEMORY), Q1, A1, Q2))
    assert bodies[1]["messages"] == [SYS, Q1, A1, user(f"{Q2['content']}\n\n{MEMORY.strip()}")]
    assert (before[1] > len(Q1["content"]), after[1]) == (True, 0)


def test_thinking_is_dropped_everywhere() -> None:
    bodies, _, before, after = repaired(
        chat(Q1, answer(THOUGHT + A1["content"]), Q2), chat(Q1, A1, Q2, A2, Q3))
    assert bodies[0]["messages"][1] == A1
    assert (before[1] > 0, after[1]) == (True, 0)


def test_the_second_break_is_mended_too() -> None:
    tools = [tool("b"), tool("a")]
    *_, before, after = repaired(
        chat(system(f"Now: 10:41\n{DOC}"), Q1, tools=tools),
        chat(system(f"Now: 10:42\n{DOC}"), Q1, A1, Q2, tools=tools[::-1]))
    assert (before[1] > len(DOC), after[1]) == (True, 0)


def test_a_clock_and_a_block_at_one_place_both_move_whole() -> None:
    bodies, *_ = repaired(chat(system(f"Now: 10:41\n{MEMORY}{DOC}"), Q1),
                          chat(system(f"Now: 10:42\n{OTHER}{DOC}"), Q1, A1, Q2))
    assert bodies[1]["messages"][0]["content"].endswith(DOC)
    last = bodies[1]["messages"][-1]["content"]
    assert "Now: 10:42" in last
    assert "The user has a sister." in last


def test_two_clocks_at_one_place_both_move() -> None:
    *_, before, after = repaired(f"Start 10:41\n{DOC}End 10:41:07\n{DOC}",
                                 f"Start 10:42\n{DOC}End 10:42:09\n{DOC}more")
    assert (before[1] > len(DOC), after[1] < 20) == (True, True)


def test_what_cannot_be_mended_is_left_and_said() -> None:
    values = (chat(SYS, Q1, A1, Q2, A2, Q3), chat(SYS, Q2, A2, Q3))
    bodies, lines, *_ = repaired(*values)
    assert bodies == list(values)
    assert len(lines) == 1
    assert lines[0].startswith("turn 2: 2 messages cut off in front of what stays: left as it is")


def test_what_only_adds_is_returned_byte_for_byte() -> None:
    turns = [turn_of(json.loads(raw), "x", "x", raw.encode()) for raw in (
        '{"messages":[{"role":"user","content":"a"}],"temperature":0.70}',
        '{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}')]
    done = repair(turns, [None, compare(*(render(turn.body()) for turn in turns))])
    assert (done.turns, done.lines) == (tuple(turns), ())


def test_the_single_transformations() -> None:
    assert coarse("at 2026-01-01 10:41:07.5, 1767225661") == "at 2026-01-01 00:00:00.0, 1767225600"
    assert coarse("10:41, then 10:42", 0) == "00:00, then 10:42"
