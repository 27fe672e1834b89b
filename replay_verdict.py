"""The verdict on a replay: whether the turns of a captured conversation are reused, and if not,
whether the prompts or the server are to blame.

A replay sends no identical repeat and compares no cold prompt with a cold one, so it claims less
than `verdict.py`: the reported counts decide, beside what the turns share; time alone can only say
what it looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from evidence import NONE, Evidence, as_far_as_shared, by_turn, nearly_all, of_arm
from summary import AS_SENT, WHAT_IF, of
from verdict import (
    CONTRADICTION,
    HIT,
    NO_HIT,
    PARTIAL,
    UNDECIDED,
    Judged,
    Verdict,
    and_predicted,
    impossible,
    judged_as,
    percent,
    stopped_short,
)

if TYPE_CHECKING:
    from sample import Sample

REPLAY = "replay"
CONTROLS = "--only cache has the controls that tell"


def replay_verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """A verdict for the turns as sent, and for the mended ones; none where none were replayed."""
    chosen = of(samples, REPLAY)
    native = any(s.server is not None for s in chosen)
    known = {arm: of_arm(chosen, arm, native=native, looks=1) for arm in (AS_SENT, WHAT_IF)
             if any(s.arm == arm for s in chosen)}
    reuses = any((mine.reported_most or 0.0) > NONE for mine in known.values())
    found = []
    for arm, mine in known.items():
        judged = impossible(chosen, arm, mine)
        if judged is None and mine.reported is None:
            judged = _by_time(mine)
        elif judged is None:
            hits, missed = _sorted(list(by_turn(chosen, arm).values()))
            mine = replace(mine, reused_turns=tuple(s.turn for s in hits))
            judged = _by_count(mine, missed, reuses)
        found.append(judged_as(REPLAY, arm, judged, mine, native=native))
    return found


def _sorted(turns: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """The turns from the second on, in order: those that took up the turn before nearly whole, and
    those that did not, be it that they no longer share it or that it was lost.

    Set against the turn before, and not against its own prompt, a turn that appends much hits, and
    one that repeats much and breaks in the middle does not.
    """
    hits: list[Sample] = []
    missed: list[Sample] = []
    for before, turn in pairwise(turns):
        had = before.prompt_tokens or 0
        share = turn.predicted_reuse if turn.predicted_reuse is not None else turn.reported_reuse
        shared = (share or 0.0) * (turn.prompt_tokens or 0)
        (hits if nearly_all(shared, had) and as_far_as_shared(turn) else missed).append(turn)
    return hits, missed


def _by_count(mine: Evidence, missed: Sequence[Sample], reuses: bool) -> Judged:
    """missed: the turns that did not hit; reuses: whether any turn of the replay was reused.

    Where none hit, the shares say how far reuse came.
    """
    reported = mine.reported or 0.0
    predicted = reported if mine.predicted is None else mine.predicted
    if reported > predicted + NONE:
        return CONTRADICTION, (f"{percent(reported)} of the prompt is reused, though a turn shares "
                               f"only {percent(predicted)} with the turn before: an earlier turn, "
                               "an earlier run or the agent itself had left it there, or the "
                               "count is wrong")
    if not missed:
        return HIT, f"{percent(reported)} of the prompt is reused{and_predicted(mine.predicted)}"
    if reported <= NONE < predicted and not reuses:
        return UNDECIDED, (f"the turns share {percent(predicted)} from the start, and nothing is "
                           "reused: this server or model may reuse no prefixes, or none so "
                           f"short; {CONTROLS}")
    lost = sum(not as_far_as_shared(s) for s in missed)
    blame = ", ".join(f"in {many} {what}" for many, what in (
        (len(missed) - lost, "the prompt changed before its end"),
        (lost, "the server or the model lost what was still shared")) if many)
    if mine.reused_turns:
        return PARTIAL, (f"{len(mine.reused_turns)} of {len(mine.turns)} turns reuse the turn "
                         f"before; {blame}")
    return stopped_short(reported, mine.predicted)


def _by_time(mine: Evidence) -> Judged:
    """Where no cached tokens are reported."""
    predicted = mine.predicted or 0.0
    if mine.faster and predicted <= NONE:
        return CONTRADICTION, ("faster than cold, though the turns share only "
                               f"{percent(predicted)} from the start: an earlier run or the agent "
                               "itself had left them there, or something else is faster")
    if mine.faster:
        return UNDECIDED, ("faster than cold, as reuse would be; no cached tokens are reported: "
                           f"{CONTROLS}")
    if predicted <= NONE:
        return NO_HIT, (f"the turns share only {percent(predicted)} from the start, which is all "
                        "that could be reused; TTFT is not shown to be lower than cold")
    return UNDECIDED, (f"the turns share {percent(predicted)} from the start, and TTFT is not "
                       f"shown to be lower than cold; no cached tokens are reported: {CONTROLS}")
