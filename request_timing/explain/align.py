"""Where two turns part, where they meet again, and both sides in a line each.

Everything is bytes of UTF-8: comparing slices of them is as fast as memory, offsets need no
translation, and no cut ever falls within a character.
"""

from __future__ import annotations

import bisect
import unicodedata
from dataclasses import dataclass

from request_timing.prompts.filler import common_prefix
from request_timing.prompts.rendering import Rendering

FIRST_STEP, LARGEST_STEP = 1 << 12, 1 << 20
PROBE, SHORT_PROBE = 32, 8
NEAR_BYTES = 160  # how far a short probe, which may match by chance, is believed
SHOWN_BYTES = 1 << 14  # how far a common run is looked for to mark what differs
RUN_BYTES = 16  # how long a common run has to be, unless it reaches the end
FAR_STEP, GROWTH = 8, 1.25
CONTEXT_COLUMNS, SPAN_COLUMNS, LINE_COLUMNS = 22, 36, 68
OPEN, CLOSE, ELLIPSIS = "«", "»", "…"
VISIBLE = str.maketrans({"\n": "␊", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first byte at which a turn is no longer like an earlier one.

    offset_bytes counts from 0 in both renderings; line from 1. place is where the byte lies in
    the turn (in the earlier one where the turn has ended); before and after are one line each,
    the differing span marked. shared_chars is what comes before it.
    """

    offset_bytes: int
    shared_chars: int
    line: int
    place: str
    before: str
    after: str


def common_prefix_bytes(a: bytes, b: bytes, a_from: int = 0, b_from: int = 0) -> int:
    """How many bytes a[a_from:] and b[b_from:] share from their start."""
    done, step = 0, FIRST_STEP
    limit = min(len(a) - a_from, len(b) - b_from)
    while done < limit:
        size = min(step, limit - done)
        left = a[a_from + done:a_from + done + size]
        right = b[b_from + done:b_from + done + size]
        if left != right:
            return done + common_prefix(left, right)
        done += size
        step = min(2 * step, LARGEST_STEP)
    return limit


def common_suffix_bytes(a: bytes, b: bytes) -> int:
    """How many bytes a and b share at their ends."""
    return common_prefix_bytes(a[::-1], b[::-1])


def character_start(data: bytes, offset: int) -> int:
    """The start of the character that `offset` lies in."""
    while 0 < offset < len(data) and data[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


def parting(a: bytes, b: bytes, a_from: int = 0, b_from: int = 0) -> tuple[int, int]:
    """Where a and b part, from two positions on that are alike; at the start of a character."""
    shared = common_prefix_bytes(a, b, a_from, b_from)
    data, start = (b, b_from) if b_from + shared < len(b) else (a, a_from)
    shared = max(character_start(data, start + shared) - start, 0)
    return a_from + shared, b_from + shared


def meeting(
    a: bytes, a_from: int, a_end: int, b: bytes, b_from: int, b_end: int
) -> tuple[int, int] | None:
    """Where a and b, which part at a_from and b_from, are alike again; None if they are not.

    The pair of positions with the fewest bytes skipped, found by looking for short pieces of each
    in the other, from near to far. A common end of both ranges counts, however short.
    """
    # Letters that both have where they part ("yesterday" and "today") are found near.
    near = _search(a, a_from, min(a_end, a_from + NEAR_BYTES + RUN_BYTES),
                   b, b_from, min(b_end, b_from + NEAR_BYTES + RUN_BYTES), SHORT_PROBE)
    if near is not None and not _is_run(a, near[0], a_end, b, near[1], b_end):
        near = None
    # Of what lies further off than what was found, nothing is nearer.
    reach = len(a) + len(b) if near is None else near[0] - a_from + near[1] - b_from + PROBE
    far = _search(a, a_from, min(a_end, a_from + reach), b, b_from, min(b_end, b_from + reach),
                  PROBE)
    found = [pair for pair in (near, far) if pair is not None]
    if found:
        at = min(found, key=lambda pair: pair[0] - a_from + pair[1] - b_from)
        return _widened(a, a_from, at[0], b, b_from, at[1])
    tail = common_suffix_bytes(a[a_from:a_end][-RUN_BYTES * 64:],
                               b[b_from:b_end][-RUN_BYTES * 64:])
    if tail:
        while tail and a[a_end - tail] & 0xC0 == 0x80:
            tail -= 1
        return a_end - tail, b_end - tail
    return None


def _is_run(a: bytes, at: int, a_end: int, b: bytes, b_at: int, b_end: int) -> bool:
    run = common_prefix_bytes(a[at:at + PROBE], b[b_at:b_at + PROBE])
    return run >= RUN_BYTES or at + run >= a_end or b_at + run >= b_end


def _search(
    a: bytes, a_from: int, a_end: int, b: bytes, b_from: int, b_end: int, size: int
) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    cost = (a_end - a_from) + (b_end - b_from) + 1
    step, ahead = (1 if size < FAR_STEP + 1 else FAR_STEP), 0
    while ahead < cost and ahead <= max(a_end - a_from, b_end - b_from) - size:
        for x, x_at, x_end, y, y_at, y_end, swapped in (
                (b, b_from, b_end, a, a_from, a_end, False),
                (a, a_from, a_end, b, b_from, b_end, True)):
            probe = x[x_at + ahead:min(x_at + ahead + size, x_end)]
            if len(probe) < size or len(set(probe)) < min(6, size - 3):
                continue
            found = y.find(probe, y_at, min(y_end, y_at + cost - ahead + size))
            if found >= 0 and ahead + found - y_at < cost:
                cost = ahead + found - y_at
                best = (x_at + ahead, found) if swapped else (found, x_at + ahead)
        ahead += max(step, int(ahead * (GROWTH - 1))) if size == PROBE else step
    return best


def _widened(
    a: bytes, a_from: int, a_at: int, b: bytes, b_from: int, b_at: int
) -> tuple[int, int]:
    """The start of the common run that holds two positions, not before where the texts part."""
    back = common_suffix_bytes(a[a_from:a_at], b[b_from:b_at])
    a_at, b_at = a_at - back, b_at - back
    while a_at < len(a) and a[a_at] & 0xC0 == 0x80:
        a_at, b_at = a_at + 1, b_at + 1
    return a_at, b_at


class Beginnings:
    """The turns so far, to be asked for the longest beginning that any shares with a new one.

    In sorted order, whichever shares most is a neighbour of the new one: so each turn costs a
    few comparisons, however many there are.
    """

    def __init__(self) -> None:
        self._sorted: list[tuple[bytes, int]] = []

    def longest(self, data: bytes) -> tuple[int, int]:
        """(bytes shared, number of that turn counted from 0) of the best; (0, -1) with none."""
        at = bisect.bisect_left(self._sorted, data, key=lambda pair: pair[0])
        best = (0, -1)
        for held, number in self._sorted[max(0, at - 1):at + 1]:
            best = max(best, (parting(held, data)[0], number))
        return best

    def add(self, data: bytes, number: int) -> None:
        """Hold one more turn."""
        bisect.insort(self._sorted, (data, number))


def divergence(before: Rendering, after: Rendering) -> Divergence:
    """The first divergence of a turn from an earlier one; at its end, where it only adds.

    Where the models differ, nothing is shared, and the place is `model`.
    """
    a, b = before.data, after.data
    if before.model != after.model:
        return Divergence(offset_bytes=0, shared_chars=0, line=1, place="model",
                          before=marked("", before.model or "", ""),
                          after=marked("", after.model or "", ""))
    at, _ = parting(a, b)
    return at_offset(before, after, at, at)


def units_at(before: Rendering, a_at: int, after: Rendering, b_at: int) -> tuple[int, int]:
    """The units in which two renderings part.

    Where one message has ended and the other goes on, that is the message both began.
    """
    found = []
    for of, at in ((before, a_at), (after, b_at)):
        index = of.unit_index(at)
        found.append(at - of.units[index].start if index < len(of.units) else 0)
    back = min(max(found), a_at, b_at)
    if before.data[a_at - back:a_at] != after.data[b_at - back:b_at]:
        back = 0
    return before.unit_index(a_at - back), after.unit_index(b_at - back)


def at_offset(
    before: Rendering, after: Rendering, a_at: int, b_at: int,
    ends: tuple[int, int] | None = None,
) -> Divergence:
    """The divergence at two positions up to which the renderings are known to be aligned.

    ends: where both go on, if that is known.
    """
    a, b = before.data, after.data
    a_end, b_end = ends or meeting(a, a_at, min(len(a), a_at + SHOWN_BYTES),
                                   b, b_at, min(len(b), b_at + SHOWN_BYTES)) or (len(a), len(b))
    _, b_unit = units_at(before, a_at, after, b_at)
    is_next = b_unit < len(after.units) and after.units[b_unit].end == b_at
    place = before.place(a_at) if b_at == len(b) or is_next else after.place(b_at)
    return Divergence(
        offset_bytes=b_at, shared_chars=char_count(b[:b_at]), line=b.count(b"\n", 0, b_at) + 1,
        place=place, before=side(a, a_at, max(a_at, a_end)), after=side(b, b_at, max(b_at, b_end)))


def char_count(data: bytes) -> int:
    """Characters of UTF-8 that starts and ends at characters."""
    return len(data.decode("utf-8", "surrogatepass"))


def side(data: bytes, start: int, end: int) -> str:
    """One line: what comes before, «what differs», and what follows, each cut short."""
    reach = 4 * CONTEXT_COLUMNS
    left = data[character_start(data, max(0, start - reach)):start]
    right = data[end:character_start(data, min(len(data), end + reach))]
    if end - start <= 3 * reach:
        return marked(_decoded(left), _decoded(data[start:end]), _decoded(right))
    head = data[start:character_start(data, start + reach)]
    tail = data[character_start(data, end - reach):end]
    return marked(_decoded(left), _decoded(head) + ELLIPSIS + _decoded(tail), _decoded(right))


def marked(left: str, span: str, right: str) -> str:
    """left«span»right in one line: long parts cut short, control characters visible."""
    head, shown, tail = visible(left), visible(span), visible(right)
    if columns(shown) > SPAN_COLUMNS:
        third = SPAN_COLUMNS // 3
        shown = first_columns(shown, 2 * third) + ELLIPSIS + _last(shown, third)
    if columns(head) > CONTEXT_COLUMNS:
        head = ELLIPSIS + _last(head, CONTEXT_COLUMNS)
    room = LINE_COLUMNS - columns(head) - columns(shown) - 3
    if columns(tail) > room:
        tail = first_columns(tail, room) + ELLIPSIS
    return f"{head}{OPEN}{shown}{CLOSE}{tail}"


def columns(text: str) -> int:
    """How wide a terminal shows a text: East Asian wide characters take two columns."""
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text
                           if c > "\u10ff")


def first_columns(text: str, width: int) -> str:
    """As much of the beginning of a text as fits that many columns."""
    text = text[:width]
    while columns(text) > width:
        text = text[:-1]
    return text


def _last(text: str, width: int) -> str:
    text = text[-width:]
    while columns(text) > width:
        text = text[1:]
    return text


def visible(text: str) -> str:
    """The text with what cannot be seen made visible: ␊ ⇥ ␍ ⍽, other characters as \\x1b."""
    text = text.translate(VISIBLE)
    return text if text.isprintable() else "".join(
        c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace")
