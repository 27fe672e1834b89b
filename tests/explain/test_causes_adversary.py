"""Prompts as real agents build them, each with what would fool a detector; the causes in order.

After nanobot's clock, tool lists from a set, retrieved text in front, windows, pruning,
compaction as coding agents do it, thinking stripped by templates, and look-alikes that are none.
"""

from __future__ import annotations

from typing import Any

import pytest

from explain_cases import A1, A2, A3, DOC, Q1, Q2, Q3, Q4, SYS, answer, chat, system, tool, user
from explain_cases_history import MEMORY, OTHER, THOUGHT
from request_timing.explain.causes import compare
from request_timing.prompts.rendering import render

LD = DOC * 6
HISTORY = [m for k in range(12) for m in (
    user(f"Question number {k}: what happened on day {k} of the diary?"),
    answer(f"On day {k} the sea brought {k * 3} oranges."))]
TOOLS = [tool(name, type="object", properties={"q": {"type": "string"}}, required=["q"])
         for name in ("search", "fetch", "write_file", "exec")]
CHUNKS = ["The harbour was built in 1832 by the Danish crown, of granite.",
          "Oranges were imported from Spain on the ship Maria.",
          "A chart of the coast hangs in the town hall since 1900.",
          "Letters were carried by the postal steamer each Friday."]


def nanobot(now: str) -> dict[str, Any]:
    return system("# nanobot\n\nYou are nanobot, a helpful AI assistant.\n\n## Current Time\n"
                  f"{now}\n\n## Runtime\nLinux x86_64, Python 3.12.1\n\n## Workspace\n"
                  "- Memory files: /home/.nanobot/workspace/memory/MEMORY.md\n\n" + LD)


def retrieved(*chunks: str) -> dict[str, Any]:
    return system("Use the following pieces of context to answer the question.\n\n"
                  + "\n\n".join(chunks) + "\n\nBe brief.\n" + LD)


def called(arguments: str) -> dict[str, Any]:
    return answer("", tool_calls=[{"id": "c", "type": "function", "function": {
        "name": "f", "arguments": arguments}}])


