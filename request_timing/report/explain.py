"""What --explain prints: turn by turn what is shared, what broke and why."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from request_timing.errors import UserError
from request_timing.explain.align import columns, first_columns, visible
from request_timing.explain.causes import MOST_BREAKS, Break
from request_timing.explain.turns import Explained, explain_turns
from request_timing.formats import percent
from request_timing.prompts.captured import read
from request_timing.report.remarks import COLUMNS

MOST_ROWS, MOST_DETAILS, MOST_NEXT, MOST_EXPENSIVE = 60, 12, 4, 3
SAME_PLACE_BYTES = 64


def explain(path: Path) -> str:
    """The whole report on the turns of `path`.

    Raises UserError for what cannot be read (see captured.read), and for fewer than two turns.
    """
    captured = read(path)
    if len(captured.turns) < 2:
        raise UserError(f"{path}: expected at least two turns to compare, found one "
                      f"({captured.what}); give the prompts of a whole conversation")
    return report(list(explain_turns(captured.turns)), captured.what, captured.notes)


def report(turns: Sequence[Explained], what: str, notes: Sequence[str] = ()) -> str:
    """The heading, a row a turn, the breaks in detail, and the summary."""
    parts = [_wrapped(f"explain: {what}", *notes), rows(turns)]
    if details := break_details(turns):
        parts.append(details)
    parts.append(summary(turns))
    return "\n\n".join(parts)


def rows(turns: Sequence[Explained]) -> str:
    """A row a turn: characters, shared with the turn before, and what broke."""
    widths = max(6, len(f"{max(turn.chars for turn in turns):,}"))
    lines = [f"turn  {'chars':>{widths}}  {'shared':>{widths}}      %  what broke",
             f"----  {'-' * widths}  {'-' * widths}  -----  ----------"]
    for turn in turns[:MOST_ROWS]:
        share = 100 * turn.shared_chars / turn.chars if turn.chars else 100.0
        first = turn.comparison is None
        line = (f"{turn.number:>4}  {turn.chars:>{widths},}  "
                f"{'-' if first else f'{turn.shared_chars:,}':>{widths}}  "
                f"{'-' if first else f'{share:.1f}':>5}  {_what_broke(turn)}")
        fits = columns(line) <= COLUMNS
        lines.append((line if fits else first_columns(line, COLUMNS - 1) + "…").rstrip())
    if len(turns) > MOST_ROWS:
        lines.append(f"and {len(turns) - MOST_ROWS} turns more, which the summary counts")
    return "\n".join(lines)


def _what_broke(turn: Explained) -> str:
    if turn.comparison is None:
        return ""
    if turn.comparison.nothing:
        return turn.comparison.nothing
    first, *more = turn.comparison.breaks
    said = first.detail + (f" (+{len(more)})" if more else "")
    other = (f"turn {turn.best_turn} shares {turn.best_chars:,}; "
             if turn.best_chars - turn.shared_chars > turn.chars / 20 else "")
    return other + said


def break_details(turns: Sequence[Explained]) -> str:
    """Each first break once, with both sides, its remedy, and what else broke; like turns joined.
    """
    groups: dict[tuple[object, ...], list[Explained]] = {}
    for turn in turns:
        if turn.comparison is not None and turn.comparison.breaks:
            first = turn.comparison.breaks[0]
            key = (first.kind, first.detail, first.at.place,
                   first.at.offset_bytes // SAME_PLACE_BYTES)
            groups.setdefault(key, []).append(turn)
    blocks = [_detail(alike) for alike in list(groups.values())[:MOST_DETAILS]]
    if len(groups) > MOST_DETAILS:
        blocks.append(f"and {len(groups) - MOST_DETAILS} other breaks")
    return "\n\n".join(blocks)


def _detail(alike: Sequence[Explained]) -> str:
    turn = alike[0]
    assert turn.comparison is not None
    first, *more = turn.comparison.breaks
    others = f" (and {_numbers(alike[1:])})" if len(alike) > 1 else ""
    lines = [_wrapped(f"turn {turn.number}{others}: {first.detail}"),
             _wrapped(f"  at byte {first.at.offset_bytes:,}, line {first.at.line:,}, in "
                      f"{visible(first.at.place)}"),
             f"  before  {first.at.before}", f"  after   {first.at.after}",
             _wrapped(f"  remedy: {first.remedy}")]
    lines += [_wrapped(f"  then: {text}") for text in _next(more)]
    return "\n".join(lines)


def _next(more: Sequence[Break]) -> Iterator[str]:
    """The breaks behind the first, those of one kind joined."""
    counted = Counter((item.kind, item.detail) for item in more)
    seen: set[tuple[str, str]] = set()
    for item in more:
        key = (item.kind, item.detail)
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > MOST_NEXT:
            yield f"{len(counted) - MOST_NEXT} kinds of change more"
            return
        times = f", {counted[key]} times" if counted[key] > 1 else ""
        yield f"{item.detail}, in {visible(item.at.place)} (byte {item.at.offset_bytes:,}){times}"


def _numbers(turns: Sequence[Explained]) -> str:
    """turns 3 to 9, or turns 3, 5 and 8."""
    numbers = [turn.number for turn in turns]
    if len(numbers) == 1:
        return f"turn {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"turns {numbers[0]} to {numbers[-1]}"
    shown = [str(number) for number in numbers[:6]]
    if len(numbers) > 6:
        return f"turns {', '.join(shown)} and {len(numbers) - 6} more"
    return f"turns {', '.join(shown[:-1])} and {shown[-1]}"


def summary(turns: Sequence[Explained]) -> str:
    """Characters sent, recomputed and avoidable, and the three most expensive breaks."""
    sent, recomputed, avoidable = (sum(values) for values in zip(*(
        (turn.chars, turn.recomputed_chars, turn.avoidable_chars) for turn in turns), strict=True))
    lines = ["summary", f"  sent        {sent:>14,} characters in {len(turns)} turns",
             f"  recomputed  {recomputed:>14,} ({_percent(recomputed, sent)}), "
             "not the beginning of an earlier turn",
             f"  avoidable   {avoidable:>14,} ({_percent(avoidable, sent)}), sent before and "
             "behind a break"]
    if any(turn.comparison is not None and len(turn.comparison.breaks) >= MOST_BREAKS
           for turn in turns):
        lines.append(f"  at least: of a turn the first {MOST_BREAKS} breaks are followed")
    costs: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for turn in turns:
        if turn.comparison is not None and turn.comparison.breaks:
            first = turn.comparison.breaks[0]
            key = (first.detail, first.at.place)
            costs[key] += turn.avoidable_chars
            times[key] += 1
    for (detail, place), cost in costs.most_common(MOST_EXPENSIVE):
        if cost:
            count = times[detail, place]
            lines.append(_wrapped(f"  {cost:,} by {detail}, in {visible(place)}"
                                  + (f", {count} times" if count > 1 else "")))
    if not costs:
        lines.append("  no turn breaks the one before")
    return "\n".join(lines)


def _percent(part: int, whole: int) -> str:
    return percent(part / whole, fixed=True) if whole else "0 %"


def _wrapped(*lines: str) -> str:
    """Each line wrapped to the terminal, its continuation indented by two more."""
    return "\n".join(textwrap.fill(line, COLUMNS, subsequent_indent=" " * (
        len(line) - len(line.lstrip()) + 2), break_on_hyphens=False) for line in lines)
