"""What *ladder*, *position* and *minimum* found: figures and a verdict a row, from samples alone.

Pure functions. A row is judged by the server's counts where they are reported: what it shares with
an earlier prompt against what was reused. Elsewhere by time: TTFT against cold prompts, and
against what an identical repeat saves. A server whose identical repeat is not reused is told so
once; its other rows say nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from request_timing.findings import minimum
from request_timing.findings.evidence import HALF, NONE, moved, nearly_all
from request_timing.findings.found_again import took_time
from request_timing.findings.measures import COLD, Figure, median, of_experiment, recomputed_tokens
from request_timing.findings.verdict import (
    ARM_FAILED,
    CONTRADICTION,
    HIT,
    NO_HIT,
    NO_REUSE_HERE,
    PARTIAL,
    REUSE_OF_NOTHING,
    SMALL_DROP,
    TOO_NOISY,
    UNDECIDED,
    WHOLE_SAVING,
    Verdict,
)
from request_timing.records.names import LABELS, LADDER, MINIMUM, PLACES, POSITION, STAMPS
from request_timing.stats.compare import LEVEL, Comparison, compare

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

CONTROL = {LADDER: "repeat", POSITION: "100"}  # the row that any prefix cache must reuse

MISSED = "missed"  # shared, and yet not reused
NOT_REACHED = "not_reached"  # of a run that was stopped
ANSWER_CACHE = "answer_cache"  # the whole answer came from a cache, not a prefix
FOUND, NOT_FOUND = "found", "not_found"
WHOLE_ANSWER = "the whole answer was kept from before: that is no prefix cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm: medians over the samples that are judged; None is not known.

    shared_tokens: with an earlier prompt and its answer, from the first token on · reused_tokens,
    recomputed_tokens: as reported · predicted: the share of the prompt that is shared · ttft:
    against cold prompts of the same rounds.
    """

    arm: str
    n: int
    input_tokens: float | None
    shared_tokens: float | None
    reused_tokens: float | None
    recomputed_tokens: float | None
    predicted: float | None
    ttft: Comparison
    code: str = UNDECIDED
    text: str = ""

    @property
    def code_in_words(self) -> str:
        """As of a verdict: NO HIT."""
        return self.code.upper().replace("_", " ")


def judged(samples: Sequence[Sample], arm: str) -> list[Sample]:
    """The samples of an arm that are measured: not those that only filled the cache."""
    return [s for s in samples if s.arm == arm and s.turn > 1 and s.counts]


def rows(samples: Sequence[Sample], experiment: str) -> list[Row]:
    """The rows of *ladder*, or of *position* the changed tokens, in the order of the table."""
    chosen = of_experiment(samples, experiment)
    arms = [arm for arm in (LABELS if experiment == LADDER else map(str, PLACES))
            if any(s.arm == arm for s in chosen)]
    known = [_figures(chosen, arm) for arm in arms]
    return [_judge(row, known, chosen, CONTROL[experiment]) for row in known]


def _figures(samples: Sequence[Sample], arm: str) -> Row:
    mine = judged(samples, arm)
    return Row(
        arm=arm, n=len(mine), input_tokens=median(mine, lambda s: s.prompt_tokens),
        shared_tokens=median(mine, shared_tokens),
        reused_tokens=median(mine, lambda s: s.cached_tokens),
        recomputed_tokens=median(mine, recomputed_tokens),
        predicted=median(mine, lambda s: s.predicted_reuse), ttft=against_cold(samples, mine))


def shared_tokens(sample: Sample) -> float | None:
    """Tokens that a prompt shares with an earlier one; estimated where no tokenizer counts."""
    if sample.shared_tokens is not None:
        return sample.shared_tokens
    share, whole = sample.predicted_reuse, sample.prompt_tokens
    return None if share is None or whole is None else round(share * whole)


def against_cold(samples: Sequence[Sample], mine: Sequence[Sample]) -> Comparison:
    """TTFT against cold prompts: round by round, or where there are none, all that were cold."""
    cold = {s.repeat: s.ttft_s for s in samples if s.arm == COLD and s.turn == 1 and s.counts}
    if not cold:
        first = [s.ttft_s for s in samples if s.turn == 1 and s.counts]
        return compare(first, [s.ttft_s for s in mine])
    by_round: dict[int, list[float]] = {}
    for sample in mine:
        if sample.ttft_s is not None and sample.repeat in cold:
            by_round.setdefault(sample.repeat, []).append(sample.ttft_s)
    return compare([cold[n] for n in by_round], [statistics.median(by_round[n]) for n in by_round],
                   paired=True)


def _judge(row: Row, known: Sequence[Row], samples: Sequence[Sample], control: str) -> Row:
    """The row with its code and line."""
    code, text = _impossible(row, samples) or (
        _by_count(row, known) if row.reused_tokens is not None
        else _by_time(row, known, samples, control))
    return replace(row, code=code, text=text)


