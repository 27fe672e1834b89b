"""The text at a place of a request body: found, replaced, cut out, or added at the end.

A place is written as a rendering writes it: `messages[0].content[1].text`. Nothing is changed in
place: a body comes back with copies of what lies on the way.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from request_timing.prompts.rendering import MESSAGE, SYSTEM_ROLES, Rendering, render
from request_timing.repair.segments import is_code, keeps_json

Body = str | dict[str, Any]
USER = "user"
# What a model reads as prose: never an id, a name, a type, an argument, a schema or a role.
PROSE = re.compile(r"prompt|instructions|input|"
                   r"(?:system|(?P<message>(?:messages|input)\[\d+\])\.content)"
                   r"(?:\[\d+\](?:\.text)?)?")
PLAIN_PARTS = ("text", "input_text")
# What a message may hold besides its text, and still be nothing but that text.
PLAIN_KEYS = {"role", "content", "type", "id", "status"}
TURN_END = re.compile(r"(?:\s*(?:<\|[^<|]*\|>|<end_of_turn>|</s>|\[/INST\]))*\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A part of a text of a body: characters from the text's start."""

    place: str
    text: str
    at: int
    end: int


def path(place: str) -> list[str | int]:
    """The steps to a place."""
    return [int(index) if index else name
            for name, index in re.findall(r"([^.\[\]]+)(?![^\[]*\])|\[(\d+)\]", place)]


def value_at(body: Body, place: str) -> Any:
    """What a body holds at a place; None where there is nothing."""
    if isinstance(body, str):
        return body if place == "prompt" else None
    value: Any = body
    for step in path(place):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def text_at(body: Body, place: str) -> str | None:
    """The text at a place of a body; None where there is none."""
    value = value_at(body, place)
    return value if isinstance(value, str) else None


def put(body: Body, place: str, value: Any) -> Body:
    """The body with another value at a place that it has."""
    def changed(holder: Any, steps: list[str | int]) -> Any:
        if not steps:
            return value
        step, *rest = steps
        if isinstance(holder, list):
            index = int(step)
            return [*holder[:index], changed(holder[index], rest), *holder[index + 1:]]
        return holder | {step: changed(holder[step], rest)}

    found: Body = value if isinstance(body, str) else changed(body, path(place))
    return found


def without(body: dict[str, Any], place: str) -> dict[str, Any]:
    """The body without the item or the field at a place that it has."""
    *steps, last = path(place)
    outer = place[:place.rindex("[")] if isinstance(last, int) else place.rpartition(".")[0]
    holder: Any = value_at(body, outer) if steps else body
    kept: Any = ([*holder[:last], *holder[last + 1:]] if isinstance(last, int)
                 else {key: item for key, item in holder.items() if key != last})
    found = put(body, outer, kept) if steps else kept
    assert isinstance(found, dict)
    return found


def spot(body: Body, rendering: Rendering, span: tuple[int, int]) -> Spot | None:
    """The part of one text that bytes of the rendering are; None where they are none, or more."""
    index = bisect_right(rendering.starts, span[0]) - 1
    for number in (index, index - 1):  # a text's end is where the next place starts
        text = text_at(body, rendering.places[number]) if number >= 0 else None
        if text is None:
            continue
        start, *ends = rendering.starts[number:number + 2]
        data = text.encode("utf-8", "surrogatepass")
        base = rendering.data.find(data, start, ends[0] if ends else len(rendering.data))
        if base < 0 or not base <= span[0] <= base + len(data) >= span[1] - 1:
            continue  # but for one line end, which is the message's own
        at, end = (len(data[:at - base].decode("utf-8", "surrogatepass")) for at in span)
        return Spot(place=rendering.places[number], text=text, at=at, end=end)
    return None


def is_movable(body: Body, place: str) -> bool:
    """Whether a text is prose that may go into the user's mouth: not what a model or a tool said.
    """
    found = PROSE.fullmatch(place)
    if found is None:
        return False
    if found["message"] is None:
        return True
    message = value_at(body, found["message"])
    return isinstance(message, dict) and message.get("role") in (USER, *SYSTEM_ROLES)


