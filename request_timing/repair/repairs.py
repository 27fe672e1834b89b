"""What the remedies would make of captured turns: pure transformations, for --what-if.

A repair never invents text. It moves what changes behind what stays (to the end of the last user
message), makes a time in a tool coarser, sends the same content as the turn before sent it, or
drops thinking. Each is tried on the two turns that part, and kept only where the break is gone and
nothing parts sooner. What no transformation can mend (a window, a compaction, an edit, another
model, an id that a call and its result share) is left and said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from request_timing.explain.causes import Break, Comparison, compare
from request_timing.explain.kinds import FORM, ID, INSERTED, JSON, ORDER, THINKING, TIME
from request_timing.explain.sameness import same_indents
from request_timing.prompts.captured import Turn
from request_timing.prompts.lossless_json import to_json
from request_timing.prompts.rendering import Rendering, render
from request_timing.repair import moves
from request_timing.repair.moves import TOOL_FIELDS, Attempt, Cut, Side
from request_timing.repair.places import Body, append, put, value_at
from request_timing.repair.transforms import (
    alike_ancestors,
    as_before,
    coarse,
    drop_thinking,
    tools_in_order,
)

MOST_MENDS = 12  # of one turn: each is compared anew
WHAT = {ORDER: "the list", JSON: "the JSON", FORM: "the text"}
Key = tuple[str, str, bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The turns after the repairs, and a line for each thing done or left."""

    turns: tuple[Turn, ...]
    lines: tuple[str, ...]


def repair(turns: Sequence[Turn], comparisons: Sequence[Comparison | None]) -> Repaired:
    """The turns with every break mended whose remedy is a transformation.

    comparisons[n] is that of turns[n] against the turn before it, None for the first. Breaks
    behind the first are mended too, so that one does not hide the other. Where the turns share no
    more in the end, nothing is claimed, and they come back as they were.
    """
    mending = _Mending(bodies=[turn.body() for turn in turns], tails=[[] for _ in turns])
    if any(found is not None and found.breaks for found in comparisons):
        for number in range(1, len(turns)):
            mending.mend(number, comparisons[number])
    bodies = [append(body, "\n\n".join(tail)) if tail else body
              for body, tail in zip(mending.bodies, mending.tails, strict=True)]
    mended = tuple(_rewritten(turn, body) for turn, body in zip(turns, bodies, strict=True))
    shared = sum(found.first.shared_chars for found in comparisons if found is not None)
    if mended == tuple(turns) or _shared_chars(bodies) <= shared:
        return Repaired(turns=tuple(turns), lines=tuple(mending.left.values()))
    return Repaired(turns=mended, lines=(*mending.done_lines(), *mending.left.values()))


def _rewritten(turn: Turn, body: Body) -> Turn:
    """The turn with another body; byte for byte as it was, where that is the same."""
    text, old = (value if isinstance(value, str) else to_json(value)
                 for value in (body, turn.body()))
    return turn if text == old else replace(turn, raw=text.encode("utf-8", "surrogatepass"))


def _shared_chars(bodies: Sequence[Body]) -> int:
    renderings = [render(body) for body in bodies]
    return sum(compare(before, after).first.shared_chars
               for before, after in pairwise(renderings))


def _general(place: str) -> str:
    return re.sub(r"\[\d+\]", "[]", place)


