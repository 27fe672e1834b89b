"""Pieces of a text that can be moved whole: a line, a sentence of a long line, a block of lines.

A piece never ends within a word or a number, takes the label in front of it along ("Now:"), and is
bounded, so that a log in one line costs no time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from request_timing.explain import volatile

LONG_LINE = 160  # a longer line is moved by its sentence
MOST_CHARS = 2_000  # a longer piece is no line that changes, but a document
WINDOW = 4_000  # how far from where it is expected a piece is looked for
JSON_STARTS, JSON_CHARS = 24, 1 << 17
WIDE_ENDS = "\u3002\uff01\uff1f"  # of sentences in Chinese and Japanese, with no space behind
SENTENCE = re.compile(rf"(?<=[.!?])\s+(?=[^a-z\s])|(?<=[{WIDE_ENDS}])")
SENTENCE_END = re.compile(rf"[.!?{WIDE_ENDS}]\s*\Z")
FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.M)
LABEL_CHARS, BARE_CHARS = 60, 12
Piece = tuple[int, int]


def piece_at(text: str, at: int) -> Piece | None:
    """(start, end) of the line at a position, with its line end and its label; of a long line's
    sentence. None for one that is too long to be moved."""
    at = min(at, max(0, len(text) - 1))
    start, end = _bounds(text, at)
    if end - start > MOST_CHARS or not text[start:end].strip():
        return None
    return _with_label(text, start, end)


def _bounds(text: str, at: int) -> Piece:
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at) + 1 or len(text)
    if end - start > LONG_LINE:
        low, high = max(start, at - MOST_CHARS), min(end, at + MOST_CHARS)
        cuts = [found.end() for found in SENTENCE.finditer(text, low, high)]
        start = max((cut for cut in cuts if cut <= at), default=start)
        end = min((cut for cut in cuts if cut > at), default=end)
    return start, end


def _with_label(text: str, start: int, end: int) -> Piece:
    """A piece that is little more than its value, with the line that says what it is.

    A label ends in a colon; a heading is one where nothing but the value stands below it; a tag
    goes with the one that closes it.
    """
    bare = re.sub(r"[\W_]", "", volatile.masked(text[start:end]).replace("\0", ""))
    above = text.rfind("\n", 0, max(0, start - 1)) + 1
    label = text[above:start].strip()
    if not start or text[start - 1] != "\n" or not 0 < len(label) <= LABEL_CHARS or (
            len(bare) > BARE_CHARS):
        return start, end
    if label.endswith(":"):
        return above, end
    if label.startswith("#") and re.match(r"\s*\n|#|\Z", text[end:end + LABEL_CHARS]):
        return above, end
    tag = re.fullmatch(r"<([\w-]+)[^<>]*>", label)
    closed = re.compile(rf"[ \t]*</{re.escape(tag[1])}>[ \t]*(?:\n|\Z)").match(
        text, end) if tag else None
    return (above, closed.end()) if closed else (start, end)


def piece_like(text: str, pattern: str, near: int) -> Piece | None:
    """The piece nearest to a position whose text, all that changes masked, is the pattern."""
    pieces = [piece for piece in _pieces(text, near)
              if volatile.masked(text[slice(*piece)]) == pattern]
    return min(pieces, key=lambda piece: abs(piece[0] - near), default=None)


def _pieces(text: str, near: int) -> Iterator[Piece]:
    at, end = max(0, near - WINDOW), min(len(text), near + WINDOW)
    while at < end:
        piece = piece_at(text, at)
        if piece is not None:
            yield piece
        at = max(_bounds(text, at)[1], at + 1)


def block(text: str, low: int, high: int, *, alone: bool) -> Piece | None:
    """The whole lines, or else sentences, of what lies from low to high; None for a part of one.

    alone: the other text has nothing there, so that the block may begin and end anywhere in what
    repeats: "A|B A" put in front of "A" is "|B A" or "A B|". Else both texts go on alike behind
    it, and the rest of the line belongs to it.
    """
    if not alone:
        start = _bounds(text, min(low, max(0, len(text) - 1)))[0]
        end = high if high <= start or text[high - 1] == "\n" else _bounds(text, high - 1)[1]
        end = max(end, high)
        return _with_label(text, start, end) if end > start else None
    shifted = [(low, high)]
    while low and text[low - 1] == text[high - 1] and len(shifted) < MOST_CHARS:
        low, high = low - 1, high - 1
        shifted.append((low, high))
    for is_edge in (_is_line, _is_sentence, _is_word):
        for start, end in shifted:
            if is_edge(text, start) and is_edge(text, end):
                return start, end
    return None


def _is_line(text: str, at: int) -> bool:
    return at in (0, len(text)) or text[at - 1] == "\n"


def _is_sentence(text: str, at: int) -> bool:
    return _is_line(text, at) or (bool(SENTENCE_END.search(text[max(0, at - 4):at])) and (
        text[at - 1].isspace() or text[at].isspace() or text[at - 1] in WIDE_ENDS))


def _is_word(text: str, at: int) -> bool:
    return _is_line(text, at) or text[at - 1].isspace() or text[at].isspace()


def is_code(text: str, start: int) -> bool:
    """Whether a position lies within a fence of code, of which no line can be spared."""
    return len(FENCE.findall(text, 0, start)) % 2 == 1


def keeps_json(text: str, start: int, end: int) -> bool:
    """Whether each JSON value that a piece lies within is still one without the piece."""
    head = max(0, start - JSON_CHARS)
    at = start
    for _ in range(JSON_STARTS):
        at = max(text.rfind("{", head, at), text.rfind("[", head, at))
        if at < 0:
            return True
        closed = _json_end(text[at:end + JSON_CHARS])
        if closed is None or at + closed <= start:
            continue
        rest = text[at:start] + text[end:end + JSON_CHARS]
        if at + closed < end or _json_end(rest) != closed - (end - start):
            return False
    return True


def _json_end(text: str) -> int | None:
    try:
        return json.JSONDecoder(parse_int=str, parse_float=str).raw_decode(text)[1]
    except (ValueError, RecursionError):
        return None
