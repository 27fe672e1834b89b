"""The verdict on each arm of *cache*: what three sources say, and whether they agree.

The sources: reuse *predicted* from the prompts (the longest common beginning with any earlier
prompt), reuse *reported* by the server, and reuse *timed* (TTFT against prompts that were cold).
Caching may move TTFT alone; where decode moved too, something else changed. A verdict from time
stands only beside controls that work: an identical repeat must be faster, and cold against cold
must show nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from request_timing.findings.evidence import (
    FULL,
    HALF,
    NONE,
    Evidence,
    against,
    by_turn,
    moved,
    of_arm,
)
from request_timing.findings.measures import CACHE, COLD, REPLAYED, of_experiment
from request_timing.stats.compare import LEVEL

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

HIT, PARTIAL, NO_HIT, NO_REUSE_HERE = "hit", "partial", "no_hit", "no_reuse_here"
TOO_NOISY, CONTRADICTION, NOT_CACHE = "too_noisy", "contradiction", "not_cache"
UNDECIDED = "undecided"
# No verdict was possible: what is missing.
ALL_FAILED, ARM_FAILED, FIRST_TURN_ONLY = "all_failed", "arm_failed", "first_turn_only"
NO_CLOCK, NONSENSE_COUNT = "no_clock", "nonsense_count"
IMPOSSIBLE = (ALL_FAILED, ARM_FAILED, FIRST_TURN_ONLY, NO_CLOCK, NONSENSE_COUNT)

JUDGED = "append", "prepend"
# A drop of TTFT smaller than this is within what a real hit may bring, and no ground for a "no".
SMALL_DROP = 0.9
# Of what an identical repeat saves: from this share on an arm's hit counts as whole.
WHOLE_SAVING = 0.8
# Reuse of so few tokens is of a common head alone, where it is a small share of the prompt.
HEAD_TOKENS, HEAD_SHARE = 64, 0.2
KNOWN_REASONS = (
    "a sliding-window, recurrent or hybrid model, prompts below the minimum length, caching "
    "switched off, room for one prefix only, or several machines behind one address")

Judged = tuple[str, str]  # a code, and its line
REUSE_OF_NOTHING: Judged = (NONSENSE_COUNT, (
    "reuse is reported even of prompts that share nothing with an earlier one: the count cannot be "
    "used"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One arm's verdict: a code for programs, plain lines for people, and what it rests on."""

    experiment: str
    arm: str
    code: str
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def arm_in_words(self) -> str:
        """As a person reads it: as sent."""
        return REPLAYED.get(self.arm, self.arm)

    @property
    def code_in_words(self) -> str:
        """As a person reads it: NO HIT."""
        return self.code.upper().replace("_", " ")

    @property
    def is_firm(self) -> bool:
        """Whether more turns would hardly change it."""
        return self.code not in (UNDECIDED, TOO_NOISY)


def verdicts(samples: Sequence[Sample], *, looks: int = 1) -> list[Verdict]:
    """A verdict for append and for prepend; none where *cache* was not run.

    looks: how often the samples were looked at while they came, which divides the level.
    """
    chosen = of_experiment(samples, CACHE)
    native = any(s.server is not None for s in chosen)
    known = {arm: of_arm(chosen, arm, native=native, looks=looks) for arm in (*JUDGED, "repeat")}
    cold = against(by_turn(chosen, COLD), by_turn(chosen, COLD, 2), lambda s: s.ttft_s, paired=True)
    noisy = None if cold.p_value is None else moved(cold, LEVEL / 2 / looks)
    reused_most = max((m for e in known.values() if (m := e.reported_most) is not None),
                      default=None)
    found = []
    for arm in JUDGED:
        if not any(s.arm == arm for s in chosen):
            continue
        mine, control = known[arm], known["repeat"]
        judged = impossible(chosen, arm, mine)
        if judged is None and mine.reported is not None:
            judged = _by_count(mine, control, reused_most, timed=not native and not noisy)
        elif judged is None:
            judged = _by_time(mine, control, noisy)
        found.append(judged_as(CACHE, arm, judged, mine, control, looks, native=native))
    return found


