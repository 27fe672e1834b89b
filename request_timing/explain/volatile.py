"""What changes by itself in a prompt: times, ids, counters. Found by their looks, at one place.

Each function asks of two lines, which are alike up to `at`, whether the thing that differs there
is of its kind in both. A date that merely stands in a text that was replaced is none: what follows
must be alike again, or differ in things of the same sort.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TIME, ID, COUNTER = "time", "id", "counter"
SECOND, MINUTE, HOUR, DAY, MONTH = "second", "minute", "hour", "day", "month"
EPOCH_FROM, EPOCH_TO = 1_000_000_000, 2_200_000_000  # September 2001 to September 2039
DAY_S = 86_400
COMPACT_DATE, FILE_DATE = len("20260131"), len("2026-01-31")
FINER = (SECOND, MINUTE, HOUR, DAY, MONTH)  # the finest first
SAME_AFTER = 4  # characters behind the thing that have to be alike, where there are so many
MIN_HEX, MIN_TOKEN, MIN_LETTERS = 7, 8, 12

_MONTH = ("(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
          "sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\\.?")
_WEEKDAY = "(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\\.?"
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d"
_NUMERIC = (rf"(?:{_YEAR}(?P<s>[-/.])(?:0?[1-9]|1[0-2])(?P=s)(?:[12]\d|3[01]|0?[1-9])|"
            rf"{_YEAR} ?年 ?\d{{1,2}} ?月 ?\d{{1,2}} ?日|"
            r"(?:[12]\d|3[01]|0?[1-9])(?P<t>[-/.])(?:[12]\d|3[01]|0?[1-9])(?P=t)(?:19|20)\d\d|"
            r"(?:[12]\d|3[01]|0?[1-9])/(?:[12]\d|3[01]|0?[1-9])/\d\d)")
_WORDED = (rf"(?:(?:{_WEEKDAY},? +)?(?:{_DAY}(?: of)?[ -]{_MONTH}|{_MONTH} {_DAY})"
           rf"(?:,?[ -]{_YEAR})?|{_WEEKDAY},? +"
           + re.sub(r"(?<=P[<=])([st])(?=[>)])", r"w\1", _NUMERIC) + ")")
_CLOCK = (r"(?:(?:[01]?\d|2[0-3])(?P<m>[:.h][0-5]\d)(?P<sec>[:.][0-5]\d(?:[.,]\d{1,9})?)?"
          r"(?: ?[ap]\.?m\.?)?|(?:1[0-2]|0?[1-9])(?P<h> ?[ap]\.?m\.?))"
          r"(?: ?(?:z|utc|gmt|[a-z]{2,4}t)\b| ?(?:utc|gmt)?[+-]\d\d:?\d\d)?")
_DATE = rf"(?P<date>{_WORDED}|{_NUMERIC})"
_STAMPS = (
    rf"(?:{_DATE}(?:(?:t|,? +(?:at |um )?|[ _-]+){_CLOCK}(?: {_YEAR})?)?)",
    r"(?P<compact>20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    r"(?:[t_-]?(?:[01]\d|2[0-3])(?P<cm>[0-5]\d)?(?P<cs>[0-5]\d)?z?)?)",
    rf"(?P<file>{_YEAR}-\d\d-\d\d[t_ -](?:[01]\d|2[0-3])-(?P<fm>[0-5]\d)(?P<fs>-[0-5]\d)?)",
    rf"(?P<month>{_MONTH},? {_YEAR})",
    _CLOCK.replace("[:.h]", "[:h]"),
    rf"(?P<weekday>{_WEEKDAY})",
    r"(?P<ago>\d+ ?(?P<unit>seconds?|secs?|s|minutes?|mins?|hours?|hrs?|days?) (?:ago|old))",
)
_TIMES = tuple(re.compile(rf"(?<![A-Za-z0-9.]){stamp}(?![A-Za-z0-9])", re.I) for stamp in _STAMPS)
_EPOCH = re.compile(r"(?<![\w.])(\d{10})(\.\d+|\d{3}|\d{6}|\d{9})?(?![\w])")
_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?![0-9a-f])", re.I)
_TOKEN = re.compile(r"[A-Za-z0-9_+/=-]+(?:\.[A-Za-z0-9_-]+)*")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_COUNTED = ("turn", "step", "request", "iteration", "message", "messages", "attempt", "round",
            "count", "counter", "number", "no", "seq", "sequence", "tokens", "remaining", "left",
            "used", "budget", "calls", "run", "seed", "id", "index", "total", "uptime", "page",
            "revision", "build", "session", "steps", "turns", "percent", "cycle", "tick",
            "line", "row", "column", "position")
_ID_WORDS = ("id", "uuid", "nonce", "hash", "token", "session", "trace", "request", "seed", "key",
             "digest", "etag", "sha", "run", "salt", "boundary", "marker", "correlation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Volatile:
    """A thing that changed by itself, and where it ends on either side; starts are the same.

    detail: for a time, how often it changes (by the finest part that did); for the others, what it
    is. written: how finely a time is written, which may be finer than what changed of it.
    """

    kind: str
    detail: str
    start: int
    before_end: int
    after_end: int
    written: str = ""


def volatile(before: str, after: str, at: int, *, prose: bool = False) -> Volatile | None:
    """What changed by itself at `at`, up to which the two texts are alike; None for anything else.

    prose: the text is what somebody said, where a number is a number, unless it is named a count.
    """
    for found in (*_times(before, after, at), *_ids(before, after, at),
                  *_counters(before, after, at, prose=prose)):
        if _alike_after(before[found.before_end:], after[found.after_end:]):
            return found
    return None


def _alike_after(before: str, after: str) -> bool:
    """Whether what follows is alike again, at least up to the next thing of the same sort."""
    before, after = before.split("\n")[0], after.split("\n")[0]
    enough = min(SAME_AFTER, len(before), len(after))
    if before[:enough] == after[:enough] and (enough == SAME_AFTER or len(before) == len(after)
                                              or not enough):
        return True
    return masked(before) == masked(after)


def masked(text: str) -> str:
    """The text with everything that may change by itself replaced by a mark."""
    for pattern in (*_TIMES, _UUID, _EPOCH):
        text = pattern.sub("\0", text)
    text = _TOKEN.sub(lambda match: "\0" if _looks_random(match[0]) else match[0], text)
    return _NUMBER.sub("\0", text)


def stamps(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, granularity) of every time in a text, longest reading first at each place."""
    taken: list[tuple[int, int]] = []
    for pattern in _TIMES:
        for match in pattern.finditer(text):
            if not any(start < match.end() and match.start() < end for start, end in taken):
                taken.append(match.span())
                yield match.start(), match.end(), _granularity(match)
    for match in _EPOCH.finditer(text):
        if EPOCH_FROM <= int(match[1]) < EPOCH_TO:
            yield match.start(), match.end(), SECOND


