"""What is known of one arm of *cache*: reuse predicted, reported and timed, turn by turn.

Pure functions over the samples of one run; `verdict.py` says what follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from request_timing.findings.measures import COLD
from request_timing.stats.compare import LEVEL, Comparison, compare, detectable_ratio, middle

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

# A share of what a prompt shares with an earlier one from which it counts as reused; the share of
# the prompt up to which it does not, since a common head is no hit.
FULL, HALF, NONE = 0.95, 0.5, 0.05
# Caches work in blocks: so many tokens at the end of the shared part may be left over.
BLOCK_TOKENS = 256
# Decode may be a little slower over a longer context; a ratio outside this is another matter.
DECODE_STEADY = 0.8, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One arm, from the turn after its first answered one: before that there was nothing to reuse.

    Shares are of the prompt, medians over the turns. `ttft` and `decode` are against cold prompts.
    """

    predicted: float | None
    reported: float | None
    reported_when_reused: float | None  # the median of the turns that hit
    reported_most: float | None  # the most of any turn
    reported_missed: float | None  # the most of a turn that did not hit
    reused_tokens: float | None  # the median
    turns: tuple[int, ...]
    reused_turns: tuple[int, ...]  # those that hit
    ttft: Comparison
    decode: Comparison
    decode_moved: bool
    level: float

    @property
    def faster(self) -> bool:
        """Whether TTFT fell, against cold prompts, by more than chance."""
        return self.ttft.p_value is not None and self.ttft.p_value <= self.level

    def detectable_ratio(self, n: int) -> float | None:
        """The smallest effect on TTFT that n such turns would have shown."""
        noise = self.ttft.noise
        return None if noise is None else detectable_ratio(noise, n, self.level)

    @property
    def holds_from(self) -> int | None:
        """The turn from which every turn hits, and before which none does; None in a mixture, or
        where all that hit is one last turn of several."""
        if not self.reused_turns or self.reused_turns != self.turns[-len(self.reused_turns):]:
            return None
        if len(self.reused_turns) == 1 < len(self.turns):
            return None
        return self.reused_turns[0]

    @property
    def is_late(self) -> bool:
        """Whether it hits from a later turn on than it could have."""
        return self.holds_from is not None and self.holds_from > self.turns[0]


def of_arm(samples: Sequence[Sample], arm: str, *, native: bool, looks: int) -> Evidence:
    """The evidence of one arm among the samples of *cache*.

    native: a llama-server's, whose arms ran as blocks, so that turns are no pairs and decode says
    nothing; looks: how often the samples were looked at, which divides the level.
    """
    cold = by_turn(samples, COLD)
    # A turn can reuse only what an earlier one of its arm really sent.
    first = min((s.turn for s in samples if s.arm == arm and s.error is None), default=1)
    mine = {turn: s for turn, s in by_turn(samples, arm).items() if turn > first}
    known = {turn: r for turn, s in mine.items() if (r := s.reported_reuse) is not None}
    predicted = [r for s in mine.values() if (r := s.predicted_reuse) is not None]
    if known:
        reused = tuple(sorted(turn for turn in known if _hit_by_count(mine[turn])))
    else:
        fastest_cold = min((s.ttft_s for s in cold.values() if s.ttft_s is not None), default=0.0)
        reused = tuple(sorted(turn for turn, s in mine.items()
                              if s.ttft_s is not None and s.ttft_s < fastest_cold))
    by_token = any(s.inter_token_s is not None for s in mine.values())
    decode = against(cold, mine, lambda s: s.inter_token_s if by_token else s.inter_chunk_s,
                     paired=not native)
    level = LEVEL / looks
    steady = decode.ratio is None or DECODE_STEADY[0] <= decode.ratio <= DECODE_STEADY[1]
    return Evidence(
        predicted=middle(predicted), reported=middle(known.values()),
        reported_when_reused=middle(known[turn] for turn in reused if turn in known),
        reported_most=max(known.values(), default=None),
        reported_missed=max((r for turn, r in known.items() if turn not in reused), default=None),
        reused_tokens=middle(s.cached_tokens for s in mine.values()
                              if s.cached_tokens is not None),
        turns=tuple(sorted(mine)), reused_turns=reused,
        ttft=against(cold, mine, lambda s: s.ttft_s, paired=not native), decode=decode,
        # Each way at the whole level: a wrong "not the cache" only withholds a verdict.
        decode_moved=not native and not steady and moved(decode, level), level=level,
    )


def by_turn(samples: Sequence[Sample], arm: str, repeat: int = 1) -> dict[int, Sample]:
    """The valid samples of an arm by turn."""
    return {s.turn: s for s in samples if s.arm == arm and s.repeat == repeat and s.counts}


def against(
    control: dict[int, Sample], treated: dict[int, Sample],
    figure: Callable[[Sample], float | None], *, paired: bool,
) -> Comparison:
    """Treated against control: turn by turn, or as the blocks that they ran in."""
    if not paired:
        return compare([figure(s) for s in control.values()], [figure(s) for s in treated.values()])
    turns = sorted(control.keys() & treated.keys())
    return compare([figure(control[t]) for t in turns], [figure(treated[t]) for t in turns],
                   paired=True)


def moved(comparison: Comparison, level: float) -> bool:
    """Whether a figure moved, the one way or the other, by more than chance."""
    p, p_slower = comparison.p_value, comparison.p_slower
    return p is not None and p_slower is not None and min(p, p_slower) <= level


def _hit_by_count(sample: Sample) -> bool:
    """Whether as much is reported as the prompt shares with an earlier one, up to a block."""
    reported, predicted = sample.reported_reuse or 0.0, sample.predicted_reuse
    if predicted is None or predicted <= HALF:
        return reported >= FULL  # little is shared: only reuse of nearly everything is a hit
    return as_far_as_shared(sample)


def as_far_as_shared(sample: Sample) -> bool:
    """Whether what is reported reaches as far as the prompt was predicted to be shared."""
    tokens = sample.prompt_tokens or 0
    return nearly_all(tokens * (sample.reported_reuse or 0.0),
                      tokens * (sample.predicted_reuse or 0.0))


def nearly_all(part_tokens: float, whole_tokens: float) -> bool:
    """Whether a part is the whole of it but for a small share, or for what a block leaves over."""
    return part_tokens >= FULL * whole_tokens or (
        part_tokens > HALF * whole_tokens and whole_tokens - part_tokens <= BLOCK_TOKENS)