def judged_as(experiment: str, arm: str, judged: Judged, mine: Evidence,
              control: Evidence | None = None, looks: int = 1, *, native: bool) -> Verdict:
    """The verdict, with the times in words and what it all rests on. control: of the repeat."""
    code, line = judged
    lines = [line] if mine.ttft.ratio is None or code in IMPOSSIBLE else [
        line, *_timing_lines(code, mine, native)]
    return Verdict(experiment=experiment, arm=arm, code=code, text="\n".join(lines),
                   evidence=_as_data(mine, looks) | (_repeat_as_data(control) if control else {}))


def _as_data(mine: Evidence, looks: int) -> dict[str, Any]:
    return {
        "predicted_reuse": mine.predicted, "reported_reuse": mine.reported,
        "ttft_ratio": mine.ttft.ratio, "ttft_ratio_interval": mine.ttft.interval,
        "p_value": mine.ttft.p_value, "inter_token_ratio": mine.decode.ratio,
        "n": len(mine.turns), "share_faster_than_all_cold": mine.ttft.share_below_all,
        "detectable_ttft_ratio": mine.detectable_ratio(len(mine.turns)),
        "reused_turns": list(mine.reused_turns), "holds_from_turn": mine.holds_from,
        "looks": looks,
    }


def _repeat_as_data(control: Evidence) -> dict[str, Any]:
    return {
        "repeat_predicted_reuse": control.predicted, "repeat_reported_reuse": control.reported,
        "repeat_ttft_ratio": control.ttft.ratio,
    }


def impossible(samples: Sequence[Sample], arm: str, mine: Evidence) -> Judged | None:
    """Why there can be no verdict, or None."""
    if all(s.error is not None for s in samples):
        return ALL_FAILED, "every request failed: nothing can be said (see above why)"
    if max(s.turn for s in samples if s.arm == arm) < 2:
        return FIRST_TURN_ONLY, "one turn has nothing to reuse: two at least are needed"
    if not mine.turns:
        return ARM_FAILED, f"no turn of {arm} with an earlier one to reuse is valid: nothing to say"
    shares = [r for s in samples if (r := s.reported_reuse) is not None and s.error is None]
    if any(share > 1 for share in shares):
        return NONSENSE_COUNT, ("the endpoint reports more cached tokens than a prompt has: its "
                                "count cannot be used")
    cold = [r for s in samples if s.arm == COLD and s.error is None
            and (r := s.reported_reuse) is not None]
    if cold and statistics.median(cold) > HALF:
        return REUSE_OF_NOTHING
    if mine.reported is None and mine.ttft.n_treated == 0:
        return NO_CLOCK, ("no cached tokens are reported, and no cold prompt of the same turns was "
                          "timed to compare with")
    if mine.reported is None and not mine.ttft.ratio:
        return NO_CLOCK, "no cached tokens are reported, and the times are zero: nothing to say"
    return None


