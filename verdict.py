"""The verdict on each arm of *cache*: what three sources say, and whether they agree.

The sources: reuse *predicted* from the prompts (the longest common beginning with any earlier
prompt), reuse *reported* by the server, and reuse *timed* (TTFT against prompts that were cold).
Caching may move TTFT alone; where decode moved too, something else changed. A positive verdict
stands only beside controls that work: an identical repeat must be reused, and cold against cold
must show nothing. Pure functions over the samples of one run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common import LEVEL, Comparison, compare, detectable_ratio
from summary import CACHE, of

if TYPE_CHECKING:
    from sample import Sample

HIT, PARTIAL, NO_HIT, NO_REUSE_HERE = "hit", "partial", "no_hit", "no_reuse_here"
TOO_NOISY, CONTRADICTION, NOT_CACHE = "too_noisy", "contradiction", "not_cache"
UNDECIDED = "undecided"
# No verdict was possible: what is missing.
ALL_FAILED, ARM_FAILED, FIRST_TURN_ONLY = "all_failed", "arm_failed", "first_turn_only"
NO_CLOCK, NONSENSE_COUNT = "no_clock", "nonsense_count"
IMPOSSIBLE = (ALL_FAILED, ARM_FAILED, FIRST_TURN_ONLY, NO_CLOCK, NONSENSE_COUNT)

# A share of what the prompts have in common from which it counts as reused; a share of the prompt
# up to which it does not: a common head is no hit.
FULL, HALF, NONE = 0.95, 0.5, 0.05
# Decode may be a little slower over a longer context; a ratio outside this is another matter.
DECODE_STEADY = 0.8, 1.25
KNOWN_REASONS = ("a sliding-window, recurrent or hybrid model, prompts below the provider's "
                 "minimum length, caching switched off, or several machines behind one address")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One arm's verdict: a code for programs, plain lines for people, and what it rests on."""

    experiment: str
    arm: str
    code: str
    text: str
    evidence: dict[str, Any]

    @property
    def is_firm(self) -> bool:
        """Whether more turns would hardly change it."""
        return self.code not in (UNDECIDED, TOO_NOISY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one arm, from its second turn on."""

    predicted: float | None
    reported: float | None
    turns: tuple[int, ...]
    reused_turns: tuple[int, ...]  # those in which the arm hit
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


def verdicts(samples: Sequence[Sample], *, looks: int = 1) -> list[Verdict]:
    """A verdict for append and for prepend; none where *cache* was not run.

    looks: how often the samples were looked at while they came, which divides the level.
    """
    chosen = of(samples, CACHE)
    arms = [arm for arm in ("append", "prepend") if any(s.arm == arm for s in chosen)]
    if not arms:
        return []
    native = any(s.server is not None for s in chosen)
    control = _evidence(chosen, "repeat", native, looks)
    return [_judge(chosen, arm, _evidence(chosen, arm, native, looks), control, native, looks)
            for arm in arms]


def _by_turn(samples: Sequence[Sample], arm: str, repeat: int = 1) -> dict[int, Sample]:
    return {s.turn: s for s in samples if s.arm == arm and s.repeat == repeat and s.counts}


def _evidence(samples: Sequence[Sample], arm: str, native: bool, looks: int) -> Evidence:
    cold = _by_turn(samples, "cold")
    mine = {turn: s for turn, s in _by_turn(samples, arm).items() if turn > 1}
    known = {turn: r for turn, s in mine.items() if (r := s.reported_reuse) is not None}
    predicted = [r for s in mine.values() if (r := s.predicted_reuse) is not None]
    ttft = _against(cold, mine, lambda s: s.ttft_s, native)
    decode = _against(cold, mine, lambda s: s.inter_token_s, native)
    fastest_cold = min((s.ttft_s for s in cold.values() if s.ttft_s is not None), default=None)
    if known:
        reused = tuple(turn for turn, reuse in known.items()
                       if reuse >= FULL * max(mine[turn].predicted_reuse or 1.0, HALF))
    else:
        reused = tuple(turn for turn, s in mine.items() if fastest_cold is not None
                       and s.ttft_s is not None and s.ttft_s < fastest_cold)
    return Evidence(
        predicted=statistics.median(predicted) if predicted else None,
        reported=statistics.median(known.values()) if known else None,
        turns=tuple(sorted(mine)), reused_turns=tuple(sorted(reused)), ttft=ttft, decode=decode,
        # Each way at the whole level: a wrong "not the cache" only withholds a verdict.
        decode_moved=not native and _moved(decode, LEVEL / looks)
        and not DECODE_STEADY[0] <= (decode.ratio or 1) <= DECODE_STEADY[1],
        level=LEVEL / looks,
    )


def _against(
    control: dict[int, Sample], treated: dict[int, Sample],
    figure: Callable[[Sample], float | None], native: bool,
) -> Comparison:
    """Treated against control by turn; as blocks, where the arms did not alternate."""
    if native:
        return compare([figure(s) for s in control.values()], [figure(s) for s in treated.values()])
    turns = sorted(control.keys() & treated.keys())
    return compare([figure(control[t]) for t in turns], [figure(treated[t]) for t in turns],
                   paired=True)


def _moved(comparison: Comparison, level: float) -> bool:
    """Whether a figure moved, the one way or the other, by more than chance."""
    p, p_slower = comparison.p_value, comparison.p_slower
    return p is not None and p_slower is not None and min(p, p_slower) <= level


def _judge(
    samples: Sequence[Sample], arm: str, mine: Evidence, control: Evidence, native: bool, looks: int
) -> Verdict:
    code, lines = _impossible(samples, arm, mine)
    if code is None:
        noisy = not native and _moved(_against(
            _by_turn(samples, "cold"), _by_turn(samples, "cold", 2), lambda s: s.ttft_s, native),
            LEVEL / 2 / looks)
        code, lines = (_by_count(mine, control, timed=not native and not noisy)
                       if mine.reported is not None else _by_time(mine, control, noisy=noisy))
        if mine.ttft.ratio is not None:
            lines = [*lines, *_timing_lines(mine, native)]
    return Verdict(experiment=CACHE, arm=arm, code=code, text="\n".join(lines), evidence={
        "predicted_reuse": mine.predicted, "reported_reuse": mine.reported,
        "ttft_ratio": mine.ttft.ratio, "ttft_ratio_interval": mine.ttft.interval,
        "p_value": mine.ttft.p_value, "inter_token_ratio": mine.decode.ratio,
        "n": len(mine.turns), "share_faster_than_all_cold": mine.ttft.share_below_all,
        "detectable_ttft_ratio": mine.detectable_ratio(len(mine.turns)),
        "repeat_predicted_reuse": control.predicted, "repeat_reported_reuse": control.reported,
        "repeat_ttft_ratio": control.ttft.ratio, "reused_turns": list(mine.reused_turns),
        "holds_from_turn": mine.holds_from, "looks": looks,
    })


def _impossible(
    samples: Sequence[Sample], arm: str, mine: Evidence
) -> tuple[str | None, list[str]]:
    """Why there can be no verdict, or None."""
    if all(s.error is not None for s in samples):
        return ALL_FAILED, ["every request of cache failed: nothing can be said (see above why)"]
    of_arm = [s for s in samples if s.arm == arm]
    if max(s.turn for s in of_arm) < 2:
        return FIRST_TURN_ONLY, ["one turn has nothing to reuse: run two turns at least (--turns)"]
    if not mine.turns:
        return ARM_FAILED, [f"no turn of {arm} from the second on is valid: nothing can be said"]
    if any(r > 1 for s in of_arm if (r := s.reported_reuse) is not None):
        return NONSENSE_COUNT, ["the endpoint reports more cached tokens than the prompt has: its "
                                "count cannot be used"]
    if mine.reported is None and not mine.ttft.ratio:
        return NO_CLOCK, ["no cached tokens are reported, and the times are missing or zero: "
                          "nothing can be said"]
    return None, []


def _by_count(mine: Evidence, control: Evidence, *, timed: bool) -> tuple[str, list[str]]:
    """The verdict where the server reports what it reused; time, if it can, may contradict it."""
    reported, predicted = mine.reported or 0.0, mine.predicted
    if timed and mine.decode_moved:
        return NOT_CACHE, [f"reported {_share(reported)} reused, but decode changed too "
                           f"({_times(mine.decode.ratio)} of cold): the cache alone is not what "
                           "you are seeing; another model, batch or route"]
    if reported <= NONE and timed and mine.faster:
        return CONTRADICTION, [f"reported {_share(reported)} reused, yet TTFT is "
                               f"{_times(mine.ttft.ratio)} of cold: the endpoint does not report "
                               "its hits, or something else is faster"]
    if control.reported is not None and control.reported <= NONE and reported <= NONE:
        return NO_REUSE_HERE, ["even an identical repeat is not reused: this server or model does "
                               f"not reuse prefixes ({KNOWN_REASONS}); your prompt did not break "
                               "it"]
    if predicted is not None and reported > predicted + NONE:
        return CONTRADICTION, [f"reported {_share(reported)} reused, though the prompts share only "
                               f"{_share(predicted)} from the start: the server moves chunks "
                               "(--cache-reuse), or its count is wrong"]
    if mine.holds_from is not None:
        said = (f"{_share(reported)} of the prompt is reused"
                + (f" from turn {mine.holds_from} on (not before: a delayed write, or a "
                   "machine that had not seen it)"
                   if mine.holds_from > 2 else ""))
        return HIT, [said + _predicted(predicted)]
    if mine.reused_turns:
        return PARTIAL, [f"{len(mine.reused_turns)} of {len(mine.turns)} turns are reused: a "
                         "mixture, as of several machines behind one address"
                         + _predicted(predicted)]
    if reported <= NONE:
        if predicted is not None and predicted >= FULL:
            return CONTRADICTION, [f"predicted {_share(predicted)}, reported {_share(reported)}: "
                                   "evicted between turns, too short for the minimum, or a model "
                                   "that cannot reuse a longer prompt"]
        return NO_HIT, [f"{_share(reported)} of the prompt is reused" + _predicted(predicted)]
    return PARTIAL, [f"reuse stops after {_share(reported)} of the prompt" + _predicted(predicted)]


def _by_time(mine: Evidence, control: Evidence, *, noisy: bool) -> tuple[str, list[str]]:
    """The verdict from time alone, where no cached tokens are reported."""
    predicted = mine.predicted
    if noisy:
        return TOO_NOISY, ["cold prompts differ from cold prompts by more than chance: this clock "
                           "is too noisy for a verdict; try again, with more turns"]
    if mine.decode_moved:
        return NOT_CACHE, [f"decode changed ({_times(mine.decode.ratio)} of cold), which no prefix "
                           "cache does: another model, batch or route"]
    if mine.faster:
        if predicted is not None and predicted <= NONE:
            return CONTRADICTION, ["faster than cold, though the prompts share only "
                                   f"{_share(predicted)} from the start: not a prefix cache"]
        late = mine.holds_from is not None and mine.holds_from > 2
        share = mine.ttft.share_below_all
        return HIT, ["TTFT alone fell: consistent with prefix caching (no cached tokens are "
                     "reported)"
                     + (f", from turn {mine.holds_from} on" if late else "")
                     + (f"; {_share(share)} of the turns are faster than every cold one"
                        if share is not None and share < 1 and not late else "")]
    low = mine.ttft.interval[0] if mine.ttft.interval else None
    if control.faster:
        if low is not None and control.ttft.ratio is not None and low > control.ttft.ratio:
            if predicted is not None and predicted >= FULL:
                return CONTRADICTION, [f"predicted {_share(predicted)}, yet as slow as cold, where "
                                       f"an identical repeat takes {_times(control.ttft.ratio)} of "
                                       "it: evicted between turns, or a cache of whole answers"]
            return NO_HIT, [f"as slow as cold, where an identical repeat takes "
                            f"{_times(control.ttft.ratio)} of it" + _predicted(predicted)]
        return UNDECIDED, ["not shown to be faster than cold, and not shown to be as slow"]
    low = control.ttft.interval[0] if control.ttft.interval else None
    if low is not None and low > DECODE_STEADY[0]:
        return NO_REUSE_HERE, ["even an identical repeat is as slow as cold: this server or model "
                               f"does not reuse prefixes ({KNOWN_REASONS}), or a hit saves little "
                               "at this length"]
    return UNDECIDED, ["no cached tokens are reported, and not even an identical repeat is shown "
                       "to be faster than cold: more turns or a longer context would tell"]


def _timing_lines(mine: Evidence, native: bool) -> list[str]:
    """The two phases against cold, and what so many turns could have shown."""
    interval = mine.ttft.interval
    p = mine.ttft.p_value
    lines = [f"TTFT {_times(mine.ttft.ratio)} of cold"
             + (f" (95 % interval {interval[0]:.2g} to {interval[1]:.2g})" if interval else "")
             + (f", p {p:.2g}" if p is not None and not native else "")
             + f", n {mine.ttft.n_treated}; decode {_times(mine.decode.ratio)} of cold"]
    more = 4 * mine.ttft.n_treated
    seen, shown = mine.detectable_ratio(mine.ttft.n_treated), mine.detectable_ratio(more)
    if not native and not mine.faster and seen is not None and shown is not None:
        lines.append(f"with {mine.ttft.n_treated} turns a drop of {_share(1 - seen)} or more would "
                     f"have shown; {more} turns would show {_share(1 - shown)}")
    return lines


def _share(value: float | None) -> str:
    """A share of a whole: 99 %, 98.6 %; digits behind the point only where they say something."""
    if value is None:
        return "unknown"
    digits = 1 if value < NONE or value > FULL else 0
    return f"{value:.{digits}%}".replace(".0%", "%").replace("%", " %")


def _predicted(value: float | None) -> str:
    return "" if value is None else f"; predicted {_share(value)}"


def _times(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}x"
