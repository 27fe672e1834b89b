"""Pure transformations of a request body or a text, one for each remedy that moves nothing.

What is the same content is sent as the turn before sent it: no number, key, line or character is
made anew, and nothing else is touched. A list that is always sorted, and JSON that is written once,
have the same effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from request_timing.explain import volatile
from request_timing.explain.edits import without_thinking
from request_timing.explain.sameness import same_content
from request_timing.prompts.lossless_json import to_json
from request_timing.prompts.rendering import (
    NOT_READ,
    ROLE_MARK,
    ROLE_NAMES,
    THINKING_FIELDS,
    tool_name,
    unmarked,
)
from request_timing.untrusted import as_list

ASSISTANT = "assistant"


def tools_in_order(before: Any, after: Any) -> list[Any] | None:
    """The tools of a turn in the order of the turn before; None where they are not the same ones.

    Marks of what to cache stay at the index at which they were.
    """
    if not all(isinstance(tool, dict) for tool in (*as_list(before), *as_list(after))):
        return None
    olds, news = ([tool_name(tool) for tool in as_list(tools)] for tools in (before, after))
    if len(set(olds)) < len(olds) or sorted(olds) != sorted(news) or olds == news:
        return None
    named = {tool_name(tool): unmarked(tool) for tool in after}
    marks = [{key: tool[key] for key in NOT_READ if key in tool} for tool in after]
    return [named[name] | mark for name, mark in zip(olds, marks, strict=True)]


def alike_ancestors(place: str) -> Iterator[str]:
    """The places of what holds a place, from the innermost on: a schema, a tool."""
    for end in sorted((found.start() for found in re.finditer(r"[.\[]", place)), reverse=True):
        yield place[:end]


def as_before(before: Any, after: Any) -> Any:
    """What the turn before had, where it is the same lists and objects arranged anew; else None."""
    if not isinstance(after, dict | list) or type(before) is not type(after):
        return None
    old, new = to_json(before), to_json(after)
    return before if old != new and same_content(old, new) else None


def coarse(text: str, at: int | None = None) -> str:
    """The text with the clock of every time in it set to zero, and every epoch to its day.

    at: of the times at that character alone.
    """
    for start, end, _ in sorted(volatile.stamps(text), reverse=True):
        if at is not None and not start <= at <= end:
            continue
        stamp = text[start:end]
        if re.fullmatch(r"\d{10}(\.\d+|\d{3}|\d{6}|\d{9})?", stamp):
            day = f"{int(stamp[:10]) // 86400 * 86400:010d}" + re.sub(r"\d", "0", stamp[10:])
        else:
            day = re.sub(r"\d{1,2}(?:[:.h]\d\d)+(?:[.,]\d+)?", lambda m: re.sub(
                r"\d+", lambda d: "0" * len(d[0]), m[0]), stamp)
        text = text[:start] + day + text[end:]
    return text


def drop_thinking(body: str | dict[str, Any]) -> str | dict[str, Any]:
    """The body without the thinking of earlier answers, in whichever way it is spelled.

    A tag that an answer merely speaks of is none: thinking stands where an answer begins.
    """
    if isinstance(body, str):
        return _prompt_without_thinking(body)
    if "messages" not in body and isinstance(body.get("prompt"), str):
        return body | {"prompt": _prompt_without_thinking(body["prompt"])}
    field = "messages" if "messages" in body else "input"
    if not isinstance(body.get(field), list):
        return body
    return body | {field: [_without_thinking(message) for message in body[field]
                           if not isinstance(message, dict) or message.get("type") != "reasoning"]}


def _without_thinking(message: Any) -> Any:
    if not isinstance(message, dict) or message.get("role") != ASSISTANT:
        return message
    message = {key: item for key, item in message.items() if key not in THINKING_FIELDS}
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = without_thinking(content)
    elif isinstance(content, list):
        message["content"] = [part for part in content if not isinstance(part, dict)
                              or part.get("type") not in ("thinking", "redacted_thinking")]
    return message


def _prompt_without_thinking(prompt: str) -> str:
    """A templated prompt without the thinking that stands right behind an assistant's mark."""
    marks = list(ROLE_MARK.finditer(prompt))
    for mark in reversed(marks):
        role = next((group.lower() for group in mark.groups() if group), "user")
        if ROLE_NAMES.get(role, role) == ASSISTANT:
            head, rest = prompt[:mark.end()], prompt[mark.end():]
            bare = without_thinking(rest)
            if bare != rest:  # the white space that the mark ends with stays
                space = rest[:len(rest) - len(rest.lstrip())]
                prompt = head + space + bare
    return prompt
