"""Pure transformations of a request body or a text, one for each remedy that is mechanical."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import volatile
from edits import without_thinking
from rendering import THINKING_FIELDS, tool_name
from spelled_json import Number, parse_json, to_json


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """A value with every text in it changed; roles, types and names are none."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("role", "type", "model", "name") else each_text(item, change)
                for key, item in value.items()}
    return value


def sort_tools(body: dict[str, Any]) -> dict[str, Any]:
    """Tools by name; `required`, `enum` and other lists of words in their schemas sorted."""
    def words(value: Any) -> Any:
        if isinstance(value, list):
            if all(isinstance(item, str) for item in value):
                return sorted(value)
            return [words(item) for item in value]
        return {key: words(item) for key, item in value.items()} if isinstance(value, dict) else (
            value)

    return body | {field: sorted(map(words, body[field]), key=tool_name)
                   for field in ("tools", "functions") if isinstance(body.get(field), list)}


def sort_lines(text: str, block: set[str]) -> str:
    """The text with every run of lines that are all of the block sorted."""
    out: list[str] = []
    run: list[str] = []
    for line in [*text.split("\n"), None]:
        if line is not None and line.strip() and line.strip() in block:
            run.append(line)
            continue
        out.extend(sorted(run))
        run = []
        if line is not None:
            out.append(line)
    return "\n".join(out)


def canonical_json(body: dict[str, Any]) -> dict[str, Any]:
    """Tools with sorted keys and plain numbers, and texts that are JSON written in one form."""
    tools: dict[str, Any] = {field: _canonical(body[field])
                             for field in ("tools", "functions") if field in body}
    rest = {key: item for key, item in body.items() if key not in tools}
    found: dict[str, Any] = each_text(rest, _canonical_text)
    return {key: tools.get(key, found.get(key)) for key in body}


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, Number):
        return int(value) if value.is_integer() else float(value)
    return value


def _canonical_text(text: str) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return to_json(_canonical(parse_json(text)))
    except ValueError:
        return text


def normalised(text: str) -> str:
    """Unicode NFC, line ends as \\n, no white space at line ends, single spaces within lines."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\u00a0", " ")
    return re.sub(r"(?<=\S)[ \t]+", " ", re.sub(r"[ \t]+$", "", text, flags=re.M))


def coarse(text: str) -> str:
    """The text with the clock of every time in it set to zero, and every epoch to its day."""
    for start, end, _ in sorted(volatile.stamps(text), reverse=True):
        stamp = text[start:end]
        if re.fullmatch(r"\d{10}(\.\d+|\d{3}|\d{6}|\d{9})?", stamp):
            day = f"{int(stamp[:10]) // 86400 * 86400:010d}" + re.sub(r"\d", "0", stamp[10:])
        else:
            day = re.sub(r"\d{1,2}(?:[:.h]\d\d)+(?:[.,]\d+)?", lambda m: re.sub(
                r"\d+", lambda d: "0" * len(d[0]), m[0]), stamp)
        text = text[:start] + day + text[end:]
    return text


def drop_thinking(body: dict[str, Any]) -> dict[str, Any]:
    """The body without the thinking of earlier answers, in whichever way it is spelled."""
    if "messages" not in body and isinstance(body.get("prompt"), str):
        return body | {"prompt": without_thinking(body["prompt"])}
    field = "messages" if "messages" in body else "input"
    kept = []
    for message in body[field] if isinstance(body[field], list) else ():
        if not isinstance(message, dict) or message.get("role") != "assistant":
            if not isinstance(message, dict) or message.get("type") != "reasoning":
                kept.append(message)
            continue
        message = {key: item for key, item in message.items() if key not in THINKING_FIELDS}
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = without_thinking(content)
        elif isinstance(content, list):
            message["content"] = [part for part in content if not isinstance(part, dict)
                                  or part.get("type") not in ("thinking", "redacted_thinking")]
        kept.append(message)
    return body | {field: kept} if isinstance(body[field], list) else body