def _impossible(row: Row, samples: Sequence[Sample]) -> tuple[str, str] | None:
    if row.n == 0:
        notes = [note for s in samples if s.arm == row.arm and s.turn > 1 for note in s.notes]
        if any(note.startswith("response_cache") for note in notes):
            return ANSWER_CACHE, WHOLE_ANSWER
        if not any(s.error is not None for s in samples if s.arm == row.arm):
            return NOT_REACHED, "the run was stopped before this row came to its end"
        return ARM_FAILED, "no request of this row succeeded"
    if _came_whole(row, samples):
        return ANSWER_CACHE, WHOLE_ANSWER
    first = [s for s in samples if s.turn == 1 and s.error is None and s.predicted_reuse is not None
             and s.predicted_reuse <= NONE and s.reported_reuse is not None]
    if (first and statistics.median(s.reported_reuse or 0.0 for s in first) > HALF):
        return REUSE_OF_NOTHING
    return None


def _by_count(row: Row, known: Sequence[Row]) -> tuple[str, str]:
    whole, shared = row.input_tokens or 0.0, row.shared_tokens or 0.0
    reused = row.reused_tokens or 0.0
    of_shared = f"{reused:,.0f} of {shared:,.0f} shared tokens reused"
    little = NONE * whole
    if all((other.reused_tokens or 0.0) <= NONE * (other.input_tokens or 0.0) for other in known):
        return NO_REUSE_HERE, ("nothing is reported reused of any prompt that shares its beginning "
                               "with an earlier one")
    if reused > shared + little:
        return CONTRADICTION, f"{reused:,.0f} tokens reused, though only {shared:,.0f} are shared"
    if shared <= little:
        return NO_HIT, "it shares nothing with an earlier prompt: all is computed"
    if nearly_all(reused, shared):
        return HIT, of_shared
    return (PARTIAL if reused > little else MISSED), of_shared


def _by_time(row: Row, known: Sequence[Row], samples: Sequence[Sample], control: str
             ) -> tuple[str, str]:
    level = LEVEL / max(1, len(known))
    cold = [{s.repeat: s.ttft_s for s in samples if s.arm == COLD and s.turn == turn and s.counts}
            for turn in (1, 2)]
    both = sorted(cold[0].keys() & cold[1].keys())
    noise = compare([cold[0][n] for n in both], [cold[1][n] for n in both], paired=True)
    repeat = next((other for other in known if other.arm == control), None)
    ratio, predicted = row.ttft.ratio, row.predicted or 0.0
    if moved(noise, LEVEL / 2):
        return TOO_NOISY, "cold prompts differ from cold prompts: this clock is too noisy"
    if row.ttft.p_value is None or ratio is None or repeat is None or repeat.ttft.ratio is None:
        return UNDECIDED, "nothing cold was timed in the same rounds"
    faster = row.ttft.p_value <= level
    if _came_whole(repeat, samples) or repeat.ttft.p_value is None or repeat.ttft.p_value > level:
        if faster and predicted > NONE:
            return UNDECIDED, f"TTFT is {ratio:.2g} of cold, but the row that must be reused is not"
        sharing = [s for other in known if (other.predicted or 0.0) > NONE
                   and not _came_whole(other, samples) for s in judged(samples, other.arm)]
        together = against_cold(samples, sharing).interval
        if together is not None and together[0] > SMALL_DROP:
            return NO_REUSE_HERE, ("prompts that share their beginning with an earlier one are as "
                                   "slow as cold ones: no prefix is reused here, or a hit saves "
                                   "little at this length")
        least = math.ceil(math.log2(1 / level))
        return UNDECIDED, ("not even the row that must be reused is shown to be faster than cold"
                           + (f": that takes {least} rounds" if repeat.n < least else ""))
    saved, whole = 1 - ratio, predicted * (1 - repeat.ttft.ratio)
    text = f"TTFT is {ratio:.2g} of cold"
    if predicted <= NONE:
        return (CONTRADICTION, f"{text}, though nothing is shared") if faster else (NO_HIT, text)
    if faster:
        low = row.ttft.interval[0] if row.ttft.interval else ratio
        return (HIT if 1 - low >= WHOLE_SAVING * whole else PARTIAL), text
    low = row.ttft.interval[0] if row.ttft.interval else 0.0
    if 1 - low < HALF * whole:
        return MISSED, f"{text}, where a whole hit would be {1 - whole:.2g}"
    return UNDECIDED, f"{text} ({saved:.0%} saved): neither a hit nor none is shown"