def _by_count(mine: Evidence, control: Evidence, reused_most: float | None, *, timed: bool
              ) -> Judged:
    """The verdict where the server reports what it reused; time, if it can, may contradict it."""
    reported, predicted = mine.reported or 0.0, mine.predicted
    shares_much = predicted is None or predicted > NONE
    if timed and mine.decode_moved:
        return NOT_CACHE, (f"reported {percent(reported)} reused, but decode changed too "
                           f"({_times(mine.decode.ratio)} of cold): the cache alone is not what "
                           "you are seeing; another model, batch or route")
    if (reported <= NONE and not mine.reused_turns and timed and mine.faster and shares_much
            and (mine.ttft.ratio or 1) < SMALL_DROP):
        return CONTRADICTION, (f"reported {percent(reported)} reused, yet TTFT is "
                               f"{_times(mine.ttft.ratio)} of cold: the endpoint does not report "
                               "its hits, or something else is faster")
    if (reused_most or 0.0) <= NONE:
        if not control.turns:
            return UNDECIDED, "nothing was reused in this run, and the repeat that should be failed"
        return NO_REUSE_HERE, ("even an identical repeat is not reused: this server or model does "
                               f"not reuse prefixes ({KNOWN_REASONS}); your prompt did not break "
                               "it")
    if (predicted is not None and reported > predicted + NONE
            and not is_head(reported, mine.reused_tokens)):
        return CONTRADICTION, (f"reported {percent(reported)} reused, though the prompts share "
                               f"only {percent(predicted)} from the start: the server moves "
                               "chunks (--cache-reuse), or its count is wrong")
    if mine.holds_from is not None:
        late = (f" from turn {mine.holds_from} on (not before: a delayed write, a minimum length, "
                "or a machine that had not seen it)" if mine.is_late else "")
        return HIT, (f"{percent(mine.reported_when_reused)} of the prompt is reused{late}"
                     + and_predicted(predicted))
    if mine.reused_turns and (mine.reported_missed or 0.0) > NONE:
        return PARTIAL, (f"{percent(reported)} of the prompt is reused, not always as far as it "
                         "could be: a cache in large blocks, or one that lags"
                         + and_predicted(predicted))
    if mine.reused_turns:
        return PARTIAL, (f"{len(mine.reused_turns)} of {len(mine.turns)} turns are reused: several "
                         "machines behind one address, or evicted between turns"
                         + and_predicted(predicted))
    return stopped_short(reported, predicted, mine.reused_tokens)


def is_head(reported: float, reused_tokens: float | None) -> bool:
    """Whether no more is reused than the head that a chat template puts before everything, which
    is a visible share of a short prompt."""
    return reported <= NONE or (reported <= HEAD_SHARE and (reused_tokens or 0) <= HEAD_TOKENS)


def stopped_short(reported: float, predicted: float | None, reused_tokens: float | None) -> Judged:
    """The verdict where no turn hit: reuse that reaches part of the way, or none."""
    if not is_head(reported, reused_tokens):
        return PARTIAL, (f"reuse stops after {percent(reported)} of the prompt"
                         + and_predicted(predicted))
    if predicted is not None and predicted > HALF:
        return CONTRADICTION, (f"predicted {percent(predicted)}, reported {percent(reported)}: "
                               "evicted between turns, too short for the minimum, or a model "
                               "that cannot reuse a longer prompt")
    return NO_HIT, f"{percent(reported)} of the prompt is reused{and_predicted(predicted)}"


def _by_time(mine: Evidence, control: Evidence, noisy: bool | None) -> Judged:
    """The verdict from time alone, where no cached tokens are reported."""
    predicted = mine.predicted
    if noisy:
        return TOO_NOISY, ("cold prompts differ from cold prompts by more than chance: this clock "
                           "is too noisy for a verdict; try again, with more turns")
    if mine.decode_moved:
        return NOT_CACHE, (f"decode changed ({_times(mine.decode.ratio)} of cold), which no prefix "
                           "cache does: another model, batch or route")
    if mine.faster and predicted is not None and predicted <= NONE:
        return CONTRADICTION, ("faster than cold, though the prompts share only "
                               f"{percent(predicted)} from the start: not a prefix cache")
    if mine.faster:
        return _faster(mine, control, noisy)
    if control.faster:
        low, high = mine.ttft.interval or (0.0, 0.0)
        if low <= math.sqrt(control.ttft.ratio or 1.0) or high < 1:
            return UNDECIDED, "not shown to be faster than cold, and not shown to be as slow"
        where = f"where an identical repeat takes {_times(control.ttft.ratio)} of it"
        if predicted is not None and predicted > HALF:
            return CONTRADICTION, (f"predicted {percent(predicted)}, yet as slow as cold, {where}: "
                                   "evicted between turns, or a cache of whole answers")
        return NO_HIT, f"as slow as cold, {where}{and_predicted(predicted)}"
    if not control.turns:
        return UNDECIDED, ("no cached tokens are reported, and no identical repeat, which would "
                           "tell, could be counted (see above why)")
    low, high = control.ttft.interval or (0.0, 0.0)
    if low > SMALL_DROP and high >= 1:
        return NO_REUSE_HERE, ("even an identical repeat is as slow as cold: this server or model "
                               f"does not reuse prefixes ({KNOWN_REASONS}), or a hit saves little "
                               "at this length")
    return UNDECIDED, ("no cached tokens are reported, and not even an identical repeat is shown "
                       "to be faster than cold: more turns or a longer context would tell")


