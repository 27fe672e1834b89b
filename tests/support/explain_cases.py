"""Conversations with a known break: two turns, what they share, where they part, and why.

`shared` is written out: the text of the rendering up to the first byte that differs, or its end
behind LONG. The offset is its length in UTF-8, so that nothing here repeats the program's own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from request_timing.explain.kinds import (
    FORM,
    ID,
    JSON,
    ORDER,
    TIME,
)

DOC = ("The lighthouse keeper writes every evening what the sea has brought ashore.\n"
       "On Monday it was a crate of oranges, and a chart of a coast that nobody knows.\n"
       "He keeps the chart in a drawer, under the letters of his sister.\n")
LONG = DOC * 4
Q1 = {"role": "user", "content": "What was in the crate that came ashore on Monday?"}
A1 = {"role": "assistant", "content": "The crate that came ashore held oranges, says the diary."}
Q2 = {"role": "user", "content": "And where does he keep the chart of that coast?"}
A2 = {"role": "assistant", "content": "In a drawer, under the letters that his sister wrote."}
Q3 = {"role": "user", "content": "Who wrote the letters that lie in the same drawer?"}
A3 = {"role": "assistant", "content": "His sister wrote the letters, the diary says so."}
Q4 = {"role": "user", "content": "How many days does the diary of the keeper cover?"}
SYS = {"role": "system", "content": "You answer from the diary.\n" + DOC}


def said(*messages: dict[str, Any]) -> str:
    """The rendering of plain messages."""
    return "".join(f"<|{m['role']}|>\n{m['content']}\n" for m in messages)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One break: kind of cause, and the kinds of the breaks behind it, in order."""

    name: str
    before: Any
    after: Any
    shared: str
    place: str
    kind: str
    detail: str = ""
    then: tuple[str, ...] = ()


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def clock(name: str, old: str, new: str, shared: str, detail: str) -> Case:
    """A time in the system prompt, in front of a document."""
    return Case(name=name, kind=TIME, detail=f"a time that changes each {detail}",
                before=chat(system(f"Now: {old}\n{DOC}"), Q1),
                after=chat(system(f"Now: {new}\n{DOC}"), Q1, A1, Q2),
                shared=f"<|system|>\nNow: {shared}", place="messages[0].content")


