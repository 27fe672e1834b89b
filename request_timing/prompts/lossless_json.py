"""JSON that is written as it was read: keys in their order, each number as it was spelled."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MOST_DEPTH = 200
MOST_EXPONENT_DIGITS = 9


class Number(float):
    """A JSON number with a fraction or an exponent that remembers how it was spelled."""

    __slots__ = ("spelling",)
    spelling: str

    @classmethod
    def of(cls, spelling: str) -> Number:
        """The number of a JSON literal."""
        number = cls(spelling)
        number.spelling = spelling
        return number

    def __repr__(self) -> str:
        return self.spelling


def same_number(spelling: str) -> str:
    """One text for all spellings of a number, to its last digit: 10, 10.0 and 1e1 are "1e1"."""
    mantissa, _, exponent = spelling.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if len(exponent) > MOST_EXPONENT_DIGITS:
        return spelling
    power = int(exponent or 0) - len(fraction) + len(digits) - len(kept)
    return f"{'-' * mantissa.startswith('-')}{kept}e{power if kept else 0}"


def parse_json(text: str | bytes) -> Any:
    """JSON with each number's spelling kept. Raises ValueError for what is no JSON."""
    def no_number(name: str) -> float:
        raise ValueError(f"{name} is no JSON number")

    try:
        value = json.loads(text, parse_float=Number.of, parse_constant=no_number)
    except RecursionError:
        value = None
        depth = MOST_DEPTH
    else:
        depth = _depth(value)
    if depth >= MOST_DEPTH:  # what walks it later would not come back
        raise ValueError("it is nested too deeply")
    return value


def _depth(value: Any) -> int:
    """How many lists and objects lie in each other, counted up to MOST_DEPTH."""
    depth, level = 0, [value]
    while depth < MOST_DEPTH:
        level = [item for holder in level if isinstance(holder, dict | list)
                 for item in (holder.values() if isinstance(holder, dict) else holder)]
        if not level:
            break
        depth += 1
    return depth


def to_json(value: Any) -> str:
    """`value` as JSON on one line, keys in their order, numbers as they were spelled."""
    texts: list[str] = []
    walk(value, "", lambda text, place: texts.append(text))
    return "".join(texts)


def walk(value: Any, place: str, put: Callable[[str, str], None]) -> None:
    """Hand a JSON value to put(text, place), leaf by leaf."""
    if isinstance(value, dict):
        opening = "{"
        for key, item in value.items():
            put(f"{opening}{json.dumps(key, ensure_ascii=False)}: ", place)
            walk(item, f"{place}.{key}" if place else key, put)
            opening = ", "
        put("{}" if opening == "{" else "}", place)
    elif isinstance(value, list):
        opening = "["
        for index, item in enumerate(value):
            put(opening, place)
            walk(item, f"{place}[{index}]", put)
            opening = ", "
        put("[]" if opening == "[" else "]", place)
    elif isinstance(value, Number):
        put(value.spelling, place)
    else:
        put(json.dumps(value, ensure_ascii=False), place)
