"""What the remedies would make of captured turns: pure transformations, for --what-if.

A repair never invents text. It moves what changes behind what stays (to the end of the last user
message), or makes a time coarser, sorts a list or keys, normalises characters, or drops thinking.
What no transformation can mend (a window, a compaction, an edit, another model) is left and said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import volatile
from captured import Turn
from causes import Break, Comparison
from kinds import FORM, ID, INSERTED, JSON, ORDER, THINKING, TIME
from rendering import Rendering, render
from spelled_json import to_json
from transforms import (
    canonical_json,
    coarse,
    drop_thinking,
    each_text,
    normalised,
    sort_lines,
    sort_tools,
)

TOOL_FIELDS = ("tools", "functions")
LONG_LINE = 160  # a longer line is moved by its sentence
SENTENCE = re.compile(r"(?<=[.!?])\s+")
Body = str | dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The turns after the repairs, and a line for each thing done or left."""

    turns: tuple[Turn, ...]
    lines: tuple[str, ...]


def repair(turns: Sequence[Turn], comparisons: Sequence[Comparison | None]) -> Repaired:
    """The turns with every break mended whose remedy is a transformation.

    comparisons[n] is that of turns[n] against the turn before it, None for the first. Breaks
    behind the first are mended too, so that one does not hide the other.
    """
    bodies: list[Body] = [turn.body() for turn in turns]
    lines: list[str] = []
    done: set[tuple[str, str]] = set()
    tried: set[tuple[str, str]] = set()
    moves: list[list[tuple[str, str | None]]] = [[] for _ in turns]
    for number, comparison in enumerate(comparisons):
        for broken in comparison.breaks if comparison else ():
            key = (broken.kind, _general(broken.at.place))
            if broken.kind == INSERTED:
                _note_block(turns, number, broken, moves)
            elif broken.kind in (TIME, ID):  # several of them may lie at one place
                line = _mend_volatile(bodies, turns, number, broken, tried)
                if line or key not in done:
                    lines.append(line or _left(number, broken))
            elif key not in done:
                lines.append(_mend(bodies, turns, number, broken) or _left(number, broken))
            done.add(key)
    moved = sum(_move_blocks(bodies, number, blocks) for number, blocks in enumerate(moves))
    if moved:
        lines.append(f"blocks in front moved to the end of the last user message, {moved} turns")
    return Repaired(lines=tuple(dict.fromkeys(lines)), turns=tuple(
        _rewritten(turn, body) for turn, body in zip(turns, bodies, strict=True)))


def _rewritten(turn: Turn, body: Body) -> Turn:
    """The turn with another body; byte for byte as it was, where that is the same."""
    text, old = (value if isinstance(value, str) else to_json(value)
                 for value in (body, turn.body()))
    return turn if text == old else replace(turn, raw=text.encode("utf-8", "surrogatepass"))


def _left(number: int, broken: Break) -> str:
    return f"turn {number + 1}: {broken.detail}: left as it is; {broken.remedy}"


def _general(place: str) -> str:
    return re.sub(r"\[\d+\]", "[]", place)


def _mend(bodies: list[Body], turns: Sequence[Turn], number: int, broken: Break) -> str:
    """Mend all bodies against one break, in place; the line that says so, "" for none."""
    place = broken.at.place
    if broken.kind == ORDER and place.startswith(TOOL_FIELDS):
        _each(bodies, sort_tools)
        return "tools sorted by name, lists of words in their schemas by the alphabet"
    if broken.kind == ORDER:
        after = render(turns[number].body())
        block = {item.strip() for item in
                 after.data[slice(*broken.after_span)].decode("utf-8", "replace").split("\n")}
        block |= {_line_at(after, broken.after_span[0]).strip()}
        changed = _each_text(bodies, lambda text: sort_lines(text, block))
        return f"the lines of the list in {place} sorted" if changed else ""
    if broken.kind == JSON:
        _each(bodies, canonical_json)
        return "JSON written with sorted keys, one spacing and one number format"
    if broken.kind == FORM:
        _each_text(bodies, normalised)
        return "texts normalised: Unicode NFC, line ends \\n, single spaces"
    if broken.kind == THINKING:
        _each(bodies, drop_thinking)
        return "earlier thinking dropped from every turn"
    return ""


def _mend_volatile(
    bodies: list[Body], turns: Sequence[Turn], number: int, broken: Break,
    tried: set[tuple[str, str]],
) -> str:
    """Move the line (or sentence) that changes; in a tool's definition, make the time coarser."""
    place = broken.at.place
    what = "the time" if broken.kind == TIME else broken.detail.removesuffix(" that changes")
    value = _get(turns[number].body(), place)
    after = render(turns[number].body())
    if value is None or place.startswith(TOOL_FIELDS):
        if broken.kind != TIME or not place.startswith(TOOL_FIELDS):
            return ""
        _each(bodies, _coarse_tools)
        return f"{what} in {place} made coarser: to the day"
    start = after.starts[after.places.index(place)] if place in after.places else 0
    at = len(after.data[start:broken.at.offset_bytes].decode("utf-8", "replace"))
    begin, _, line = _segment(value, min(at, max(0, len(value) - 1)))
    pattern = volatile.masked(line)
    if (place, pattern) in tried:
        return ""
    tried.add((place, pattern))
    moved = 0
    for index, body in enumerate(bodies):
        text = _get(body, place)
        found = None if text is None else _find_segment(text, pattern)
        if found is None and text is not None and broken.kind == ID and begin < len(text) and (
                text[:begin] == value[:begin]):
            found = _segment(text, begin)  # a nonce of letters looks like a word
            found = found if len(found[2]) == len(line) else None
        if text is None or found is None:
            continue
        bodies[index] = _append(_set(body, place, text[:found[0]] + text[found[1]:]), found[2])
        moved += 1
    return (f"{what} in {place} moved to the end of the last user message, {moved} turns"
            if moved else "")


