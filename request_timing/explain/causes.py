"""Why a turn is not simply the turn before with something added: each break, its cause, its remedy.

The first break is found at the first byte that differs. Then the two turns are aligned behind it,
and the comparison goes on, so that mending the first does not hide the second. What is alike
behind the first break is what was sent again and could have been reused.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from request_timing.errors import one_line
from request_timing.explain.align import (
    Divergence,
    at_offset,
    char_count,
    divergence,
    parting,
    units_at,
)
from request_timing.explain.edits import SUMMARY_WORDS, THOUGHT_MARKS, edit, less_thinking
from request_timing.explain.kinds import (
    COMPACTION,
    CUT,
    EDITED,
    INSERTED,
    MODEL,
    ORDER,
    REMEDIES,
    SYSTEM,
    THINKING,
    UNKNOWN,
    Edit,
    remedy,
)
from request_timing.explain.volatile import Volatile
from request_timing.prompts.rendering import MESSAGE, ROLE_MARK, SETTING, TOOL, Rendering, Unit
from request_timing.prompts.rendering import SYSTEM as SYSTEM_UNIT

MOST_BREAKS, NAME_CHARS = 48, 40
TOOL_ROLES = ("tool", "function", "function_call_output")
TOOL_RESULT = re.compile(r"content\[\d+\]\.content")  # a part of the user's, with Anthropic
KEPT_BYTES = 48  # a shorter run that both have is chance: "The user ", or a line's markup
SAME_LETTERS = 4  # with which two texts may begin by chance
SOLID_BYTES, SOLID_UNITS = 40, 2
HEAD_MESSAGES = 2  # a window that slides may keep the first request and its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One change of a turn against the turn before.

    kind: one of edits.KINDS. detail says it in words, remedy what to do, each in one line. at is
    where; its offset is in the turn's rendering. stamp is the time, id or counter, if it is one.
    before_span, after_span: the bytes of both renderings that were passed over.
    """

    kind: str
    detail: str
    remedy: str
    at: Divergence
    before_span: tuple[int, int]
    after_span: tuple[int, int]
    stamp: Volatile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A turn against the turn before: what is shared, what broke, what was sent again.

    avoidable_chars: characters behind the first break that the turn before had too, so that
    without the breaks they could have been reused. breaks is empty where the turn only adds.
    is_same: nothing differs. is_beginning: the turn before goes on where this one ends.
    """

    first: Divergence
    breaks: tuple[Break, ...]
    avoidable_chars: int
    is_same: bool = False
    is_beginning: bool = False

    @property
    def nothing(self) -> str:
        """What is said of a turn that breaks nothing; "" for one that does."""
        if self.breaks:
            return ""
        if self.is_same:
            return "nothing: the same turn again"
        return ("nothing: it is the beginning of the turn before" if self.is_beginning
                else "nothing: it appends")


def compare(before: Rendering, after: Rendering) -> Comparison:
    """What broke a turn, against the turn before: every break in order, up to MOST_BREAKS."""
    a, b = before.data, after.data
    first = divergence(before, after)
    breaks: list[Break] = []
    if first.place == "model":
        breaks.append(Break(
            kind=MODEL, remedy=REMEDIES[MODEL], at=first, before_span=(0, 0), after_span=(0, 0),
            detail="another model ({}, then {})".format(*(
                one_line(of.model or "none", limit=NAME_CHARS) for of in (before, after)))))
    a_at = b_at = known = avoidable = 0
    while True:
        a_next, b_next = parting(a, b, a_at, b_at)
        if breaks and (b_next - b_at >= KEPT_BYTES or _holds_a_unit(after, b_at, b_next)):
            avoidable += char_count(b[max(b_at, known):b_next])
        a_at, b_at = a_next, b_next
        known = max(known, b_at)
        if _is_append(before, a_at) or b_at == len(b) or len(breaks) >= MOST_BREAKS:
            break
        change = _change(before, after, a_at, b_at)
        # Whole messages that come or go are aligned at their start, which may lie a bit back.
        end = change.before_end, change.after_end
        if end[0] <= a_at and end[1] <= b_at:
            end = len(a), len(b)
        breaks.append(Break(
            kind=change.kind, detail=change.detail, stamp=change.stamp,
            remedy=remedy(change.kind, change.stamp), at=at_offset(before, after, a_at, b_at, end),
            before_span=(min(a_at, end[0]), end[0]), after_span=(min(b_at, end[1]), end[1])))
        if change.same_content:
            avoidable += min(char_count(a[a_at:end[0]]), char_count(b[b_at:end[1]]))
        a_at, b_at = end
    return Comparison(first=breaks[0].at if breaks else first, breaks=tuple(breaks),
                      avoidable_chars=avoidable, is_same=not breaks and a == b,
                      is_beginning=not breaks and not _is_append(before, a_at))


def _holds_a_unit(of: Rendering, start: int, end: int) -> bool:
    """Whether a whole tool, setting or message lies in a run."""
    index = bisect_left(of.units, start, key=lambda unit: unit.start)
    return index < len(of.units) and of.units[index].end <= end


def _is_append(before: Rendering, at: int) -> bool:
    """Whether the turn before has nothing left at `at` but the end of its last message."""
    return not before.data[at:at + 64].strip() and not before.data[at:].strip()


def _change(before: Rendering, after: Rendering, a_at: int, b_at: int) -> Edit:
    """The change at two positions where the renderings part."""
    a_first, b_first = units_at(before, a_at, after, b_at)
    olds, news = before.units[a_first:], after.units[b_first:]
    if not olds or not news:
        return Edit(kind=UNKNOWN, detail="unknown", before_end=len(before.data),
                    after_end=len(after.data))
    old, new = olds[0], news[0]
    if TOOL in (old.kind, new.kind):
        return _tools(before, after, a_at, b_at, olds, news)
    if SETTING in (old.kind, new.kind):
        if old.kind == new.kind and old.name == new.name:
            other = "other" if old.name.endswith("s") else "another"
            return Edit(kind=SYSTEM, detail=f"{other} {old.name}", before_end=old.end,
                        after_end=new.end)
        name = old.name if old.kind == SETTING else new.name
        return Edit(kind=SYSTEM, detail=f"{name} is there in one turn only",
                    before_end=old.end if old.kind == SETTING else a_at,
                    after_end=new.end if new.kind == SETTING else b_at)
    if MESSAGE in (old.kind, new.kind) or SYSTEM_UNIT in (old.kind, new.kind):
        return _messages(before, after, a_at, b_at, a_first, b_first)
    return edit(before.data, a_at, old.end, after.data, b_at, new.end, "")


def _bytes(of: Rendering, unit: Unit) -> bytes:
    return of.data[unit.start:unit.end]


def _tools(
    before: Rendering, after: Rendering, a_at: int, b_at: int, olds: Sequence[Unit],
    news: Sequence[Unit],
) -> Edit:
    """A change among tools: another order, another set, or one that is defined anew."""
    olds = [unit for unit in olds if unit.kind == TOOL]
    news = [unit for unit in news if unit.kind == TOOL]
    a_end, b_end = (units[-1].end if units else at for units, at in ((olds, a_at), (news, b_at)))
    if olds and news and olds[0].name == news[0].name:
        return edit(before.data, a_at, olds[0].end, after.data, b_at, news[0].end, "tools")
    old_names, new_names = [u.name for u in olds], [u.name for u in news]
    if Counter(old_names) == Counter(new_names):
        texts = [Counter(_bytes(of, u) for u in units) for of, units in
                 ((before, olds), (after, news))]
        more = "" if texts[0] == texts[1] else ", and not all defined as before"
        return Edit(kind=ORDER, before_end=a_end, after_end=b_end, same_content=True,
                    detail=f"the same {len(olds)} tools in another order{more}")
    added = [name for name in new_names if name not in old_names]
    gone = [name for name in old_names if name not in new_names]
    said = " and ".join([f"{_names(names)} {word}" for names, word in
                         ((gone, "gone"), (added, "added")) if names])
    met = _first_common(old_names, new_names)
    if met is not None:
        a_end, b_end = olds[met[0]].start, news[met[1]].start
    return Edit(kind=SYSTEM, detail=f"another tool set: {said}", before_end=max(a_at, a_end),
                after_end=max(b_at, b_end))


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, limit=NAME_CHARS) for name in names[:2])
    return shown + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _first_common(olds: Sequence[object], news: Sequence[object]) -> tuple[int, int] | None:
    """The pair of indices with equal items that skips the fewest."""
    where: dict[object, int] = {}
    for index, item in enumerate(news):
        where.setdefault(item, index)
    pairs = [(index, where[item]) for index, item in enumerate(olds) if item in where]
    return min(pairs, key=sum) if pairs else None


def _aligned(olds: Sequence[bytes], news: Sequence[bytes]) -> tuple[int, int] | None:
    """How many messages to skip on either side until both go on alike; None where they do not.

    Alike for two messages, for one that is no mere "ok", or up to the end of the old ones.
    """
    where: dict[bytes, list[int]] = {}
    for index, item in enumerate(news):
        where.setdefault(item, []).append(index)
    best: tuple[int, int] | None = None
    for old, item in enumerate(olds):
        if best is not None and old >= sum(best):
            break
        for new in where.get(item, ())[:8]:
            run = 0
            while old + run < len(olds) and new + run < len(news) and (
                    olds[old + run] == news[new + run]) and run < SOLID_UNITS:
                run += 1
            solid = run >= SOLID_UNITS or len(item) >= SOLID_BYTES or old + run == len(olds)
            if solid and (best is None or old + new < sum(best)):
                best = (old, new)
    return best


def _messages(
    before: Rendering, after: Rendering, a_at: int, b_at: int, first: int, b_first: int
) -> Edit:
    """A change among messages: which of them are gone, came in, were replaced or written anew."""
    olds, news = before.units[first:], after.units[b_first:]
    old, new = olds[0], news[0]
    old_texts, new_texts, alike, thought = _texts(before, after, first, b_first)
    if thought is not None:
        return thought
    gone, come = alike or (len(olds), len(news))
    a_end, b_end = (units[count].start if count < len(units) else units[-1].end
                    for units, count in ((olds, gone), (news, come)))
    if alike is not None and (gone == 0 or come == 0):
        kind, detail = _moved(before, after, olds[:gone], news[:come], first)
        return Edit(kind=kind, detail=detail, before_end=a_end, after_end=b_end)
    same_role = old.role == new.role
    replaced = sum(map(len, old_texts[:gone])), sum(map(len, new_texts[:come]))
    if gone > come and replaced[1] < replaced[0] and old.kind == MESSAGE and (
            alike is not None or SUMMARY_WORDS.search(
                new_texts[0][:4000].decode("utf-8", "replace"))):
        return Edit(kind=COMPACTION, before_end=a_end, after_end=b_end,
                    detail=f"{gone} messages of {replaced[0]:,} bytes became {come} of "
                           f"{replaced[1]:,}")
    if same_role:
        result = TOOL_RESULT.search(before.place(a_at)) or old.role in TOOL_ROLES
        found = edit(before.data, a_at, old.end, after.data, b_at, new.end,
                     "tool" if result else old.role)
        if found.kind == EDITED and (first == 0 or len(olds) > 1) and alike is None and (
                found.before_end >= old.end - 1 and found.after_end >= new.end - 1) and (
                a_at - old.start <= len(f"<|{old.role}|>\n") + SAME_LETTERS):
            rest = "nothing in common with the turn before" if first == 0 else (
                "the messages from here on are others")
            return Edit(kind=UNKNOWN, detail=f"unknown: {rest}",
                        before_end=len(before.data), after_end=len(after.data))
        if found.detail.startswith("an edited") and len(olds) == 1 and alike is None:
            return Edit(kind=EDITED, detail=f"another last message of the {old.role}",
                        before_end=found.before_end, after_end=found.after_end)
        return found
    if SYSTEM_UNIT in (old.kind, new.kind):
        return Edit(kind=SYSTEM, before_end=old.end if old.kind == SYSTEM_UNIT else a_at,
                    after_end=new.end if new.kind == SYSTEM_UNIT else b_at,
                    detail="another system prompt, there in one turn only")
    if alike is not None:
        return Edit(kind=EDITED, before_end=a_end, after_end=b_end,
                    detail=f"{gone} earlier messages became {come} others")
    return Edit(kind=UNKNOWN, detail="unknown: the messages from here on are others",
                before_end=a_end, after_end=b_end)


@functools.lru_cache(maxsize=1)  # a message with many breaks is looked at once
def _texts(before: Rendering, after: Rendering, first: int, b_first: int) -> tuple[
        Sequence[bytes], Sequence[bytes], tuple[int, int] | None, Edit | None]:
    """The messages of both from two of them on, where they go on alike, and the thinking."""
    olds, news = before.units[first:], after.units[b_first:]
    old_texts = [_bytes(before, unit) for unit in olds]
    new_texts = [_bytes(after, unit) for unit in news]
    thinks = any(mark.encode() in of.data for of in (before, after) for mark in THOUGHT_MARKS)
    return (old_texts, new_texts, _aligned(old_texts, new_texts),
            _thinking(old_texts, new_texts, olds, news) if thinks else None)


def _thinking(
    old_texts: Sequence[bytes], new_texts: Sequence[bytes], olds: Sequence[Unit],
    news: Sequence[Unit],
) -> Edit | None:
    """Messages that are the same but for their thinking, or thinking that is an item by itself."""
    bare = []
    for texts, units in ((old_texts, olds), (new_texts, news)):
        index, text, stripped = 0, "", ""
        for index, data in enumerate(texts):  # noqa: B007
            text = data.decode("utf-8", "replace")
            stripped = less_thinking(text)
            if stripped == text or ROLE_MARK.sub("", stripped).strip():
                break
        bare.append((stripped, text != stripped or index > 0, units[index], index))
    (old, old_has, old_unit, old_index), (new, new_has, new_unit, new_index) = bare
    # The last thing of a templated prompt asks for an answer, with or without thinking.
    is_cue = old_has and old_index + 1 == len(olds) and old.strip() and (
        new.startswith(old.strip()))
    if not (old_has or new_has) or not old or (old.split() != new.split() and not is_cue):
        return None
    # Thinking as an item by itself: what follows it is compared again, and found alike.
    skip = old_index > 0 or new_index > 0
    return Edit(kind=THINKING, detail="earlier thinking is removed or rendered again",
                before_end=old_unit.start if skip else old_unit.end,
                after_end=new_unit.start if skip else new_unit.end)


def _moved(
    before: Rendering, after: Rendering, gone: Sequence[Unit], come: Sequence[Unit], first: int
) -> tuple[str, str]:
    """(kind, detail) of whole messages that are gone, or came in, while what follows stays."""
    if come:
        chars = sum(char_count(_bytes(after, unit)) for unit in come)
        return INSERTED, (f"{_messages_said(come)} of {chars:,} characters put in front of what "
                          "was there")
    if all(unit.kind == SYSTEM_UNIT for unit in gone):
        if first == 0:
            return SYSTEM, "the system prompt is gone"
        return INSERTED, "a block (memory, retrieved text) that was in front of what stays is gone"
    head = sum(unit.kind == MESSAGE for unit in before.units[:first])
    if head <= HEAD_MESSAGES or len(gone) > 1:
        return CUT, f"{_messages_said(gone)} cut off in front of what stays"
    return EDITED, f"an earlier message of the {gone[0].role} is gone"


def _messages_said(units: Sequence[Unit]) -> str:
    return f"{len(units)} message{'s' * (len(units) != 1)}"
