"""The same content arranged anew: as JSON, in white space, line ends and Unicode, or in order.

Each function asks one question of two texts that part at a_at and b_at and end at a_end and b_end,
and answers None, or with the change and where both go on.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from request_timing.explain.align import character_start, meeting
from request_timing.explain.kinds import FORM, JSON, ORDER, Edit
from request_timing.prompts.lossless_json import same_number

LINE_BYTES = 400  # how far to either side a line is looked at
JSON_BYTES, JSON_STARTS = 1 << 17, 24


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def line_start(data: bytes, at: int) -> int:
    """The start of the line, or of a long line's last part, that holds `at`."""
    found = data.rfind(b"\n", 0, at) + 1
    return character_start(data, max(found, at - LINE_BYTES))


def json_form(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int) -> Edit | None:
    """The same JSON in another form, or with a list of it in another order."""
    back = min(JSON_BYTES, a_at, b_at)
    head = b[b_at - back:b_at]
    if a[a_at - back:a_at] != head:  # an earlier change lies between: look no further than it
        back = min(LINE_BYTES, back)
        while back and a[a_at - back:a_at] != b[b_at - back:b_at]:
            back -= 1
        head = b[b_at - back:b_at]
    start, tried = len(head), 0
    texts: list[str] = []
    while tried < JSON_STARTS:
        start = max(head.rfind(b"{", 0, start), head.rfind(b"[", 0, start))
        if start < 0:
            return None
        tried += 1
        if not texts:
            texts = [decoded(data[at:at + JSON_BYTES]) for data, at in ((a, a_at), (b, b_at))]
        lead = decoded(head[start:])
        parsed = [_decode(lead + text) for text in texts]
        if None in parsed:
            continue
        (old, old_end), (new, new_end) = (pair for pair in parsed if pair is not None)
        if old_end <= len(lead) or new_end <= len(lead):
            continue  # closed before the texts part
        ends = [at + len(text[:end - len(lead)].encode()) for at, text, end in
                ((a_at, texts[0], old_end), (b_at, texts[1], new_end))]
        if ends[0] > a_end or ends[1] > b_end:
            continue
        if old == new:
            what = _what_of_json(lead, texts, parsed)
            return Edit(kind=JSON, detail=f"the same JSON with {what}",
                        before_end=ends[0], after_end=ends[1], same_content=True)
        if _sorted(old) == _sorted(new):
            return Edit(kind=ORDER, detail="the same list in another order", same_content=True,
                        before_end=ends[0], after_end=ends[1])
    return None


def same_content(old: str, new: str) -> bool:
    """Whether two JSON texts hold the same, but for the order of keys and lists and for form."""
    parsed = [_decode(text) for text in (old, new)]
    return None not in parsed and len({_sorted(pair[0]) for pair in parsed if pair}) == 1


def _decode(text: str, number: Callable[[str], Any] = same_number) -> tuple[Any, int] | None:
    """(value, where it ends) of the JSON that a text begins with; None where that is none.

    Numbers are told apart by what they mean, to the last digit, and from truth values. JSON in
    which a key comes twice is none here: which of the two counts is for its reader to say.
    """
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    spelled = partial(_Number.of, number)
    try:
        return json.JSONDecoder(parse_int=spelled, parse_float=spelled, parse_constant=refuse,
                                object_pairs_hook=_unique).raw_decode(text)
    except (ValueError, RecursionError):
        return None


class _Number(tuple[str]):
    """A number, by a text that is the same for two that count as the same."""

    __slots__ = ()

    @classmethod
    def of(cls, number: Callable[[str], str], spelling: str) -> _Number:
        """The number of a JSON literal."""
        return cls((number(spelling),))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _what_of_json(lead: str, texts: list[str], parsed: list[tuple[Any, int] | None]) -> str:
    """What of the form differs: key order, number format or spacing."""
    old, new = (pair[0] for pair in parsed if pair is not None)
    if repr(old) != repr(new):
        return "its keys in another order"
    spelled = [_decode(lead + text, str) for text in texts]
    same = [repr(pair[0]) for pair in spelled if pair is not None]
    return "another number format" if len(set(same)) > 1 else "other spacing or escapes"


def _sorted(value: Any) -> str:
    """A value's JSON with keys and lists sorted: equal for values that differ in order alone."""
    if isinstance(value, dict):
        return json.dumps({key: _sorted(item) for key, item in sorted(value.items())})
    if isinstance(value, list):
        return json.dumps(sorted(map(_sorted, value)))
    return json.dumps(value)


def squash(text: str) -> str:
    """The text without white space, line ends, invisible characters and Unicode form.

    NFC, since NFKC is for searching: it takes 10² for 102, and ① for 1.
    """
    kept = "".join(c for c in text if not c.isspace() and unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", kept)


def same_but_for_form(old: str, new: str) -> bool:
    """The same characters and the same words: "a nice house" is no "an ice house"."""
    words = [re.findall(r"[A-Za-z0-9]+", "".join(
        c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c) != "Cf"))
        for text in (old, new)]
    return words[0] == words[1] and squash(old) == squash(new)