def _coarse_tools(body: dict[str, Any]) -> dict[str, Any]:
    return body | {key: each_text(body[key], coarse) for key in TOOL_FIELDS if key in body}


def _segment(text: str, at: int) -> tuple[int, int, str]:
    """(start, end, text) of the line at a position, with its line end; of a long line's sentence.
    """
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at) + 1 or len(text)
    if end - start > LONG_LINE:
        cuts = [start, *(start + m.end() for m in SENTENCE.finditer(text[start:end])), end]
        start = max(cut for cut in cuts if cut <= at)
        end = min((cut for cut in cuts if cut > at), default=end)
    return start, end, text[start:end].strip()


def _find_segment(text: str, pattern: str) -> tuple[int, int, str] | None:
    at = 0
    while at < len(text):
        segment = _segment(text, at)
        if volatile.masked(segment[2]) == pattern:
            return segment
        at = max(segment[1], at + 1)
    return None


def _note_block(
    turns: Sequence[Turn], number: int, broken: Break, moves: list[list[tuple[str, str | None]]]
) -> None:
    """Keep where the block lies in this turn, and in the turn before.

    A block that is a message by itself is kept as its place, without its text.
    """
    for index, span in ((number - 1, broken.before_span), (number, broken.after_span)):
        rendering = render(turns[index].body())
        whole: list[tuple[str, str | None]] = [(unit.place, None) for unit in rendering.units
                 if span[0] < unit.end <= span[1] and re.search(r"\]$", unit.place)]
        if whole:
            moves[index] += [item for item in whole if item not in moves[index]]
            continue
        place = rendering.place(span[0])
        value = _get(turns[index].body(), place)
        if span[0] == span[1] or place != broken.at.place or value is None:
            continue
        start = rendering.starts[list(rendering.places).index(place)]
        low, high = (len(rendering.data[start:at].decode("utf-8", "replace")) for at in span)
        # The whole of a line that is alike at its start.
        block = value[value.rfind("\n", 0, low) + 1:high]
        if block and (place, block) not in moves[index]:
            moves[index].append((place, block))


def _move_blocks(bodies: list[Body], number: int, blocks: list[tuple[str, str | None]]) -> bool:
    """Move the blocks of one turn: texts first, while the messages still have their places."""
    tail = []
    for place, block in blocks:
        text = _get(bodies[number], place)
        if block is not None and text is not None and block in text:
            tail.append(block.strip())
            bodies[number] = _set(bodies[number], place, text.replace(block, "", 1))
    for place in sorted((place for place, block in blocks if block is None),
                        key=lambda place: int(_path(place)[-1]), reverse=True):
        field, index = str(_path(place)[0]), int(_path(place)[-1])
        body, content = bodies[number], _get(bodies[number], f"{place}.content")
        if content is not None and isinstance(body, dict):
            tail.append(content.strip())
            bodies[number] = body | {field: [*body[field][:index], *body[field][index + 1:]]}
    if tail:
        bodies[number] = _append(bodies[number], "\n\n".join(tail))
    return bool(tail)


def _line_at(rendering: Rendering, at: int) -> str:
    start = rendering.data.rfind(b"\n", 0, at) + 1
    end = rendering.data.find(b"\n", at)
    return rendering.data[start:end if end >= 0 else None].decode("utf-8", "replace")


def _path(place: str) -> list[str | int]:
    return [int(index) if index else name
            for name, index in re.findall(r"([^.\[\]]+)(?![^\[]*\])|\[(\d+)\]", place)]


def _get(body: Body, place: str) -> str | None:
    """The text at a place of a body; None where there is none."""
    if isinstance(body, str):
        return body if place == "prompt" else None
    value: Any = body
    for step in _path(place):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value if isinstance(value, str) else None


def _set(body: Body, place: str, text: str) -> Body:
    if isinstance(body, str):
        return text
    value: Any = body
    *steps, last = _path(place)
    for step in steps:
        value = value[step]
    value[last] = text
    return body


def _append(body: Body, text: str) -> Body:
    """The body with a text added at the end of its last user message."""
    if isinstance(body, str):
        return f"{body}\n\n{text}"
    if "messages" not in body and isinstance(body.get("prompt"), str):
        return body | {"prompt": f"{body['prompt']}\n\n{text}"}
    field = "messages" if "messages" in body else "input"
    if isinstance(body[field], str):
        return body | {field: f"{body[field]}\n\n{text}"}
    for message in reversed(body[field]):
        if isinstance(message, dict) and message.get("role") == "user":
            if isinstance(message.get("content"), list):
                kind = "text" if field == "messages" else "input_text"
                message["content"].append({"type": kind, "text": text})
            else:
                message["content"] = f"{message.get('content') or ''}\n\n{text}"
            return body
    body[field].append({"role": "user", "content": text})
    return body


def _each(bodies: list[Body], change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for index, body in enumerate(bodies):
        if isinstance(body, dict):
            bodies[index] = change(body)
        elif change in (canonical_json, drop_thinking):
            bodies[index] = change({"prompt": body})["prompt"]


def _each_text(bodies: list[Body], change: Callable[[str], str]) -> bool:
    """Change every text of every body; whether any did change."""
    before = list(bodies)
    for index, body in enumerate(bodies):
        bodies[index] = each_text(body, change)
    return bodies != before