def _covers(match: re.Match[str], at: int) -> bool:
    return match.start() <= at <= match.end()


def _times(before: str, after: str, at: int) -> Iterator[Volatile]:
    for pattern in _TIMES:
        for old, new in _both(pattern, before, after, at):
            yield Volatile(kind=TIME, detail=_finest_moved(old, new), start=new.start(),
                           before_end=old.end(), after_end=new.end(),
                           written=_granularity(new))
    for old, new in _both(_EPOCH, before, after, at):
        if all(EPOCH_FROM <= int(m[1]) < EPOCH_TO for m in (old, new)) and (
                len(old[2] or "") == len(new[2] or "") or "." in (old[2] or "")):
            midnights = all(not float(f"{m[1]}.{(m[2] or '').strip('.')}") % DAY_S
                            for m in (old, new))
            yield Volatile(kind=TIME, detail=DAY if midnights else SECOND, start=new.start(),
                           before_end=old.end(), after_end=new.end(), written=SECOND)


def _finest_moved(old: re.Match[str], new: re.Match[str]) -> str:
    """The finest part in which two times differ: midnight and the next midnight differ by a day.

    Where they differ in nothing that is known, how finely the new one is written.
    """
    had, has = old.groupdict(), new.groupdict()
    if had.get("unit") or has.get("unit"):  # 3 minutes ago
        return _granularity(new)
    for unit, names in ((SECOND, ("sec", "cs", "fs")), (MINUTE, ("m", "cm", "fm"))):
        if any(had.get(name) != has.get(name) for name in names):
            return unit
    if _granularity(new) in (SECOND, MINUTE, HOUR) and _hours(old) != _hours(new):
        return HOUR
    dated = any(has.get(name) for name in ("date", "compact", "file"))
    return DAY if dated else _granularity(new)