@dataclass(slots=True, kw_only=True)
class _Mending:
    """The bodies as far as they are mended, and apart from them what goes to each one's end.

    done: a line without its count, and the turns it is true of. left: a line for each kind of
    break at each kind of place that stays.
    """

    bodies: list[Body]
    tails: list[list[str]]
    cuts: list[Cut] = field(default_factory=list)
    no_thinking: bool = False
    done: dict[str, set[int]] = field(default_factory=dict)
    left: dict[tuple[str, str], str] = field(default_factory=dict)

    def mend(self, number: int, original: Comparison | None) -> None:
        """Mend one turn against the turn before it, which is mended."""
        self._follow(number)
        before, after = render(self.bodies[number - 1]), render(self.bodies[number])
        found = compare(before, after)
        skipped: set[Key] = set()
        for _ in range(MOST_MENDS):
            for broken in found.breaks:
                key = _key(before, after, broken)
                if key in skipped:
                    continue
                attempt = self._attempt(number, broken, before, after)
                tried = None if isinstance(attempt, str) else self._tried(
                    number, attempt, found, key, before, after)
                if tried is None or isinstance(attempt, str):
                    skipped.add(key)
                    self._leave(number, broken, original,
                                attempt if isinstance(attempt, str) else "")
                    continue
                self._accept(number, attempt)
                before, after, found = tried
                break
            else:
                return

    def done_lines(self) -> list[str]:
        """A line for each thing done, with the number of turns it was done to."""
        return [f"{line}, {len(turns)} turn{'s' * (len(turns) != 1)}"
                for line, turns in self.done.items()]

    def _follow(self, number: int) -> None:
        """Do to a turn what was done to those before it, in their order."""
        if self.no_thinking:
            self.bodies[number] = drop_thinking(self.bodies[number])
        for rule in self.cuts:
            found = moves.follow(rule, self.bodies[number])
            if found is not None:
                self.bodies[number], text = found
                self.tails[number].append(text)
                self.done[rule.line].add(number)

    def _attempt(
        self, number: int, broken: Break, before: Rendering, after: Rendering
    ) -> Attempt | str:
        """What might mend a break; or, for one that is left, why ("" where its kind says it)."""
        old, new = self.bodies[number - 1], self.bodies[number]
        sides = (Side(body=old, rendering=before, span=broken.before_span),
                 Side(body=new, rendering=after, span=broken.after_span))
        if broken.kind in WHAT:
            return _as_sent_before(broken, *sides)
        if broken.kind == THINKING:
            return Attempt(bodies={-1: drop_thinking(old), 0: drop_thinking(new)},
                           line="earlier thinking dropped", no_thinking=True)
        if broken.kind == TIME and broken.at.place.startswith(TOOL_FIELDS):
            return _coarser(broken, *sides)
        if broken.kind in (TIME, ID) and broken.stamp is not None:
            return moves.line_moved(broken, *sides)
        if broken.kind in (TIME, INSERTED):
            return moves.block_moved(*sides)
        return ""

    def _tried(
        self, number: int, attempt: Attempt, found: Comparison, key: Key, before: Rendering,
        after: Rendering,
    ) -> tuple[Rendering, Rendering, Comparison] | None:
        """Both renderings and their comparison with an attempt; None where it mends nothing."""
        old, new = (render(attempt.bodies[step]) if step in attempt.bodies else was
                    for step, was in ((-1, before), (0, after)))
        now = compare(old, new)
        counts = [Counter(_key(a, b, broken) for broken in of.breaks)
                  for a, b, of in ((before, after, found), (old, new, now))]
        is_gone = counts[1][key] < counts[0][key]
        return (old, new, now) if is_gone and _cost(new, now) < _cost(after, found) else None

    def _accept(self, number: int, attempt: Attempt) -> None:
        """Keep an attempt, and do the same to the turns before, which begin alike."""
        done = self.done.setdefault(attempt.line, set())
        first = number - 1 if -1 in attempt.bodies else number
        was = self.bodies[number - 1]
        for step, body in attempt.bodies.items():
            self.bodies[number + step] = body
            done.add(number + step)
        for step, texts in attempt.tails.items():
            self.tails[number + step].extend(texts)
        if attempt.no_thinking:
            self.no_thinking = True
            self.bodies[:first] = map(drop_thinking, self.bodies[:first])
            done.update(range(number))
        for earlier in range(first - 1, -1, -1):
            again = moves.same_again(attempt, was, self.bodies[earlier])
            if again is None:
                break
            self.bodies[earlier], texts = again
            self.tails[earlier].extend(texts)
            done.add(earlier)
        if attempt.rule is not None:
            self.cuts.append(attempt.rule)

    def _leave(self, number: int, broken: Break, original: Comparison | None, why: str) -> None:
        """Say what stays, once for each kind and place that the turn broke at as it was sent."""
        key = broken.kind, _general(broken.at.place)
        had = {(item.kind, _general(item.at.place))
               for item in (original.breaks if original is not None else ())}
        if key in had and why != moves.AT_ITS_END:
            said = f" ({why})" if why else ""
            self.left.setdefault(key, f"turn {number + 1}: {broken.detail}: left as it is{said}; "
                                      f"{broken.remedy}")


def _key(before: Rendering, after: Rendering, broken: Break) -> Key:
    """A break by what differs, wherever it stands."""
    return (broken.kind, broken.detail, before.data[slice(*broken.before_span)],
            after.data[slice(*broken.after_span)])


def _cost(after: Rendering, found: Comparison) -> int:
    """Bytes behind each break: less, where a break is gone or comes later."""
    return sum(len(after.data) - broken.at.offset_bytes for broken in found.breaks)


def _as_sent_before(broken: Break, before: Side, after: Side) -> Attempt | str:
    """The same content as the turn before sent it: a piece of a text, a list, a schema, the tools.
    """
    place = broken.at.place
    line = f"{WHAT[broken.kind]} in {place} written as the turn before wrote it"
    a, b = before.spot(), after.spot()
    if a is not None and b is not None:
        if broken.kind == FORM and not same_indents(a.text[:a.end], b.text[:b.end]):
            return "its lines are indented otherwise, which may mean something"
        text = b.text[:b.at] + a.text[a.at:a.end] + b.text[b.end:]
        return Attempt(bodies={0: put(after.body, b.place, text)}, line=line)
    field_name = place.partition("[")[0]
    if broken.kind == ORDER and field_name in TOOL_FIELDS:
        tools = tools_in_order(*(value_at(side.body, field_name) for side in (before, after)))
        if tools is not None:
            return Attempt(bodies={0: put(after.body, field_name, tools)},
                           line="tools sent in the order of the turn before")
    for outer in alike_ancestors(place):
        found = as_before(value_at(before.body, outer), value_at(after.body, outer))
        if found is not None:
            return Attempt(bodies={0: put(after.body, outer, found)}, line=line)
    return ""


def _coarser(broken: Break, before: Side, after: Side) -> Attempt | str:
    """A time in a tool's text, to the day."""
    bodies: dict[int, Body] = {}
    for step, side in ((-1, before), (0, after)):
        found = side.spot()
        if found is None:
            return ""
        bodies[step] = put(side.body, found.place, coarse(found.text, found.at))
    return Attempt(bodies=bodies, place=broken.at.place,
                   line=f"the time in {broken.at.place} made coarser: to the day")