TIMES = [
    clock("seconds", "2026-01-01 10:41:07", "2026-01-01 10:41:09", "2026-01-01 10:41:0", "second"),
    clock("iso", "2026-01-01T10:41:07.120Z", "2026-01-01T10:42:11.004Z", "2026-01-01T10:4",
          "second"),
    clock("minutes", "2026-01-01 10:59", "2026-01-01 11:00", "2026-01-01 1", "minute"),
    clock("weekday in brackets", "2026-01-01 10:41 (Thursday)", "2026-01-01 10:42 (Thursday)",
          "2026-01-01 10:4", "minute"),
    clock("hour", "January 1, 2026, 9 AM", "January 1, 2026, 10 AM", "January 1, 2026, ", "hour"),
    clock("day in words", "Thursday, January 1, 2026", "Friday, January 2, 2026", "", "day"),
    clock("ninth to tenth", "January 9, 2026.", "January 10, 2026.", "January ", "day"),
    clock("slashes", "01/09/2026", "01/10/2026", "01/", "day"),
    clock("rfc 1123", "Thu, 01 Jan 2026 10:41:07 GMT", "Thu, 01 Jan 2026 10:41:09 GMT",
          "Thu, 01 Jan 2026 10:41:0", "second"),
    clock("unix date", "Thu Jan  1 10:41:07 UTC 2026", "Thu Jan  1 10:42:07 UTC 2026",
          "Thu Jan  1 10:4", "minute"),
    clock("midnight", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z", "2026-11-2", "day"),
    clock("full hour", "2026-11-28 09:00", "2026-11-28 10:00", "2026-11-28 ", "hour"),
    clock("morning, evening", "10:00 AM", "10:00 PM", "10:00 ", "hour"),
    clock("compact", "20261128T224100Z", "20261128T234100Z", "20261128T2", "hour"),
    clock("midnight as epoch", "1767225600", "1767312000", "1767", "day"),
    clock("epoch", "1767225600", "1767225660", "17672256", "second"),
    clock("epoch in ms", "1767225600123", "1767225660456", "17672256", "second"),
    clock("epoch as float", "1767225600.12", "1767225600.5", "1767225600.", "second"),
    clock("ago", "read 3 minutes ago", "read 5 minutes ago", "read ", "minute"),
    clock("chinese", "2026年1月1日", "2026年1月2日", "2026年1月", "day"),
    clock("file name", "log_2026-01-01_10-41-07.txt", "log_2026-01-01_10-42-07.txt",
          "log_2026-01-01_10-4", "minute"),
    Case(name="time in a tool", kind=TIME, detail="a time that changes each minute",
         before=chat(Q1, tools=[{"type": "function", "function": {
             "name": "f", "description": "Search. It is 10:41 now."}}]),
         after=chat(Q1, tools=[{"type": "function", "function": {
             "name": "f", "description": "Search. It is 10:42 now."}}]),
         shared='{"type": "function", "function": {"name": "f", "description": '
                '"Search. It is 10:4', place="tools[0].function.description"),
    Case(name="time in a plain prompt", kind=TIME, before=f"Time: 10:41\n{LONG}Q: a",
         after=f"Time: 10:42\n{LONG}Q: a A: b", shared="Time: 10:4", place="prompt"),
    Case(name="time in Anthropic's system", kind=TIME, place="system[0].text",
         before={"system": [{"type": "text", "text": f"Date: 2026-01-01\n{DOC}"}],
                 "messages": [Q1]},
         after={"system": [{"type": "text", "text": f"Date: 2026-01-02\n{DOC}"}],
                "messages": [Q1, A1, Q2]},
         shared="<|system|>\nDate: 2026-01-0"),
    Case(name="time in instructions", kind=TIME, place="instructions",
         before={"instructions": f"Date: 2026-01-01\n{DOC}", "input": "Hi"},
         after={"instructions": f"Date: 2026-01-02\n{DOC}", "input": "Hi"},
         shared="<|system|>\nDate: 2026-01-0"),
    Case(name="stamp at the last user message, gone in the next turn", kind=TIME,
         before=chat(SYS, user("What is it?\n\nCurrent time: 10:41")),
         after=chat(SYS, user("What is it?"), A1, Q2),
         shared=said(SYS) + "<|user|>\nWhat is it?\n", place="messages[1].content",
         detail="a time that changes each minute, there in one turn only"),
]

IDS = [
    Case(name="uuid", kind=ID, detail="a UUID that changes",
         before=chat(system("Session 6ba7b810-9dad-11d1-80b4-00c04fd430c8\n" + DOC), Q1),
         after=chat(system("Session 7ca7b810-9dad-11d1-80b4-00c04fd430c9\n" + DOC), Q1),
         shared="<|system|>\nSession ", place="messages[0].content"),
    Case(name="hash", kind=ID, detail="a hash that changes", place="prompt",
         before=f"commit a1b2c3d4e5\n{LONG}", after=f"commit 99f2c3d4e5\n{LONG}",
         shared="commit "),
    Case(name="nonce of letters", kind=ID, before=f"qwhdkzptxmvbn.\n{LONG}",
         after=f"xkqjzvbwptrlm.\n{LONG}", shared="", place="prompt"),
    Case(name="request id", kind=ID, before=chat(system(f"req_8fj2KQ0s9aXb\n{DOC}"), Q1),
         after=chat(system(f"req_1kd9ZPq0aaZc\n{DOC}"), Q1), shared="<|system|>\nreq_",
         place="messages[0].content"),
    Case(name="counter", kind=ID, detail="a counter", place="messages[0].content",
         before=chat(system(f"Turn 9 of 50.\n{DOC}"), Q1),
         after=chat(system(f"Turn 10 of 50.\n{DOC}"), Q1, A1, Q2), shared="<|system|>\nTurn "),
    Case(name="tokens left", kind=ID, detail="a counter", place="system",
         before={"system": f"Tokens left: 182,000\n{DOC}", "messages": [Q1]},
         after={"system": f"Tokens left: 181,200\n{DOC}", "messages": [Q1, A1, Q2]},
         shared="<|system|>\nTokens left: 18"),
    Case(name="ids of tool calls made anew", kind=ID, place="messages[1].tool_calls[0].id",
         before=chat(Q1, answer("", tool_calls=[{"id": "call_a1B2c3D4e5", "type": "function"}]),
                     Q2),
         after=chat(Q1, answer("", tool_calls=[{"id": "call_z9Y8x7W6v5", "type": "function"}]),
                    Q2),
         shared=said(Q1) + "<|assistant|>\n\ncall_"),
]


def tool(name: str, **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"Does {name} well.",
                                             "parameters": schema}}


