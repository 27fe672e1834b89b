"""Moving what changes behind what stays: which piece of a text, or which messages, and to where."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any

from request_timing.explain import volatile
from request_timing.explain.causes import Break
from request_timing.explain.kinds import TIME
from request_timing.prompts.rendering import MESSAGE, SYSTEM, TEXT, Rendering, Unit
from request_timing.repair.places import (
    Body,
    Spot,
    cut,
    end_of,
    is_movable,
    message_text,
    put,
    spot,
    text_at,
    value_at,
    without,
)
from request_timing.repair.segments import Piece, block, piece_at, piece_like

TOOL_FIELDS = ("tools", "functions")
AT_ITS_END = "it stands at the end already"
NO_PROSE = "it is no text of the system or of a user"
NO_PIECE = "it is no line or sentence of its own"
IN_JSON = "what is left would not be what it was: JSON, code, or a part with marks of its own"
NO_MESSAGE = "its messages are not all plain text of the system or of a user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two turns that part: its body, its rendering, and the bytes that were passed over."""

    body: Body
    rendering: Rendering
    span: tuple[int, int]

    def spot(self) -> Spot | None:
        """The part of one text that the span is; None where it is none, or more."""
        return spot(self.body, self.rendering, self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A piece that was moved, so that the turns behind can follow: its place, where it began, the
    text in front of it, what it looks like, and the line that says so."""

    place: str
    start: int
    lead: str
    text: str
    line: str
    is_id: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What might mend a break between two turns, -1 and 0: their bodies, what goes to their ends,
    and what has to be done to earlier and later turns as well.

    place: the text that a change was made to; removed: the messages that were taken out of -1.
    """

    bodies: dict[int, Body]
    line: str
    tails: dict[int, list[str]] = field(default_factory=dict)
    rule: Cut | None = None
    place: str = ""
    piece: Piece | None = None
    removed: tuple[str, ...] = ()
    no_thinking: bool = False


def line_moved(broken: Break, before: Side, after: Side) -> Attempt | str:
    """The line (or sentence) that changes, moved in both turns; or why not."""
    found = [_piece(side) for side in (before, after)]
    for item in found:
        if isinstance(item, str):
            return item
    (a, a_piece), (b, b_piece) = (item for item in found if not isinstance(item, str))
    back = min(a.at - a_piece[0], b.at - b_piece[0])  # what both have in front, alike
    bodies: dict[int, Body] = {}
    tails: dict[int, list[str]] = {}
    for step, side, where, end in ((-1, before, a, a_piece[1]), (0, after, b, b_piece[1])):
        start = where.at - back
        rest = cut(side.body, where.place, start, end)
        if rest is None:
            return IN_JSON
        bodies[step], tails[step] = rest, [where.text[start:end].strip()]
    what = "the time" if broken.kind == TIME else broken.detail.removesuffix(" that changes")
    line = f"{what} in {b.place} moved to the end of {end_of(after.body)}"
    start = b.at - back
    rule = Cut(place=b.place, start=start, lead=b.text[:start], text=b.text[start:b_piece[1]],
               line=line, is_id=broken.kind != TIME)
    return Attempt(bodies=bodies, tails=tails, line=line, rule=rule, place=a.place,
                   piece=(a.at - back, a_piece[1]))


def _piece(side: Side) -> tuple[Spot, Piece] | str:
    found = side.spot()
    if found is None or not is_movable(side.body, found.place):
        return NO_PROSE
    piece = piece_at(found.text, found.at)
    return (found, piece) if piece is not None else NO_PIECE


def block_moved(before: Side, after: Side) -> Attempt | str:
    """A block, or whole messages, that one turn or both have in front, moved; or why not."""
    bodies: dict[int, Body] = {}
    tails: dict[int, list[str]] = {}
    place, piece = "", None
    removed: tuple[str, ...] = ()
    alone = 0 in (before.span[1] - before.span[0], after.span[1] - after.span[0])
    for step, side in ((-1, before), (0, after)):
        if side.span[0] == side.span[1]:
            continue
        side = _from_its_start(side) if alone else side
        if units := _whole_units(side):
            taken = _messages_moved(side.body, units)
            if taken is None:
                return NO_MESSAGE
            bodies[step], tails[step] = taken
            removed = tuple(unit.place for unit in units) if step else removed
            continue
        first = side.spot()
        if first is None:
            return NO_PIECE
        if not is_movable(side.body, first.place):
            return NO_PROSE
        found = block(first.text, first.at, first.end, alone=alone)
        if found is None:
            return NO_PIECE
        if alone and step and not first.text[found[1]:].strip() and _is_last_user(
                side.body, first.place):
            return AT_ITS_END
        rest = cut(side.body, first.place, *found)
        if rest is None:
            return IN_JSON
        bodies[step], tails[step] = rest, [first.text[slice(*found)].strip()]
        if step:
            place, piece = first.place, found
    return Attempt(bodies=bodies, tails=tails, place=place, piece=piece, removed=removed,
                   line=f"blocks in front moved to the end of {end_of(after.body)}")


def _from_its_start(side: Side) -> Side:
    """A span that begins within a part, behind letters which the next part begins with as well,
    from the part's start on: "A|B A|C" is "|AB |AC"."""
    data, (start, end) = side.rendering.data, side.span
    low = side.rendering.starts[bisect_right(side.rendering.starts, start) - 1]
    back = start - low
    is_alike = data[low:start] == data[end - back:end] and end - back > low
    return replace(side, span=(low, end - back)) if is_alike else side


def _whole_units(side: Side) -> list[Unit]:
    """The messages that a span holds whole, where it ends with one."""
    start, end = side.span
    units = [unit for unit in side.rendering.units if start < unit.end <= end
             and unit.kind in (MESSAGE, SYSTEM, TEXT) and unit.place.endswith("]")]
    return units if units and units[-1].end == end else []


def _messages_moved(body: Body, units: list[Unit]) -> tuple[Body, list[str]] | None:
    texts = [message_text(value_at(body, unit.place)) for unit in units]
    if None in texts or isinstance(body, str):
        return None
    for unit in reversed(units):
        body = without(body, unit.place)
    return body, [text for text in texts if text is not None]


def _is_last_user(body: Body, place: str) -> bool:
    """Whether a text is that of the last user message, to whose end things are moved."""
    if isinstance(body, str) or "]" not in place:
        return True
    name, index = place.split("]")[0].split("[")
    messages = body.get(name) or []
    return not any(isinstance(message, dict) and message.get("role") == "user"
                   for message in messages[int(index) + 1:])


def follow(rule: Cut, body: Body) -> tuple[Body, str] | None:
    """A later turn without the piece like the one that was moved, and that piece; None for none.
    """
    text = text_at(body, rule.place)
    if text is None or not is_movable(body, rule.place):
        return None
    piece = piece_like(text, volatile.masked(rule.text), rule.start)
    if piece is None and rule.is_id and text.startswith(rule.lead):
        found = piece_at(text, rule.start)  # a nonce of letters looks like a word
        piece = found if found and found[1] - found[0] == len(rule.text) else None
    rest = cut(body, rule.place, *piece) if piece is not None else None
    return (rest, text[slice(*piece)].strip()) if piece is not None and rest is not None else None


def same_again(attempt: Attempt, was: Body, earlier: Body) -> tuple[Body, list[str]] | None:
    """An earlier turn, which begins as `was` did, with the same done to it; None where it does not.
    """
    if attempt.removed:
        held: Any = earlier
        for place in reversed(attempt.removed):
            if isinstance(held, str) or value_at(held, place) is None or (
                    value_at(held, place) != value_at(was, place)):
                return None
            held = without(held, place)
        return held, attempt.tails[-1]
    old, text = text_at(was, attempt.place), text_at(earlier, attempt.place)
    if not attempt.place or old is None or text is None or -1 not in attempt.bodies:
        return None
    if attempt.piece is None:
        changed = text_at(attempt.bodies[-1], attempt.place)
        same = text == old and changed is not None and changed != old
        return (put(earlier, attempt.place, changed), []) if same else None
    start, end = attempt.piece
    if text[:end] != old[:end]:
        return None
    rest = cut(earlier, attempt.place, start, end)
    return None if rest is None else (rest, attempt.tails[-1])