def tool_says(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": text}


def result(text: str) -> dict[str, Any]:
    """A tool's result, as Anthropic has it."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                                         "content": text}]}


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


CUE, EMPTY = "<|im_start|>assistant\n", "<think>\n\n</think>\n\n"

CASES: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "nanobot's clock": (
        chat(nanobot("2026-02-06 09:59 (Friday)"), Q1),
        chat(nanobot("2026-02-06 10:00 (Friday)"), Q1, A1, Q2), ("time",)),
    "a clock in a sentence": (
        chat(system(f"Today's date and time is: Friday, 06 February 2026 09:59:12 UTC. {LD}"), Q1),
        chat(system(f"Today's date and time is: Friday, 06 February 2026 10:00:01 UTC. {LD}"), Q1),
        ("time",)),
    "tools from a set": (
        chat(SYS, Q1, tools=TOOLS),
        chat(SYS, Q1, A1, Q2, tools=[TOOLS[2], TOOLS[0], TOOLS[3], TOOLS[1]]), ("order",)),
    "tools from a set, and a clock": (
        chat(system("Now: 10:41\n" + LD), Q1, tools=TOOLS),
        chat(system("Now: 10:42\n" + LD), Q1, A1, Q2, tools=TOOLS[::-1]), ("order", "time")),
    "a tool of another server joins": (
        chat(SYS, Q1, tools=TOOLS),
        chat(SYS, Q1, A1, Q2, tools=[*TOOLS, tool("mcp__x")]), ("system",)),
    "retrieved chunks in the system prompt": (
        chat(retrieved(*CHUNKS[:2]), Q1), chat(retrieved(*CHUNKS[2:], CHUNKS[0]), Q1, A1, Q2),
        ("inserted", "inserted")),
    "the same chunks ranked anew": (
        chat(retrieved(*CHUNKS[:3]), Q1),
        chat(retrieved(CHUNKS[2], CHUNKS[0], CHUNKS[1]), Q1, A1, Q2), ("order",)),
    "retrieved text that does not stay in the history": (
        chat(SYS, user(f"Context:\n{CHUNKS[0]}\n{CHUNKS[1]}\n\nQuestion: where?")),
        chat(SYS, user("where?"), A1, user(f"Context:\n{CHUNKS[2]}\n\nQuestion: who?")),
        ("inserted",)),
    "memories in front of the question": (
        chat(SYS, user(MEMORY + "What now?")), chat(SYS, user(OTHER + "What now?"), A1, Q2),
        ("inserted",)),
    "a reminder that moves on": (
        chat(SYS, Q1, A1, user("<system-reminder>Todo list is empty</system-reminder>\nNext?")),
        chat(SYS, Q1, A1, user("Next?"), A2, user("<system-reminder>None</system-reminder>\nAnd?")),
        ("inserted",)),
    "retrieved text in a plain prompt": (
        f"System: x\n\nContext:\n{CHUNKS[0]}\n{CHUNKS[1]}\n\nHistory:\n{LD}\nUser: a",
        f"System: x\n\nContext:\n{CHUNKS[2]}\n{CHUNKS[3]}\n\nHistory:\n{LD}\nUser: b",
        ("inserted", "edited")),
    "dates within a block that is another": (
        f"Docs:\n2026-01-01: apples are red and round\n2026-01-02: pears\n\n{LD}",
        f"Docs:\n2026-02-03: the harbour is closed today\n2026-02-09: ships\n\n{LD}x",
        ("inserted",)),
    "a window of eight": (chat(SYS, *HISTORY[2:11]), chat(SYS, *HISTORY[4:13]), ("cut",)),
    "a window that cuts between question and answer": (
        chat(SYS, *HISTORY[1:11]), chat(SYS, *HISTORY[4:13]), ("cut",)),
    "a window without system prompt": (chat(*HISTORY[:9]), chat(*HISTORY[2:11]), ("cut",)),
    "many like messages are no window": (
        chat(SYS, *[user("continue"), answer("ok")] * 6),
        chat(SYS, *[user("continue"), answer("ok")] * 6, user("continue")), ()),
    "a summary as a second system message": (
        chat(SYS, *HISTORY[:20]),
        chat(SYS, system("Summary of earlier turns: days of a diary."), *HISTORY[16:21]),
        ("compaction",)),
    "a coding agent's compaction": (
        chat(SYS, *HISTORY[:21]),
        chat(SYS, user("This session is being continued from a previous conversation that ran out "
                       "of context. It is summarized below:\noranges, days."),
             answer("Understood."), HISTORY[22]), ("compaction",)),
    "compaction that keeps a tail": (
        {"system": "s", "messages": HISTORY[:21]},
        {"system": "s", "messages": [user("<summary>The diary, days 0 to 9.</summary>"),
                                     *HISTORY[18:21]]}, ("compaction",)),
    "another conversation": (
        chat(SYS, *HISTORY[:9]), chat(SYS, user("A haiku about compilers, please")),
        ("unknown",)),
    "an old tool result is pruned": (
        chat(SYS, Q1, tool_says(LD), A1, Q2),
        chat(SYS, Q1, tool_says("[Old tool result content cleared]"), A1, Q2, A2, Q3), ("cut",)),
    "an old tool result of Anthropic's is pruned": (
        {"system": "s", "messages": [Q1, result(LD), A1, Q2]},
        {"system": "s", "messages": [Q1, result("[cleared]"), A1, Q2, A2, Q3]}, ("cut",)),
    "thinking stripped from all earlier answers": (
        chat(SYS, Q1, answer(THOUGHT + A1["content"]), Q2, answer(THOUGHT + A2["content"]), Q3),
        chat(SYS, Q1, A1, Q2, A2, Q3, answer(THOUGHT + A3["content"]), Q4),
        ("thinking", "thinking")),
    "an empty think block on the last turn only": (
        turn("user", "Hi") + CUE + EMPTY,
        turn("user", "Hi") + turn("assistant", "Hello") + turn("user", "More") + CUE + EMPTY,
        ("thinking",)),
    "analysis dropped by harmony": (
        "<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>analysis<|message|>Think"
        "<|end|><|start|>assistant<|channel|>final<|message|>Hello sailor<|end|>"
        "<|start|>user<|message|>x<|end|>",
        "<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>final<|message|>Hello "
        "sailor<|end|><|start|>user<|message|>x<|end|><|start|>assistant", ("thinking",)),
    "arguments respaced": (
        chat(Q1, called('{"a": 1, "b": [1, 2]}'), tool_says("x"), Q2),
        chat(Q1, called('{"a":1,"b":[1,2]}'), tool_says("x"), Q2, A2, Q3), ("json",)),
    "arguments with their keys in another order": (
        chat(Q1, called('{"a": 1, "b": [1, 2]}'), Q2),
        chat(Q1, called('{"b": [1, 2], "a": 1}'), Q2, A2, Q3), ("json",)),
    "an answer trimmed when it goes into the history": (
        chat(SYS, Q1, answer(A1["content"] + "\n\n"), Q2), chat(SYS, Q1, A1, Q2, A2, Q3),
        ("form",)),
    "a byte order mark": ("\ufeff" + LD, LD + "x", ("form",)),
    "line ends of a whole document": (
        chat(system(LD), Q1), chat(system(LD.replace("\n", "\r\n")), Q1, A1, Q2), ("form",)),
    "a session's hash": (f"[session 7f3a9c21b4]\n{LD}", f"[session 11d09aa7ce]\n{LD}x", ("id",)),
    "base64": (f"token=QWxhZGRpbjpvcGVuIHNlc2FtZQ==\n{LD}",
               f"token=R3VybGFuZDpvcGVuIHN0b3JlMTI=\n{LD}x", ("id",)),
    "a hash in a message that was edited": (
        chat(SYS, user("Check `sha256:ab12cd34ef` please, in file x."), A1, Q2),
        chat(SYS, user("Look at y instead: no lock file 99aabb11cc."), A1, Q2, A2, Q3),
        ("edited",)),
    "a version is no date": (f"App v1.2.3 ready.\n{LD}", f"App v1.2.4 ready.\n{LD}x", ("edited",)),
    "an address is no date": (f"Host 10.0.0.1 up.\n{LD}", f"Host 10.0.0.2 up.\n{LD}x",
                              ("edited",)),
    "a word as long as another is no nonce": (
        f"See the configuration.\n{LD}", f"See the documentation.\n{LD}x", ("edited",)),
    "time that elapsed": (f"Elapsed: 00:03:12\n{LD}", f"Elapsed: 00:04:02\n{LD}x", ("time",)),
    "a number in a header": (f"Weather: 21.5 C\n{LD}", f"Weather: 22.0 C\n{LD}x", ("id",)),
    "where the cursor is": (
        chat(system(LD + "Cursor is at line 12."), Q1),
        chat(system(LD + "Cursor is at line 48."), Q1, A1, Q2), ("id",)),
    "another name in the system prompt": (
        chat(system("You help Alice.\n" + LD), Q1), chat(system("You help Bob.\n" + LD), Q1),
        ("system",)),
    "a tool says where it runs": (
        chat(Q1, tools=[tool("f") | {"x": "Run in /tmp/a1. Careful."}]),
        chat(Q1, tools=[tool("f") | {"x": "Run in /home/b. Careful."}]), ("system",)),
    "an answer written again": (
        chat(SYS, Q1, A1, Q2, answer("Draft one is here, with words.")),
        chat(SYS, Q1, A1, Q2, answer("Another draft, other words!"), Q3), ("edited",)),
    "reasoning_content, then the same within the text": (
        chat(SYS, Q1, answer(A1["content"], reasoning_content="Hm."), Q2),
        chat(SYS, Q1, answer(f"<think>\nHm.\n</think>\n{A1['content']}"), Q2, A2, Q3), ()),
    "another reasoning effort": (
        chat(SYS, Q1, reasoning_effort="low"), chat(SYS, Q1, A1, Q2, reasoning_effort="high"),
        ("system",)),
    "other words of the same letters": (f"It is a nice house there.\n{LD}",
                                        f"It is an ice house there.\n{LD}", ("edited",)),
    "another number is no other form": (f"The room has 10² tiles.\n{LD}",
                                        f"The room has 102 tiles.\n{LD}", ("edited",)),
    "another sign is no other form": (f"Choose option ① now.\n{LD}",
                                      f"Choose option 1 now.\n{LD}", ("edited",)),
    "a truth value is no number": (
        chat(SYS, user('See {"flag": true, "n": 0}, please.'), A1),
        chat(SYS, user('See {"flag": 1, "n": 0}, please.'), A1, Q2), ("edited",)),
    "other ids are not the same JSON, however long": (
        chat(SYS, user('{"id": 12345678901234567.0, "n": 0}'), A1),
        chat(SYS, user('{"id": 12345678901234568.0, "n": 0}'), A1, Q2), ("id",)),
    "an exponent beyond all floats": (
        chat(SYS, user('{"a": 1e999, "b": 2}'), A1),
        chat(SYS, user('{"b": 2, "a": 1e999}'), A1, Q2), ("json",)),
    "a key twice, and once": (
        chat(SYS, user('{"a": 1, "b": 2, "b": 3}'), A1),
        chat(SYS, user('{"a": 1, "b": 3}'), A1, Q2), ("edited",)),
    "a list in one line": (f"env: A=1; B=2; C=3\n{LD}", f"env: C=3; A=1; B=2\n{LD}", ("order",)),
    "files in another order": (
        "<file path=a.py>\nimport a\nprint(1)\n</file>\n<file path=b.py>\nimport b\n</file>\n" + LD,
        "<file path=b.py>\nimport b\n</file>\n<file path=a.py>\nimport a\nprint(1)\n</file>\n" + LD,
        ("order",)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_causes_in_order(name: str) -> None:
    before, after, kinds = CASES[name]
    found = compare(render(before), render(after))
    assert tuple(item.kind for item in found.breaks) == kinds, found.breaks
