"""What the accuracy programs have in common: a figure held to a bar, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure and its bar; its unit is in its name, and None is what there is none of.

    truth: what is true, or the nominal value; error: how far `measured` is off, or the standard
    error of it, as the program says; bar: "" is a figure that is only told.
    """

    figure: str
    truth: float | None = None
    measured: float | None = None
    error: float | None = None
    bar: str
    held: bool


def show(rows: Iterable[Row]) -> int:
    """Print the table; returns the exit status, 1 where a bar was not held."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"

    known = list(rows)
    lines = [("figure", "truth", "measured", "error", "bar", "held")]
    lines += [(row.figure, number(row.truth), number(row.measured), number(row.error),
               row.bar or "-", "yes" if row.held else "NO") for row in known]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *cells]))
    return 0 if all(row.held for row in known) else 1