def tool_text(name: str) -> str:
    return ('{"type": "function", "function": {"name": "' + name + '", "description": "Does '
            + name + ' well.", "parameters": {}}}\n')


HEAD = '{"type": "function", "function": {"name": "'
PARAMETERS = 'f", "description": "Does f well.", "parameters": {'

FORMS = [
    Case(name="tools in another order", kind=ORDER, place="tools[0].function.name",
         detail="the same 3 tools in another order",
         before=chat(SYS, Q1, tools=[tool("read"), tool("write"), tool("list")]),
         after=chat(SYS, Q1, tools=[tool("write"), tool("list"), tool("read")]), shared=HEAD),
    Case(name="the last two tools swapped", kind=ORDER, place="tools[1].function.name",
         before=chat(Q1, tools=[tool("read"), tool("write"), tool("list")]),
         after=chat(Q1, A1, Q2, tools=[tool("read"), tool("list"), tool("write")]),
         shared=tool_text("read") + HEAD, detail="the same 2 tools in another order"),
    Case(name="Anthropic's tools in another order", kind=ORDER, place="tools[0].name",
         before={"tools": [{"name": "aa", "input_schema": {}}, {"name": "bb", "input_schema": {}}],
                 "messages": [Q1]},
         after={"tools": [{"name": "bb", "input_schema": {}}, {"name": "aa", "input_schema": {}}],
                "messages": [Q1]}, shared='{"name": "'),
    Case(name="required in another order", kind=ORDER, detail="the same list in another order",
         before=chat(Q1, tools=[tool("f", required=["path", "mode"])]),
         after=chat(Q1, tools=[tool("f", required=["mode", "path"])]),
         shared=HEAD + PARAMETERS + '"required": ["',
         place="tools[0].function.parameters.required[0]"),
    Case(name="files in another order", kind=ORDER, place="prompt",
         before=f"Files:\nmain.py\nrun.py\ntest.py\n{LONG}",
         after=f"Files:\nrun.py\ntest.py\nmain.py\n{LONG}", shared="Files:\n",
         detail="the same 3 lines in another order"),
    Case(name="items of a line in another order", kind=ORDER, place="messages[0].content",
         before=chat(system(f"Tags: red, green, blue\n{DOC}"), Q1),
         after=chat(system(f"Tags: blue, red, green\n{DOC}"), Q1),
         shared="<|system|>\nTags: ", detail="the same 3 items in another order"),
    Case(name="keys of a schema in another order", kind=JSON,
         before=chat(Q1, tools=[tool("f", type="object", title="T")]),
         after=chat(Q1, tools=[tool("f", title="T", type="object")]),
         shared=HEAD + PARAMETERS + '"t', place="tools[0].function.parameters",
         detail="the same JSON with its keys in another order"),
    Case(name="another number format", kind=JSON, place="tools[0].function.parameters.maximum",
         before=chat(Q1, tools=[tool("f", maximum=10)]),
         after=chat(Q1, tools=[tool("f", maximum=10.0)]),
         shared=HEAD + PARAMETERS + '"maximum": 10',
         detail="the same JSON with another number format"),
    Case(name="spacing of arguments", kind=JSON, detail="the same JSON with other spacing or "
                                                        "escapes",
         before=chat(Q1, {"role": "tool", "content": '{"path": "a", "n": 1}'}, A1, Q2),
         after=chat(Q1, {"role": "tool", "content": '{"path":"a","n":1}'}, A1, Q2),
         shared=said(Q1) + '<|tool|>\n{"path":', place="messages[1].content"),
    Case(name="line ends", kind=FORM, detail="the same text with other line ends", place="prompt",
         before=LONG, after=LONG.replace("\n", "\r\n"),
         shared="The lighthouse keeper writes every evening what the sea has brought ashore."),
    Case(name="white space", kind=FORM, detail="the same text with other white space",
         before=chat(system("You  answer.\n" + DOC), Q1), place="messages[0].content",
         after=chat(system("You answer.\n" + DOC), Q1), shared="<|system|>\nYou "),
    Case(name="Unicode form", kind=FORM, detail="the same text with other Unicode form",
         before=f"The caf\u00e9 by the sea.\n{LONG}", after=f"The cafe\u0301 by the sea.\n{LONG}",
         shared="The caf", place="prompt"),
    Case(name="no-break space", kind=FORM, before=f"10 km to the sea.\n{LONG}",
         after=f"10\u00a0km to the sea.\n{LONG}", shared="10", place="prompt"),
]
