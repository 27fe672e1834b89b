"""The text of a run taken apart again: titles, paragraphs, and tables as cells.

Markdown and the page are made from the very text that a terminal gets, so that a figure reads the
same wherever it is shown. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from request_timing.findings.derive import run_verdicts
from request_timing.records.names import EXPERIMENT_NAMES
from request_timing.records.run import Run
from request_timing.report.tables import heading, verdict_lines
from request_timing.report.text import render

_RULE = re.compile(r"-+(?:  -+)+")
_TITLE = re.compile(rf"({'|'.join((*EXPERIMENT_NAMES, 'replay', 'what if', 'control'))}): (.+)")
_GAP = _ITEM = "  "
LIST_HEAD = "in all, "
UNRULED_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells as text; every row has as many as there are headers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """Where an experiment begins: its name, and what it is."""

    experiment: str
    text: str


Block = Table | Title | str  # a paragraph is a str


def body(run: Run) -> list[Block]:
    """What a terminal gets of a run, but for its heading and its verdicts."""
    text = render(run).removeprefix(heading(run))
    if judged := run_verdicts(run):
        text = text.replace("\n".join(["verdict", *map(verdict_lines, judged)]), "")
    return blocks(text)


def blocks(text: str) -> list[Block]:
    """Titles, paragraphs, and the tables that `tables.table` drew.

    A line that begins with a blank goes on with the paragraph right above it; in what a replay
    comes to, one that begins with two is a paragraph of its own.
    """
    lines = text.split("\n")
    found: list[Block] = []
    at, in_list = 0, False
    while at < len(lines):
        line, rule = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
        above = found[-1] if found and at and lines[at - 1].strip() else None
        at += 1
        if _RULE.fullmatch(rule) and line[len(rule):].startswith(_GAP):
            rule += _GAP + "-" * UNRULED_CHARS  # a last column of words has no rule
        if _RULE.fullmatch(rule) and _is_row(line, rule):
            start = at = at + 1
            while at < len(lines) and _is_row(lines[at], rule):
                at += 1
            found.append(Table(headers=_cells(line, rule),
                               rows=tuple(_cells(row, rule) for row in lines[start:at])))
        elif title := _TITLE.fullmatch(line):
            found.append(Title(experiment=title[1], text=title[2]))
        elif line.startswith(_ITEM) and not line.startswith(2 * _ITEM) and in_list:
            found.append(line.strip())
        elif line.startswith(" ") and isinstance(above, str):
            found[-1] = f"{above} {line.strip()}"
        elif line.strip():
            in_list = line.startswith(LIST_HEAD)
            found.append(line.strip())
    return found


def _spans(rule: str) -> Sequence[tuple[int, int]]:
    return [match.span() for match in re.finditer("-+", rule)]


def _is_row(line: str, rule: str) -> bool:
    """Whether a line is a row over that rule: it passes the first column, and leaves every gap
    between two columns blank, which no sentence does."""
    spans = _spans(rule)
    return spans[0][1] + len(_GAP) < len(line) <= len(rule) and all(
        not line[end : end + len(_GAP)].strip() for _, end in spans[:-1])


def _cells(line: str, rule: str) -> tuple[str, ...]:
    return tuple(line[start:end].strip() for start, end in _spans(rule))
