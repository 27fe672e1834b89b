"""What the value of a flag may be: types for argparse, whose errors are one line.

Imports nothing that `--help` does not need.
"""

from __future__ import annotations

import argparse
import itertools
import re

from request_timing.records.names import EXPERIMENT_NAMES, NEEDS

ALL = "all"


def whole_number(text: str) -> int:
    """A count of at least 1, for argparse."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, found {text!r}")
    return int(text)


def seed_number(text: str) -> int:
    """Any whole number, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None


def number_to(most: float, expected: str, text: str) -> float:
    """A number from 0 to `most`, for argparse; what was expected is said of any other text."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return value


def seconds(text: str) -> float:
    """A duration from 0 up, for argparse."""
    return number_to(1e6, "seconds such as 60 or 0.5", text)


def positive_seconds(text: str) -> float:
    """A duration above 0, for argparse."""
    if not (value := seconds(text)):
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, found {text!r}")
    return value


def ascending(text: str) -> tuple[int, ...]:
    """Sizes such as 1000,2000, for argparse: whole numbers from 1 up, each larger than the last."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(
            f"expected whole numbers such as 1000,2000, found {text!r}")
    numbers = tuple(int(part) for part in parts)
    if numbers[0] < 1 or any(a >= b for a, b in itertools.pairwise(numbers)):
        raise argparse.ArgumentTypeError(
            f"expected sizes from 1 up, each larger than the one before, found {text!r}")
    return numbers


def experiment_names(text: str) -> tuple[str, ...]:
    """Names such as length,cache, or all, for argparse, in the order in which they run, and with
    those that they need."""
    names = {name.strip() for name in text.split(",")}
    if unknown := sorted(names - {*EXPERIMENT_NAMES, ALL}):
        raise argparse.ArgumentTypeError(
            f"expected all, or some of {','.join(EXPERIMENT_NAMES)}, found {unknown[0]!r}")
    if ALL in names:
        return EXPERIMENT_NAMES
    names.update(*(NEEDS.get(name, ()) for name in tuple(names)))
    return tuple(name for name in EXPERIMENT_NAMES if name in names)


def shapes(text: str) -> tuple[tuple[int, int], ...]:
    """Shapes such as 40000x200, for argparse: (prompt, output) tokens."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})[xX]([0-9]{1,9})\s*", part)
        if not match or not (int(match[1]) and int(match[2])):
            raise argparse.ArgumentTypeError(
                f"expected PROMPTxOUTPUT in tokens, such as 40000x200, found {part!r}")
        found.append((int(match[1]), int(match[2])))
    return tuple(found)
