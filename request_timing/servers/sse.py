"""Server-sent events to JSON values: the one reader of both adapters' streams, with no I/O in it.

Lines are cut in bytes, so no character is ever decoded in halves. It forgives what servers get
wrong (no blank line or no line end at all between events, none at the last, JSON without `data:`
or with two of them, in an array), and reports what it cannot read as `Noise` instead of failing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# An event whose JSON lies on more lines than this, or in more bytes, is no JSON.
MOST_LINES, MOST_BYTES, NOISE_CHARS = 1000, 1 << 24, 2000
DONE = "[DONE]"
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"(?:\s|data:)*")  # what stands before and between the values of a line


@dataclass(frozen=True, slots=True)
class Noise:
    """A piece of the stream that is no JSON; longer than is shown, so that a key is found whole."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The stream's own end mark, `data: [DONE]`; what follows is not read."""


def payloads(chunks: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, Any]]:
    """Each event's JSON value with the moment its bytes came: of the chunk that completed it.

    None stands for a chunk that completed no event, and says only that the stream is alive.
    Comments, other fields and empty data are no events. Data on several lines is joined; a line
    that is whole by itself is not held back for the blank line that should follow. Several values
    on a line, or in an array, are as many events.
    """
    held: list[bytes] = []
    at_s = 0.0
    for at_s, line in _lines(chunks):
        if line is None:
            yield at_s, None
            continue
        name, _, value = line.partition(b":")
        value = line if line.startswith(b"{") else _payload(name, value.strip())
        if not value:
            if not line:  # the blank line that ends an event
                yield from _noise(at_s, held)
                held = []
            continue
        held.append(value)
        found, earlier = _values(held)
        if found or len(held) > MOST_LINES:
            yield from _noise(at_s, earlier if found else held)
            held = []
        for one in found:
            yield at_s, one
            if isinstance(one, Done):
                return
    yield from _noise(at_s, held)


def _payload(name: bytes, value: bytes) -> bytes:
    """What a field holds of an event. A llama-server before September 2025 sends an error in a
    field of that name."""
    if name == b"error" and value.startswith(b"{"):
        return b'{"error": ' + value + b"}"
    while value.startswith(b"data:"):  # said twice
        value = value[len(b"data:"):].strip()
    return value if name == b"data" else b""


def _lines(chunks: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes | None]]:
    """The lines, each with the moment of the chunk that completed it; None once a chunk."""
    pending = b""
    after_cr = False
    at_s = 0.0
    for at_s, chunk in chunks:
        yield at_s, None
        if not chunk:
            continue
        if after_cr and chunk.startswith(b"\n"):  # the second half of a line end
            chunk = chunk[1:]
        after_cr = chunk.endswith(b"\r") or (after_cr and not chunk)
        *lines, pending = (pending + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(
            b"\n")
        for line in lines:
            yield at_s, line.removeprefix(b"\xef\xbb\xbf")
        if len(pending) > MOST_BYTES:
            yield at_s, pending[:MOST_BYTES]
            pending = b""
    if pending:
        yield at_s, pending.removeprefix(b"\xef\xbb\xbf")


def _values(held: list[bytes]) -> tuple[list[Any], list[bytes]]:
    """The values of all lines held, or of the last alone, if it is whole; and the lines before it
    that are not part of it."""
    for start in dict.fromkeys((0, len(held) - 1)):
        try:
            text = b"\n".join(held[start:]).decode("utf-8", "replace")
            return _decoded(text), held[:start]
        except (ValueError, RecursionError):
            continue
    return [], []


def _decoded(text: str) -> list[Any]:
    """The JSON values of a text that holds nothing else: one, or several objects one behind the
    other; an array of objects is its objects. Raises ValueError."""
    found: list[Any] = []
    place = _skipped(text, 0)
    while place < len(text):
        if text.startswith(DONE, place):
            return [*found, Done()]
        value, place = _DECODER.raw_decode(text, place)
        place = _skipped(text, place)
        several = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
        if place < len(text) and not (several or isinstance(value, dict)):
            raise ValueError("a value that is no object, and more behind it")
        found += value if several else [value]
    return found


def _skipped(text: str, place: int) -> int:
    found = _BETWEEN.match(text, place)
    return found.end() if found else place


def _noise(at_s: float, held: list[bytes]) -> Iterator[tuple[float, Noise]]:
    if held:
        yield at_s, Noise(b" ".join(held).decode("utf-8", "replace")[:NOISE_CHARS])
