"""The verdict on a replay: whether the turns of a captured conversation are reused, and if not,
whether the prompts or the server are to blame.

A replay sends no identical repeat and compares no cold prompt with a cold one, so it claims less
than `verdict.py`: the reported counts decide, beside what the turns share; time alone can only say
what it looks like. Each turn is set against the earlier one that shares most with it, which in a
conversation is the turn before, and after a sub-agent's turn the one before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from request_timing.findings.evidence import BLOCK_TOKENS, FULL, NONE, Evidence, nearly_all, of_arm
from request_timing.findings.measures import AS_SENT, WHAT_IF, of_experiment
from request_timing.findings.verdict import (
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
from request_timing.records.names import REPLAY
from request_timing.stats.compare import middle, ratio

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

CONTROLS = "--only cache has the controls that tell"
# At the end of an earlier turn so much may be another now, and that turn is shared all the same:
# the chat template's cue for the answer, or a clock that was moved there. A share of it at most.
TAIL_TOKENS, TAIL_SHARE = 64, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """One turn, in tokens: its prompt, what the earlier turn that it is set against had, what it
    shares with that one, and what is reported reused."""

    turn: int
    prompt_tokens: int
    earlier_tokens: int
    shared_tokens: float
    reused_tokens: int

    @property
    def goes_on(self) -> bool:
        """Whether it shares the earlier turn to its end, or is itself a beginning of it."""
        whole = min(self.earlier_tokens, self.prompt_tokens)
        left = whole - self.shared_tokens
        return left <= max((1 - FULL) * whole, min(TAIL_TOKENS, TAIL_SHARE * whole))

    @property
    def was_reused(self) -> bool:
        """Whether reuse came as far as it shares, up to a block of the cache."""
        return nearly_all(self.reused_tokens, self.shared_tokens)

    @property
    def is_lost(self) -> bool:
        """Whether the server is to blame: it did not reuse what it could have, more than a block,
        or what the prompt shares to the end."""
        left = self.shared_tokens - self.reused_tokens
        return not self.was_reused and (self.goes_on or left > BLOCK_TOKENS)

    @property
    def is_too_much(self) -> bool:
        """Whether more is reused than any earlier turn of the replay could have left."""
        return self.reused_tokens > self.shared_tokens + NONE * self.prompt_tokens


def replay_verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """A verdict for the turns as sent, and for the mended ones; none where none were replayed."""
    chosen = of_experiment(samples, REPLAY)
    native = any(s.server is not None for s in chosen)
    arms = [arm for arm in (AS_SENT, WHAT_IF) if any(s.arm == arm for s in chosen)]
    turns = {arm: reaches(chosen, arm) for arm in arms}
    reuses = any(reach.reused_tokens > NONE * reach.prompt_tokens
                 for known in turns.values() for reach in known)
    found = []
    for arm in arms:
        mine = of_arm(chosen, arm, native=native, looks=1)
        judged = impossible(chosen, arm, mine)
        if judged is None and mine.reported is None:
            judged = _by_time(mine)
        elif judged is None:
            mine = _as_reached(mine, turns[arm])
            judged = _by_count(mine, turns[arm], reuses)
        found.append(judged_as(REPLAY, arm, judged, mine, native=native))
    return found


def reaches(samples: Sequence[Sample], arm: str) -> list[Reach]:
    """Every turn whose reuse is reported, against the earlier one that shares most with it.

    A llama-server's shared tokens are exact. Elsewhere characters are known: as many of the
    earlier prompt's tokens are taken to be shared as of its characters, which is exact where all
    of it is, whatever a token is made of.
    """
    answered = {s.turn: s for s in samples if s.arm == arm and s.error is None}
    found = []
    for turn, sample in answered.items():
        own, reused = sample.prompt_tokens, sample.cached_tokens
        before = answered.get(max((t for t in answered if t < turn), default=0))
        if before is None or not sample.counts or not own or reused is None:
            continue
        pairs = [(before, sample.shared_chars, sample.shared_tokens)]
        if sample.best_turn in answered:
            pairs.append((answered[sample.best_turn], sample.best_chars, sample.best_tokens))
        known = [(tokens, earlier.prompt_tokens) for earlier, chars, exact in pairs
                 if earlier.prompt_tokens and (tokens := exact if exact is not None else _estimated(
                     chars, earlier)) is not None]
        if known:
            shared, had = max(known)
            found.append(Reach(turn=turn, prompt_tokens=own, earlier_tokens=had,
                               shared_tokens=min(shared, own), reused_tokens=reused))
    return found


def _estimated(chars: int | None, earlier: Sample) -> float | None:
    share = ratio(chars, earlier.prompt_chars)
    return None if share is None else share * (earlier.prompt_tokens or 0)


def _as_reached(mine: Evidence, turns: Sequence[Reach]) -> Evidence:
    """The evidence with the reuse of the turns that can be judged, and which of them hit."""
    return replace(
        mine, turns=tuple(reach.turn for reach in turns),
        reused_turns=tuple(r.turn for r in turns if r.goes_on and r.was_reused),
        predicted=middle(r.shared_tokens / r.prompt_tokens for r in turns),
        reported=middle(r.reused_tokens / r.prompt_tokens for r in turns),
        reused_tokens=middle(r.reused_tokens for r in turns))


def _by_count(mine: Evidence, turns: Sequence[Reach], reuses: bool) -> Judged:
    """reuses: whether any turn of the replay was reused at all."""
    if mine.reported is None or mine.predicted is None:
        return UNDECIDED, ("no turn with a count has an earlier one that was answered: nothing to "
                           "set it against")
    n, hits = len(turns), len(mine.reused_turns)
    if 2 * (too_much := sum(reach.is_too_much for reach in turns)) > n:
        return CONTRADICTION, (f"in {too_much} of {n} turns more is reused than any earlier turn "
                               "of this replay shares: an earlier run or the agent itself had left "
                               "it there, or the count is wrong")
    if hits == n:
        return HIT, f"{percent(mine.reported)} of the prompt is reused" + and_predicted(
            mine.predicted)
    if mine.reported <= NONE < mine.predicted and not reuses:
        return UNDECIDED, (f"the turns share {percent(mine.predicted)} from the start, and nothing "
                           "is reused: this server or model may reuse no prefixes, or none so "
                           f"short; {CONTROLS}")
    lost = sum(reach.is_lost for reach in turns)
    blame = ", ".join(f"in {many} turn{'s' * (many != 1)} {what}" for many, what in (
        (n - hits - lost, "the prompt leaves every earlier turn before its end"),
        (lost, "the server did not reuse all that is shared")) if many)
    if hits:
        return PARTIAL, f"{hits} of {n} turns reuse an earlier one to its end; {blame}"
    code, text = stopped_short(mine.reported, mine.predicted, mine.reused_tokens)
    return code, f"{text}; {blame}"


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
