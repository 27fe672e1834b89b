"""A repair damages nothing: what it does not move is as it was sent, and what it moves is whole."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from explain_cases import A1, A2, DOC, Q1, Q2, Q3, SYS, answer, chat, system, tool, user
from request_timing.explain.turns import explain_turns
from request_timing.prompts.captured import Turn, turn_of
from request_timing.prompts.lossless_json import parse_json
from request_timing.repair.places import append
from request_timing.repair.repairs import Repaired, repair
from request_timing.repair.segments import block, keeps_json, piece_at

MARK = {"cache_control": {"type": "ephemeral"}}


def mended(*values: Any) -> Repaired:
    """What --what-if makes of turns; a bytes value is a body as it was sent."""
    turns = [turn_of(parse_json(value), "x", "x", value) if isinstance(value, bytes)
             else turn_of(value, "x", "x") for value in values]
    return repair(turns, [item.comparison for item in explain_turns(turns)])


def bodies(done: Repaired) -> list[Any]:
    return [turn.body() for turn in done.turns]


def is_left(*values: Any) -> str:
    """That turns come back as they were, and what is said of it."""
    done = mended(*values)
    assert bodies(done) == list(values)
    assert len(done.lines) == 1 and ": left as it is" in done.lines[0]
    return done.lines[0]


def words_of(turn: Turn) -> Counter[str]:
    """The words of all texts of a turn."""
    def texts(value: Any) -> list[str]:
        if isinstance(value, dict | list):
            held = value.values() if isinstance(value, dict) else value
            return [text for item in held for text in texts(item)]
        return [str(value)]
    return Counter(" ".join(texts(turn.body())).split())


def call(call_id: str, arguments: str = "{}", text: str = "The result of it.") -> list[Any]:
    """A call and its result."""
    return [answer("", tool_calls=[{"id": call_id, "type": "function", "function": {
        "name": "f", "arguments": arguments}}]),
        {"role": "tool", "tool_call_id": call_id, "content": text}]


def used(call_id: str) -> list[Any]:
    """A call and its result, as Anthropic has them."""
    return [{"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "f",
                                               "input": {"n": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id,
                                          "content": "The result of it."}]}]


def test_marks_of_what_to_cache_stay() -> None:
    def body(now: str) -> dict[str, Any]:
        return {"system": [{"type": "text", "text": f"Now: {now}\n{DOC}"} | MARK],
                "messages": [Q1], "tools": [{"name": "f", "input_schema": {}} | MARK]}

    done = mended(body("10:41"), body("10:42"))
    for found in bodies(done):
        assert found["system"] == [{"type": "text", "text": DOC} | MARK]
        assert found["tools"] == [{"name": "f", "input_schema": {}} | MARK]


@pytest.mark.parametrize(("old", "new"), [
    ("Memory: the user has an older brother who lives by the sea, near his mother.",
     "Memory: the user met a famous and well known person on the way to Paris, a dancer."),
    ("Facts from memory: the account holds, as of the last booking, EUR 1450.",
     "Facts from memory: his daughter has moved, and the house was built in 1950."),
])
@pytest.mark.parametrize(("end", "doc"), [("\n", DOC), (" ", DOC.replace("\n", " "))])
def test_a_block_is_moved_whole(old: str, new: str, end: str, doc: str) -> None:
    done = mended(chat(system(old + end + doc), Q1), chat(system(new + end + doc), Q1, A1, Q2))
    assert [found["messages"][0]["content"] for found in bodies(done)] == [doc, doc]
    assert [found["messages"][-1]["content"] for found in bodies(done)] == [
        f"{Q1['content']}\n\n{old}", f"{Q2['content']}\n\n{new}"]


def test_a_block_that_begins_as_the_text_behind_it_is_moved_whole() -> None:
    new = "The user likes boats and oranges, says memory.\n"
    done = mended(chat(system(DOC), Q1), chat(system(new + DOC), Q1, A1, Q2))
    assert bodies(done)[1]["messages"] == [
        system(DOC), Q1, A1, user(f"{Q2['content']}\n\n{new.strip()}")]


def test_a_part_that_begins_as_the_part_behind_it_is_moved_whole() -> None:
    def body(*texts: str) -> dict[str, Any]:
        return {"system": [{"type": "text", "text": text} for text in texts], "messages": [Q1]}

    new = "The user likes boats and oranges, says memory, and this is a block."
    done = mended(body("Be kind.", DOC), body("Be kind.", new, DOC))
    assert bodies(done)[1]["system"] == body("Be kind.", DOC)["system"]
    assert bodies(done)[1]["messages"] == [user(f"{Q1['content']}\n\n{new}")]


@pytest.mark.parametrize("made", [call, used])
def test_ids_of_calls_stay_with_their_calls(made: Any) -> None:
    said = is_left(chat(SYS, Q1, *made("call_a1b2c3d4e5")),
                   chat(SYS, Q1, *made("call_99zzc3d4f6"), A1, Q2))
    assert "(it is no text of the system or of a user)" in said


def test_arguments_stay_with_their_calls() -> None:
    is_left(chat(SYS, Q1, *call("c", '{"ts": "10:41", "x": 1}')),
            chat(SYS, Q1, *call("c", '{"ts": "10:42", "x": 1}'), A1, Q2))


@pytest.mark.parametrize("old", ["assistant", "tool"])
def test_what_a_model_or_a_tool_said_is_not_put_into_the_users_mouth(old: str) -> None:
    def body(now: str, *more: Any) -> dict[str, Any]:
        return chat(SYS, Q1, {"role": old, "content": f"It is {now} now.\n{DOC}"}, *more)

    is_left(body("10:41"), body("10:42", Q2))


@pytest.mark.parametrize("first", ["2001-01-01", "1832-01-01", "2026-11-28"])
def test_the_line_that_changes_is_moved_and_no_other(first: str) -> None:
    def text(now: str) -> str:
        return f"Founded:\n{first}\nNow:\n{now}\n{DOC}"

    done = mended(*[chat(system(text(f"2026-11-{day}")), Q1) for day in (28, 29, 29, 30)])
    for found, day in zip(bodies(done), (28, 29, 29, 30), strict=True):
        assert found["messages"] == [system(f"Founded:\n{first}\n{DOC}"),
                                     user(f"{Q1['content']}\n\nNow:\n2026-11-{day}")]
    assert done.lines == (
        "the time in messages[0].content moved to the end of the last user message, 4 turns",)


def test_a_break_in_front_that_stays_shifts_no_cut() -> None:
    """The two texts are of other lengths where the time stands."""
    heads = ["You are a pirate and speak so, and you like the sea very much, my dear friend.\n",
             "Be brief.\n"]
    values = [chat(system(f"{heads[n > 0]}{DOC}Now: 10:4{n}\n{DOC}"), Q1) for n in range(3)]
    for n, found in enumerate(bodies(mended(*values))):
        assert found["messages"] == [system(f"{heads[n > 0]}{DOC}{DOC}"),
                                     user(f"{Q1['content']}\n\nNow: 10:4{n}")]


@pytest.mark.parametrize(("above", "below"), [
    ("## Current Time\n", "\n## Runtime\nLinux\n"), ("<now>\n", "</now>\n"), ("Time:\n", "")])
def test_a_label_goes_along(above: str, below: str) -> None:
    values = [chat(system(f"Be kind.\n{above}2026-11-29 10:4{n}\n{below}{DOC}"), Q1)
              for n in range(3)]
    kept = below.replace("</now>\n", "").removeprefix("\n" if above.startswith("#") else "")
    for found in bodies(mended(*values)):
        text = found["messages"][0]["content"]
        assert text.replace("\n\n", "\n") == f"Be kind.\n{kept}{DOC}"
        assert above.strip() in found["messages"][1]["content"]


@pytest.mark.parametrize("text", [
    '{{\n  "user": "x",\n  "now": "{}"\n}}\n', '[\n  {{"now": "{}"\n  }}\n]\n',
    'Context: {{"a": [\n"x",\n"{}"\n]}}\n'])
def test_json_stays_json(text: str) -> None:
    said = is_left(*[chat(system(text.format(f"10:4{n}") + DOC), Q1) for n in range(2)])
    assert "(what is left would not be what it was: JSON" in said


def test_code_stays_code() -> None:
    code = '```python\nstart = "{}"\nrun(start)\n```\n'
    assert "code" in is_left(*[chat(system(code.format(f"10:4{n}") + DOC), Q1) for n in range(2)])


def test_a_line_that_json_can_spare_is_moved() -> None:
    text = '{{\n  "now": "{}",\n  "user": "x"\n}}\n'
    done = mended(*[chat(system(text.format(f"10:4{n}") + DOC), Q1) for n in range(2)])
    for found in bodies(done):
        left = found["messages"][0]["content"].removesuffix(DOC)
        assert json.loads(left) == {"user": "x"}


TAGGED = "The tag <think> opens it. IMPORTANT: the rest of the answer."


def test_thinking_is_cut_where_an_answer_begins_with_it_and_is_closed() -> None:
    thought = "<think>What could this mean?</think>"
    done = mended(chat(SYS, Q1, answer(thought + TAGGED), Q2),
                  chat(SYS, Q1, answer(TAGGED), Q2, A2, Q3))
    assert bodies(done)[0]["messages"][2] == answer(TAGGED)
    assert done.lines == ("earlier thinking dropped, 2 turns",)


def test_a_tag_that_is_spoken_of_cuts_nothing() -> None:
    is_left("User: explain <think> please\n<think>long thoughts</think>Answer one.\n"
            f"User: the next question\n{DOC}",
            f"User: explain <think> please\nAnswer one.\nUser: the next question\n{DOC}more")


def test_thinking_of_a_templated_prompt_goes_with_its_marks_left() -> None:
    def prompt(thought: str) -> str:
        return (f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{thought}Hello, sailor."
                f"<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n{DOC}")

    assert bodies(mended(prompt("<think>\nHm.\n</think>\n\n"), prompt("")))[0] == prompt("")


@pytest.mark.parametrize("inserted", [
    call("m", '{"path": "notes.md"}', "memory: he likes walks, oranges and the sea"),
    [answer("I remember: he likes walks, oranges and the sea.")],
    [user("What is known of him?"), answer("He likes walks, oranges and the sea.")]])
def test_messages_of_others_are_not_moved(inserted: list[Any]) -> None:
    assert "not all plain text" in is_left(chat(SYS, Q1), chat(SYS, *inserted, Q1, A1, Q2))


@pytest.mark.parametrize(("old", "new"), [
    (b'{"a": 1, "b": 12345678901234567890.123}', b'{"b": 12345678901234567890.123, "a": 1}'),
    (b'{"a": 1e999, "b": 2}', b'{"b": 2, "a": 1e999}'),
    (b'{"a": -0.0, "b": 1.50}', b'{"b": 1.50, "a": -0.0}'),
    (b'{"a": 123456789012345678901234567890, "b": 1}',
     b'{"b": 1, "a": 123456789012345678901234567890}'),
])
@pytest.mark.parametrize("place", ["text", "tool"])
def test_numbers_keep_their_digits(old: bytes, new: bytes, place: str) -> None:
    tools = b'{"tools": [{"type": "function", "function": {"name": "f", "parameters": %s}}], '
    raws = [b'{"messages": [{"role": "user", "content": %s}]}' % json.dumps(x.decode()).encode()
            if place == "text" else tools % x + b'"messages": [{"role": "user", "content": "x"}]}'
            for x in (old, new)]
    done = mended(raws[0], raws[1][:-2] + b', {"role": "user", "content": "y"}]}')
    inner = old if place == "tool" else json.dumps(old.decode()).encode()[1:-1]
    assert [inner in turn.raw for turn in done.turns] == [True, True]
    assert len(done.lines) == 1 and "as the turn before wrote it" in done.lines[0]


def test_json_in_which_a_key_comes_twice_is_left_alone() -> None:
    is_left(chat(SYS, user('{"a": 1, "b": 2, "cache_control": "x", "b": 3}')),
            chat(SYS, user('{"b": 2, "a": 1, "cache_control": "x", "b": 3}'), A1, Q2))


def test_only_the_list_that_changed_is_put_in_order() -> None:
    steps = user("Run in this order:\ngamma()\nbeta()\nalpha()\nor it breaks")
    head = "Steps seen:\n{}\nSteps to do:\nbeta()\nalpha()\ngamma()\n"
    orders = ["alpha()\nbeta()\ngamma()", "beta()\ngamma()\nalpha()"]
    first, second = (chat(system(head.format(order) + DOC), steps) for order in orders)
    assert bodies(mended(first, second)) == [first, first]


def test_items_of_several_lines_are_not_torn_apart() -> None:
    files = ["<file path=a.py>\nimport b\nprint(1)\n</file>", "<file path=b.py>\nimport a\n</file>"]
    texts = ["\n".join([*order, DOC]) for order in (files, files[::-1])]
    assert bodies(mended(*texts)) == [texts[0], texts[0]]


@pytest.mark.parametrize(("old", "new"), [
    ("cafe\u0301", "caf\u00e9"), ("You  answer", "You answer"), ("10\u00a0km", "10 km")])
def test_the_form_of_other_text_stays(old: str, new: str) -> None:
    table = user('TSV:\na\tb\tc\nx = "a    b"  # two  spaces, cafe\u0301')
    first, second = (chat(system(f"{text} rules.\n{DOC}"), table) for text in (old, new))
    assert bodies(mended(first, second)) == [first, first]


def test_indented_code_is_not_indented_anew() -> None:
    code = "Code:\nif a:\n    b()\n{}c()\n"
    assert "indented otherwise" in is_left(*[chat(system(code.format(space) + DOC), Q1)
                                             for space in ("    ", "")])


def test_tools_keep_their_marks_at_the_end() -> None:
    tools: list[dict[str, Any]] = [{"name": name, "input_schema": {}} for name in "bac"]
    orders = [[tools[n] for n in order] for order in ([0, 1, 2], [2, 0, 1])]
    marked = [{"tools": [*order[:-1], order[-1] | MARK], "messages": [Q1]} for order in orders]
    assert bodies(mended(*marked)) == [marked[0], marked[0]]


def test_what_is_said_to_be_mended_is() -> None:
    """The turns share more, or nothing is claimed and they come back as they were."""
    for values in ([chat(user("Now: 10:41")), chat(user("Now: 10:42"))],
                   [chat(SYS, user("Q?\n\nNow: 10:41")), chat(SYS, user("Q?"), A1, Q2)]):
        done = mended(*values)
        assert bodies(done) == values
        assert not [line for line in done.lines if "moved" in line]


def test_no_word_is_lost_of_what_is_moved() -> None:
    tools = [tool("b"), tool("a")]
    values = [chat(system(f"Now: 10:4{n}\nSession: a{n}b2c3d4e{n}\n{DOC}Turn {n} of 9.\n"),
                   *[Q1, A1, Q2, A2, Q3][:2 * n + 1], tools=tools[::(-1) ** n])
              for n in range(3)]
    done = mended(*values)
    assert [words_of(turn) for turn in done.turns] == [
        words_of(turn_of(value, "x", "x")) for value in values]
    assert [t.shared_chars for t in explain_turns(done.turns)][2] > len(DOC) + 300


@pytest.mark.parametrize("logged", [
    lambda n: "; ".join(f"10:{(k + n) % 60:02}:00" for k in range(20_000)),
    lambda n: json.dumps([{"t": f"10:{(k + n) % 60:02}", "m": f"event {k}"}
                          for k in range(8_000)])], ids=["times", "json"])
def test_a_log_in_one_line_costs_no_time(logged: Callable[[int], str]) -> None:
    turns = [turn_of(chat(system(logged(n)), Q1), "x", "x") for n in range(2)]
    comparisons = [item.comparison for item in explain_turns(turns)]
    start = time.perf_counter()
    assert repair(turns, comparisons).turns == tuple(turns)
    assert time.perf_counter() - start < 8.0  # a quarter of that, on an idle core


def test_where_a_text_goes_in_a_templated_prompt() -> None:
    head = "<|im_start|>system\nHi<|im_end|>\n<|im_start|>user\nMore"
    tail = "<|im_end|>\n<|im_start|>assistant\n"
    assert append(head + tail, "Now: 10:41") == f"{head}\n\nNow: 10:41{tail}"
    assert append("Plain.", "Now: 10:41") == "Plain.\n\nNow: 10:41"


@pytest.mark.parametrize(("text", "at", "piece"), [
    ("a\nNow: 10:41\nb", 9, "Now: 10:41\n"), ("Now:\n10:41\nb", 8, "Now:\n10:41\n"),
    ("Rules for you:\nIt is 10:41 in the north of it.\nb", 20, "It is 10:41 in the north of it.\n"),
    ("It is 10:41 a.m. now. " + "Be kind. " * 30, 9, "It is 10:41 a.m. now. "),
    ("x" * 5000, 9, None), ("", 0, None)])
def test_pieces(text: str, at: int, piece: str | None) -> None:
    found = piece_at(text, at)
    assert (None if found is None else text[slice(*found)]) == piece


def test_blocks() -> None:
    text = "The cat sat.\nThe dog ran.\n"
    assert block(text, 4, 17, alone=True) == (0, 13)
    assert block("abcdef", 2, 4, alone=True) is None
    assert block("one two three", 4, 8, alone=True) == (4, 8)


@pytest.mark.parametrize(("text", "piece", "kept"), [
    ('{"a": 1,\n"b": 2}', '"a": 1,\n', True), ('{"a": 1,\n"b": 2}', '"b": 2', False),
    ("no [json\nhere", "here", True), ('x {"a": "one. two."} y', "one. ", True)])
def test_what_json_can_spare(text: str, piece: str, kept: bool) -> None:
    start = text.index(piece)
    assert keeps_json(text, start, start + len(piece)) is kept