def _faster(mine: Evidence, control: Evidence, noisy: bool | None) -> Judged:
    """The verdict on an arm that is faster than cold, as prompts that share their beginning may."""
    if noisy is None:
        return UNDECIDED, "faster than cold, but no cold prompt was compared with a cold one"
    if not control.faster:
        return UNDECIDED, ("faster than cold, but an identical repeat is not shown to be: more "
                           "turns would tell what it is")
    low = mine.ttft.interval[0] if mine.ttft.interval else 0.0
    saved = 1 - (control.ttft.ratio or 0.0)
    if saved > 0 and (1 - low) / saved < WHOLE_SAVING and not mine.is_late:
        return PARTIAL, (f"faster than cold, by {percent((1 - (mine.ttft.ratio or 1)) / saved)} of "
                         "what an identical repeat saves: reuse stops early, or only some of the "
                         "turns hit")
    alone = ("TTFT alone fell" if mine.decode.ratio is not None
             else "TTFT fell (decode could not be compared)")
    share = mine.ttft.share_below_all
    return HIT, (f"{alone}: consistent with prefix caching (no cached tokens are reported)"
                 + (f", from turn {mine.holds_from} on" if mine.is_late else "")
                 + (f"; {percent(share)} of the turns are faster than every cold one"
                    if share is not None and share < 1 and not mine.is_late else ""))


def _timing_lines(code: str, mine: Evidence, native: bool) -> list[str]:
    """The two phases against cold, and what so many turns could have shown."""
    interval, p, n = mine.ttft.interval, mine.ttft.p_value, mine.ttft.n_treated
    lines = [f"TTFT {_times(mine.ttft.ratio)} of cold"
             + (f" (95 % interval {interval[0]:.2g} to {interval[1]:.2g})" if interval else "")
             + (f", p {p:.2g}" if p is not None and not native else "")
             + f", n {n}; decode {_times(mine.decode.ratio)} of cold"]
    if native:
        return lines
    if code == HIT and interval is not None and interval[0] > SMALL_DROP:
        lines.append("it hits and yet is no faster: at this length prefill is a small part of TTFT")
    seen, shown = mine.detectable_ratio(n), mine.detectable_ratio(4 * n)
    if not mine.faster and seen is not None and shown is not None:
        lines.append(f"with {n} turns a drop of {percent(1 - seen)} or more would have shown; "
                     f"{4 * n} turns would show {percent(1 - shown)}")
    return lines


def percent(value: float | None) -> str:
    """A share of a whole: 99 %, 98.6 %; digits behind the point only where they say something."""
    if value is None:
        return "unknown"
    digits = 1 if value < NONE or value > FULL else 0
    return f"{value:.{digits}%}".replace(".0%", "%").replace("%", " %")


def and_predicted(value: float | None) -> str:
    """What was predicted, behind what was reported."""
    return "" if value is None else f"; predicted {percent(value)}"


def _times(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}x" if value >= 99.5 else f"{value:.2g}x"