def _came_whole(row: Row, samples: Sequence[Sample]) -> bool:
    """Whether the answers of this row came in one go, and those of cold prompts did not."""
    def times(chosen: Iterable[Sample]) -> list[bool]:
        return [took_time(s) for s in chosen if s.counts and len(s.arrivals_s) > 1]

    mine, first = times(judged(samples, row.arm)), times(s for s in samples if s.turn == 1)
    return bool(mine and first) and not any(mine) and all(first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """One granularity of stamp: requests, in how many the stamp was another, and their mean cost.

    input_tokens, recomputed_tokens, seconds: a request; None where any is not known.
    """

    by: str
    n: int
    changed: int
    input_tokens: float | None
    recomputed_tokens: float | None
    seconds: float | None


def stamped(samples: Sequence[Sample], figure: Figure) -> list[Stamped]:
    """What a stamp costs by its granularity; `figure`: the seconds that are shown."""
    found = []
    for by in STAMPS:
        mine = judged(of_experiment(samples, POSITION), by)
        if mine:
            found.append(Stamped(
                by=by, n=len(mine), changed=sum((s.predicted_reuse or 0.0) <= HALF for s in mine),
                input_tokens=_mean(mine, lambda s: s.prompt_tokens),
                recomputed_tokens=_mean(mine, recomputed_tokens), seconds=_mean(mine, figure)))
    return found


def _mean(samples: Sequence[Sample], figure: Figure) -> float | None:
    values = [value for value in map(figure, samples) if value is not None]
    return statistics.mean(values) if len(values) == len(samples) else None


def shortest(samples: Sequence[Sample]) -> Verdict:
    """The answer of *minimum*, in a line."""
    prefix = minimum.found(of_experiment(samples, MINIMUM))
    if prefix is None:
        code, text = ARM_FAILED, "no pair of prompts can be used: they failed, or none was cold"
    elif prefix.shared is None:
        way = ("; this server reuses no prefix so short, stores it later than the next request, or "
               "another machine answered" if prefix.counted else
               "; no cached tokens are reported, and from time no saving is shown")
        code, text = NOT_FOUND, f"not found below {prefix.tried[1]:,.0f} tokens{way}"
    else:
        code, text = FOUND, in_words(prefix)
    return Verdict(experiment=MINIMUM, arm=MINIMUM, code=code, text=text,
                   evidence={} if prefix is None else asdict(prefix))


def in_words(prefix: minimum.Prefix) -> str:
    """A prefix that was found, in a sentence."""
    shared, about = prefix.shared or 0.0, "" if prefix.counted else "about "
    if prefix.is_mixed:
        return (f"a prefix of {shared:,.0f} tokens was reused, but not every one so long or "
                "longer: several machines, or a prefix that is stored late; so the shortest has "
                f"{shared:,.0f} at the most, and the step cannot be told (reported counts)")
    if prefix.missed is None:
        lines = f"a prefix of {about}{shared:,.0f} tokens is reused, the shortest "
        lines += "that was tried" if shared <= prefix.tried[0] else "that the noise lets be seen"
    elif shared - prefix.missed > minimum.PINNED:
        lines = f"the shortest prefix reused has {prefix.missed:,.0f} to {shared:,.0f} tokens"
    else:
        lines = f"the shortest prefix reused has {about}{shared:,.0f} tokens"
    if prefix.reused is not None and prefix.reused < shared - 1:
        lines += f", and of it {prefix.reused:,}"
    if prefix.step is not None:
        lines += f"; reuse then grows in steps of {about}{prefix.step:,.0f}"
    elif prefix.step_most is not None:
        lines += (f"; reuse then grows in steps of {prefix.step_most:,.0f} at most, finer than "
                  "the clock can tell")
    else:
        lines += "; the step in which reuse grows cannot be told"
    if prefix.reused_most is not None and prefix.tried[1] > shared:
        lines += f"; of one of {prefix.tried[1]:,.0f} tokens {prefix.reused_most:,} are reused"
    return lines + (" (reported counts)" if prefix.counted else " (from time alone)")


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """A verdict a row of *ladder* and *position*, and one of *minimum*, of what was run."""
    found = [
        Verdict(experiment=experiment, arm=row.arm, code=row.code, text=row.text, evidence={
            "n": row.n, "input_tokens": row.input_tokens, "shared_tokens": row.shared_tokens,
            "reused_tokens": row.reused_tokens, "recomputed_tokens": row.recomputed_tokens,
            "predicted_reuse": row.predicted, "ttft_ratio": row.ttft.ratio,
            "ttft_ratio_interval": row.ttft.interval, "p_value": row.ttft.p_value})
        for experiment in (LADDER, POSITION) for row in rows(samples, experiment)]
    found += [
        Verdict(experiment=POSITION, arm=stamp.by, code="stamp", text=(
            f"the stamp was another in {stamp.changed} of {stamp.n} requests"),
                evidence=asdict(stamp))
        for stamp in stamped(samples, lambda s: s.ttft_s)]
    return found + ([shortest(samples)] if of_experiment(samples, MINIMUM) else [])


def findings(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The same for the JSON: experiment, arm, code, text, evidence."""
    return [asdict(verdict) for verdict in verdicts(samples)]
