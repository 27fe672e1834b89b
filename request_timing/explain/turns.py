"""Turn by turn what is shared, what broke and why, from the prompts alone.

Pure functions. Nothing is sent, nothing measured:
characters stand for what a server would count in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from request_timing.explain.align import Beginnings, char_count
from request_timing.explain.causes import Break, Comparison, compare
from request_timing.explain.kinds import TIME, remedy, time_detail
from request_timing.explain.volatile import FINER, Volatile
from request_timing.prompts.captured import Turn
from request_timing.prompts.rendering import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One turn against those before it. Characters of the rendering (see rendering.py).

    number counts from 1. shared_chars: the common beginning with the turn before; best_chars with
    whichever earlier turn shares most, best_turn. comparison is None for the first turn.
    """

    number: int
    source: str
    chars: int
    shared_chars: int
    best_chars: int
    best_turn: int
    comparison: Comparison | None

    @property
    def recomputed_chars(self) -> int:
        """What a server computes that still holds every earlier turn."""
        return self.chars - max(self.best_chars, self.shared_chars)

    @property
    def avoidable_chars(self) -> int:
        """Of these, what the turn before had too: never more than is recomputed."""
        if self.comparison is None:
            return 0
        return min(self.comparison.avoidable_chars, self.recomputed_chars)


def explain_turns(turns: Iterable[Turn]) -> Iterator[Explained]:
    """Each turn against the one before, in order; only the texts of earlier turns are held.

    How often a time changes is told by all turns: one that is written to the second may change by
    whole minutes once, and by seconds later.
    """
    found = list(_explained(turns))
    often: dict[tuple[str, str], str] = {}
    for _, key, stamp in _stamped(found):
        often[key] = min(often.get(key, stamp.detail), stamp.detail, key=FINER.index)
    for item in found:
        breaks = {index: _changing(item.comparison.breaks[index], often[key])
                  for index, key, _ in _stamped([item])} if item.comparison else {}
        yield item if item.comparison is None or not breaks else replace(
            item, comparison=replace(item.comparison, breaks=tuple(
                breaks.get(index, broken)
                for index, broken in enumerate(item.comparison.breaks))))


def _stamped(items: Iterable[Explained]) -> Iterator[tuple[int, tuple[str, str], Volatile]]:
    """(index of the break, place and form of the time, the time) of each break by a time."""
    for item in items:
        for index, broken in enumerate(item.comparison.breaks if item.comparison else ()):
            if broken.kind == TIME and broken.stamp is not None:
                yield index, (broken.at.place, broken.stamp.written), broken.stamp


def _changing(broken: Break, granularity: str) -> Break:
    """The same break, by a time that changes as often as given."""
    assert broken.stamp is not None
    stamp = replace(broken.stamp, detail=granularity)
    return replace(broken, stamp=stamp, detail=time_detail(granularity),
                   remedy=remedy(broken.kind, stamp))


def _explained(turns: Iterable[Turn]) -> Iterator[Explained]:
    """Each turn against the one before."""
    beginnings: dict[str | None, Beginnings] = {}
    before = None
    for number, turn in enumerate(turns, 1):
        after = render(turn.body())
        comparison = compare(before, after) if before is not None else None
        held = beginnings.setdefault(after.model, Beginnings())  # no two models share a cache
        best_bytes, best_turn = held.longest(after.data)
        held.add(after.data, number)
        yield Explained(
            number=number, source=turn.source, chars=after.chars, comparison=comparison,
            shared_chars=comparison.first.shared_chars if comparison else 0,
            best_chars=char_count(after.data[:best_bytes]), best_turn=max(best_turn, 0))
        before = after

