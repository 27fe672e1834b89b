"""What the accuracy programs have in common: a figure held to a bar, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass

from tables import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: what is true, what was measured, the bar, and whether it was held."""

    figure: str
    truth: float | None
    measured: float | None
    bar: str
    held: bool


def show(rows: list[Row]) -> int:
    """Print the table; returns the exit status, 1 where a bar was not held."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    print(table(["figure", "truth", "measured", "bar", "held"], [
        [row.figure, number(row.truth), number(row.measured), row.bar, "yes" if row.held else "NO"]
        for row in rows]))
    return 0 if all(row.held for row in rows) else 1