def _hours(match: re.Match[str]) -> str:
    """What stands between the date and the minutes of a time, and whether it is am or pm."""
    groups = match.groupdict()
    minutes = next((name for name in ("m", "cm", "fm") if groups.get(name)), "")
    end = match.start(minutes) if minutes else match.end()
    start = match.end("date") if groups.get("date") else match.start() + (
        COMPACT_DATE if groups.get("compact") else FILE_DATE if groups.get("file") else 0)
    noon = re.search(r"([ap])\.?m\b", match[0], re.I)
    return match.string[start:end] + (noon[1] if noon else "")


def _granularity(match: re.Match[str]) -> str:
    groups = match.groupdict()
    unit = groups.get("unit")
    if unit:
        return {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}[unit[0].lower()]
    if groups.get("sec") or groups.get("cs") or groups.get("fs"):
        return SECOND
    if groups.get("m") or groups.get("cm") or groups.get("fm"):
        return MINUTE
    if groups.get("h") or re.search(r"[t_-]\d\dz?$", groups.get("compact") or "", re.I):
        return HOUR
    return MONTH if groups.get("month") else DAY


def _both(
    pattern: re.Pattern[str], before: str, after: str, at: int
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    olds = [m for m in pattern.finditer(before) if _covers(m, at)]
    for new in pattern.finditer(after) if olds else ():
        if _covers(new, at):
            yield from ((old, new) for old in olds
                        if old.start() == new.start() and old[0] != new[0]
                        and max(old.end(), new.end()) > at)


def _looks_random(token: str) -> bool:
    """Letters and digits mixed as in a hash, an id or base64: not a word, not a number."""
    bare = re.sub(r"[^A-Za-z0-9]", "", token)
    digits = sum(c.isdigit() for c in bare)
    if not digits or digits == len(bare):
        return False
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", bare):
        return len(bare) >= MIN_HEX
    return len(bare) >= MIN_TOKEN and (
        digits >= 3 or len(re.findall(r"\d[A-Za-z]|[A-Za-z]\d|[a-z][A-Z]", bare)) >= 3)


def _is_word(letters: str) -> bool:
    """Whether letters could be a word: its share of vowels is that of a language."""
    return sum(c in "aeiouyAEIOUY" for c in letters) >= 0.3 * len(letters)


def _ids(before: str, after: str, at: int) -> Iterator[Volatile]:
    for old, new in _both(_UUID, before, after, at):
        yield Volatile(kind=ID, detail="UUID", start=new.start(), before_end=old.end(),
                       after_end=new.end())
    for old, new in _both(_TOKEN, before, after, at):
        a, b = old[0], new[0]
        length_alike = abs(len(a) - len(b)) <= 2 + len(b) // 10
        labelled = _labelled(before[:new.start()], _ID_WORDS)
        letters = (a.isalpha() and b.isalpha() and len(a) == len(b)
                   and sum(x == y for x, y in zip(a, b, strict=True)) < len(a) / 2
                   and (len(a) >= MIN_TOKEN if labelled else
                        len(a) >= MIN_LETTERS and not (_is_word(a) or _is_word(b))))
        random = _looks_random(a) and _looks_random(b)
        # A random token of few digits may have none at all.
        lucky = labelled and len(a) >= MIN_TOKEN and (_looks_random(a) or _looks_random(b))
        numeric = labelled and a.isdigit() and b.isdigit() and len(a) == len(b) >= MIN_TOKEN
        if length_alike and (random or letters or lucky or numeric):
            hexed = all(re.fullmatch(r"[0-9a-fA-F]+", x) for x in (a, b))
            yield Volatile(kind=ID, detail="hash" if hexed and not numeric else "random id",
                           start=new.start(), before_end=old.end(), after_end=new.end())


def _labelled(left: str, words: tuple[str, ...]) -> bool:
    """Whether one of the words stands just before, as in `session_id: ` or `nonce=`."""
    near = re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", left[-24:]).lower())
    return any(word in words for word in [word for word in near if word][-3:])


def _counters(before: str, after: str, at: int, *, prose: bool) -> Iterator[Volatile]:
    for old, new in _both(_NUMBER, before, after, at):
        left, right = after[:new.start()], after[new.end():]
        named = _labelled(left, _COUNTED) or re.match(
            rf" ?/ ?\d|%| (?:\w+ )?(?:{'|'.join(_COUNTED)})\b", right, re.I)
        keyed = not prose and re.search(r"\w[\"']?\s*[:=#]\s*$|[#\[]$", left)
        if named or keyed:
            yield Volatile(kind=COUNTER, detail="counter" if named else "number that changes",
                           start=new.start(), before_end=old.end(), after_end=new.end())