def same_indents(old: str, new: str) -> bool:
    """Whether the lines of two texts, which say the same, begin with the same white space."""
    indents = [[line[:len(line) - len(line.lstrip())] for line in text.splitlines()[1:]
                if line.strip()] for text in (old, new)]
    return indents[0] == indents[1]


def text_form(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int) -> Edit | None:
    """The same characters but for white space, line ends or Unicode form, and how far that goes."""
    met = meeting(a, a_at, min(a_end, a_at + LINE_BYTES), b, b_at, min(b_end, b_at + LINE_BYTES))
    a_to, b_to = met or (min(a_end, a_at + LINE_BYTES), min(b_end, b_at + LINE_BYTES))
    old, new = (decoded(data[_word_start(data, at):_word_end(data, to, end) + 1])
                for data, at, to, end in ((a, a_at, a_to, a_end), (b, b_at, b_to, b_end)))
    ended = max(a_end - a_at, b_end - b_at) <= LINE_BYTES
    if (met is None and not ended) or old == new or not same_but_for_form(old, new):
        return None
    line_ends = old.replace("\r\n", "\n") == new.replace("\r\n", "\n")
    spaces = "".join(old.split()) == "".join(new.split())
    forms = unicodedata.normalize("NFC", old) == unicodedata.normalize("NFC", new)
    what = ("line ends" if line_ends else "white space" if spaces
            else "Unicode form" if forms else "invisible characters")
    while True:  # on over whole lines that differ in no more than that
        a_next, b_next = (data.find(b"\n", to, end) + 1 or end
                          for data, to, end in ((a, a_to, a_end), (b, b_to, b_end)))
        left, right = a[a_to:a_next], b[b_to:b_next]
        if (a_next, b_next) == (a_to, b_to) or (
                left != right and left.split() != right.split()
                and not same_but_for_form(decoded(left), decoded(right))):
            break
        a_to, b_to = a_next, b_next
    return Edit(kind=FORM, detail=f"the same text with other {what}", before_end=a_to,
                after_end=b_to, same_content=True)


def _word_start(data: bytes, at: int) -> int:
    start = at
    while start and at - start < LINE_BYTES and data[start - 1] not in b" \n\t\r":
        start -= 1
    return character_start(data, start)


def _word_end(data: bytes, at: int, end: int) -> int:
    stop = at
    while stop < end and stop - at < LINE_BYTES and data[stop] not in b" \n\t\r":
        stop += 1
    return stop


def order(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int) -> Edit | None:
    """The same lines, or the same items of one line, in another order."""
    a_from, b_from = line_start(a, a_at), line_start(b, b_at)
    for separator in (b"\n", b",", b";", b"|"):
        lines = separator == b"\n"
        ends = [end if lines else data.find(b"\n", at, end) % (end + 1)
                for data, at, end in ((a, a_at, a_end), (b, b_at, b_end))]
        if not lines:  # behind what the list is called: "Tags: red, green"
            a_from, b_from = (max([low, *(data.rfind(c, low, at) + 1 for c in (b":", b"[", b"("))])
                              for data, low, at in ((a, a_from, a_at), (b, b_from, b_at)))
        # The first item of either side has to be somewhere in the other: quickly asked.
        if (b.find(_first_item(a, a_from, a_at, ends[0], separator), b_at, ends[1]) < 0
                or a.find(_first_item(b, b_from, b_at, ends[1], separator), a_at, ends[0]) < 0):
            continue
        olds, news = (_items(data, start, stop, separator) for data, start, stop in
                      ((a, a_from, ends[0]), (b, b_from, ends[1])))
        count = _permuted([text for text, _ in olds], [text for text, _ in news])
        if count:
            what = "lines" if lines else "items"
            return Edit(kind=ORDER, detail=f"the same {count} {what} in another order",
                        before_end=max(a_at, olds[count - 1][1]),
                        after_end=max(b_at, news[count - 1][1]), same_content=True)
    return None


def _first_item(data: bytes, low: int, at: int, end: int, separator: bytes) -> bytes:
    """The item that `at` lies in."""
    start, stop = data.rfind(separator, low, at) + 1, data.find(separator, at, end)
    return data[max(start, low):stop if stop >= 0 else end].strip(b" \t\r\n.)]")


def _items(data: bytes, start: int, end: int, separator: bytes) -> list[tuple[bytes, int]]:
    """(item, where it ends) of a range, split behind each separator."""
    items, at = [], start
    for part in data[start:end].split(separator):
        at = min(at + len(part) + 1, end)
        items.append((part.strip(b" \t\r\n.)]"), at))
    return items


def _permuted(olds: list[bytes], news: list[bytes]) -> int:
    """How many first items of both are the same in another order; 0 if none are.

    The least number at which the same items have come up on both sides, two of them with some
    text, is where the permuted part ends.
    """
    balance: Counter[bytes] = Counter()
    open_items = 0
    for count, (old, new) in enumerate(zip(olds, news, strict=False), 1):
        for item, sign in ((old, 1), (new, -1)):
            was = balance[item]
            balance[item] += sign
            open_items += (balance[item] != 0) - (was != 0)
        if not open_items:
            moved = sum(x != y and len(x) > 1 for x, y in
                        zip(olds[:count], news[:count], strict=True))
            return count if moved >= 2 else 0
    return 0
