"""A traffic mix from a CSV of (prompt, cached, output) lines, as the loads that it adds up to.

A request's time is a sum of rates times its `Load`, so the sums of a file say as much of the whole
as its lines do: a record keeps those, and none of the lines.
"""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Any

from request_timing.errors import UserError, one_line
from request_timing.findings.rates import Load, load

COLUMNS = ("prompt", "cached", "output")
EXAMPLE = "12000,11000,300"


def read_traffic(name: str) -> dict[str, Any]:
    """The sums of a file: file, requests, and the tokens and loads of the mix.

    A line is prompt,cached,output: input tokens, those of them that a cache holds (or would), and
    output tokens. Commas, semicolons or tabs; blank lines and those that begin with # are skipped;
    a first line of names may give the columns in another order, among others. Raises UserError for
    a file that cannot be read, has no line, or has one that is none.
    """
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"--traffic {name}: expected a CSV file, found: {error.strerror}; correct "
                      "the path") from None
    except UnicodeDecodeError:
        raise UserError(f"--traffic {name}: expected a CSV file in UTF-8, found other bytes; save "
                      "it as UTF-8") from None
    cold, warm, full = Load(), Load(), Load()
    sums = dict.fromkeys(COLUMNS, 0)
    order: tuple[int, ...] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        delimiter = next((d for d in "\t;" if d in line), ",")
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
        if order is None:
            order = (0, 1, 2)
            names = [cell.lower() for cell in cells]
            if set(COLUMNS) <= set(names):
                order = tuple(map(names.index, COLUMNS))
                continue
        row = _row([cells[i] if i < len(cells) else "" for i in order])
        if row is None or (order == (0, 1, 2) and len(cells) < 3):
            raise UserError(f"--traffic {name}: line {number}: expected prompt,cached,output in "
                          f"tokens, such as {EXAMPLE}, cached no more than prompt, found "
                          f"{one_line(line)!r}; correct it")
        prompt, cached, output = row
        for column, value in zip(COLUMNS, row, strict=True):
            sums[column] += value
        cold, warm = cold + load(prompt, 0, output), warm + load(prompt, cached, output)
        full += load(prompt, prompt, output)
    if not cold.requests:
        raise UserError(f"--traffic {name}: expected lines such as {EXAMPLE}, found none; name "
                      "another file")
    return {"file": Path(name).name, "requests": cold.requests, "tokens": sums,
            "cold": asdict(cold), "warm": asdict(warm), "full": asdict(full)}


def _row(cells: list[str]) -> tuple[int, int, int] | None:
    """The sizes of one request, or None where the cells hold something else."""
    if not all(cell.isascii() and cell.isdigit() for cell in cells):
        return None
    prompt, cached, output = map(int, cells)
    return (prompt, cached, output) if prompt and output and cached <= prompt else None