def message_text(message: Any) -> str | None:
    """The text of a message that is nothing but text of a user or the system; None for others."""
    if not isinstance(message, dict) or set(message) - PLAIN_KEYS or (
            message.get("role") not in (USER, *SYSTEM_ROLES)):
        return None
    content = message.get("content")
    if isinstance(content, list) and all(
            isinstance(part, dict) and part.get("type") in PLAIN_PARTS and set(part) == {
                "type", "text"} and isinstance(part["text"], str) for part in content):
        content = "\n".join(part["text"] for part in content)
    return content.strip() if isinstance(content, str) and content.strip() else None


def cut(body: Body, place: str, start: int, end: int) -> Body | None:
    """The body without a piece of a text; None where what is left would not be what it was.

    That is JSON or code with a piece missing, or an empty part or message that says more than its
    text.
    """
    text = text_at(body, place)
    if text is None or not text[start:end].strip() or is_code(text, start) or (
            not keeps_json(text, start, end)):
        return None
    rest = text[:start] + text[end:]
    return put(body, place, rest) if rest.strip() else _without_text(body, place)


def _without_text(body: Body, place: str) -> Body | None:
    """The body without a text that is empty now, and without the part or message it was."""
    if isinstance(body, str) or place in ("prompt", "input"):
        return None
    if place in ("system", "instructions"):
        return without(body, place)
    holder = place.removesuffix(".text").removesuffix(".content")
    kept = value_at(body, holder)
    outer = value_at(body, holder[:holder.rindex("[")])
    alone = isinstance(outer, list) and len(outer) == 1
    more = isinstance(kept, dict) and set(kept) - (
        PLAIN_KEYS if place.endswith(".content") else {"type", "text"})
    return None if alone or more else without(body, holder)


def end_of(body: Body) -> str:
    """Where `append` puts a text, in words."""
    is_plain = isinstance(body, str) or ("messages" not in body and "prompt" in body)
    return "the prompt" if is_plain and _last_user(_plain(body)) is None else (
        "the last user message")


def append(body: Body, text: str) -> Body:
    """The body with a text added at the end of its last user message."""
    if isinstance(body, str):
        return _append_plain(body, text)
    if "messages" not in body and isinstance(body.get("prompt"), str):
        return body | {"prompt": _append_plain(body["prompt"], text)}
    field = "messages" if "messages" in body else "input"
    given = body.get(field)
    if isinstance(given, str):
        return body | {field: f"{given}\n\n{text}"}
    messages: Sequence[Any] = given or []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, dict) or message.get("role") != USER:
            continue
        content = message.get("content")
        if isinstance(content, list):
            kind = "text" if field == "messages" else "input_text"
            content = [*content, {"type": kind, "text": text}]
        else:
            content = f"{content or ''}\n\n{text}"
        return put(body, f"{field}[{index}]", message | {"content": content})
    return body | {field: [*messages, {"role": USER, "content": text}]}


def _plain(body: Body) -> str:
    return body if isinstance(body, str) else str(body.get("prompt"))


def _last_user(prompt: str) -> int | None:
    """Where the text of the last user message of a templated prompt ends; None without marks."""
    rendering = render(prompt)
    users = [unit for unit in rendering.units if unit.kind == MESSAGE and unit.role == USER]
    if not users:
        return None
    data = rendering.data[users[-1].start:users[-1].end].decode("utf-8", "surrogatepass")
    found = TURN_END.search(data)
    before = len(rendering.data[:users[-1].start].decode("utf-8", "surrogatepass"))
    return before + (found.start() if found else len(data))


def _append_plain(prompt: str, text: str) -> str:
    """Behind the last user message that a template marked, else behind it all."""
    end = _last_user(prompt)
    return f"{prompt}\n\n{text}" if end is None else f"{prompt[:end]}\n\n{text}{prompt[end:]}"
