"""A replay as text: predicted beside reported beside timed, a row a turn, and what it comes to.

Pure functions from samples to strings of at most 80 columns.
"""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Sequence

from request_timing.findings.measures import (
    AS_SENT,
    COLD,
    REPLAYED,
    WHAT_IF,
    median,
    prefill_s,
    prefill_s_per_token,
    recomputed_tokens,
    valid,
)
from request_timing.findings.replay import reaches
from request_timing.formats import UNKNOWN, count, ms
from request_timing.records.sample import BROKE, Sample
from request_timing.report.remarks import COLUMNS
from request_timing.stats.compare import compare

MOST_EXPENSIVE = 3
HALF = 0.5  # of a first turn, from which it was cached and not only its common head
TITLES = {AS_SENT: "replay: the turns as they were sent",
          WHAT_IF: "what if: the same turns, mended as the remedies say",
          COLD: "control: the same turns behind a beginning that nobody has seen"}


def replay_table(samples: Sequence[Sample], *, native: bool) -> str:
    """A table an arm, then the arms beside each other."""
    parts = [_arm(samples, arm, native) for arm in (AS_SENT, WHAT_IF, COLD)
             if any(s.arm == arm for s in samples)]
    return "\n\n".join([*parts, "\n".join(_summary(samples, native))])


def broke(sample: Sample) -> str:
    """What broke this turn, as it was noted; "" for a first turn."""
    return next((note.removeprefix(BROKE) for note in sample.notes if note.startswith(BROKE)), "")


def median_reuse(samples: Sequence[Sample]) -> float | None:
    """The median reported reuse of the turns as sent, from turn 2; None where none is reported.

    What passes must have been seen, and be the conversation's own doing: a turn that failed, or
    whose count is nonsense, counts as one of which nothing was reused, and more than it shares
    with any earlier turn (an earlier run's, the agent's own) does not count.
    """
    turns = [s for s in samples if s.arm == AS_SENT and s.turn > 1]
    if all(s.reported_reuse is None for s in valid(turns, AS_SENT)):
        return None
    shared = {reach.turn: reach.shared_tokens / reach.prompt_tokens
              for reach in reaches(samples, AS_SENT) if reach.is_too_much}
    reused = [(s.reported_reuse or 0.0) if s.counts else 0.0 for s in turns]
    return statistics.median(
        0.0 if share > 1 else min(share, shared.get(s.turn, 1.0))
        for s, share in zip(turns, reused, strict=True))


def _arm(samples: Sequence[Sample], arm: str, native: bool) -> str:
    if native:
        headers = ["turn", "tokens", "shared", "reused", "recomputed", "prefill ms"]
    else:
        headers = ["turn", "tokens", "shared", "cached", "TTFT ms"]
    # What a repair has moved to the end still changes there, and breaks nothing.
    harmless = {reach.turn for reach in reaches(samples, arm) if reach.goes_on and arm == WHAT_IF}
    rows = []
    for sample in (s for s in samples if s.arm == arm):
        cells = [str(sample.turn), count(sample.prompt_tokens), _shared(sample, native),
                 count(sample.cached_tokens)]
        cells += ([count(recomputed_tokens(sample)), ms(prefill_s(sample))] if native
                  else [ms(sample.ttft_s)])
        rows.append((cells, f"failed: {sample.error.kind}" if sample.error
                     else "" if sample.turn in harmless else _in_a_column(broke(sample))))
    widths = [max(len(header), *(len(cells[n]) for cells, _ in rows))
              for n, header in enumerate(headers)]
    lines = [TITLES[arm], _line(headers, widths, "what broke" if arm != COLD else ""),
             _line(["-" * width for width in widths], widths, "")]
    lines += [_line(cells, widths, said) for cells, said in rows]
    return "\n".join(lines)


def _in_a_column(said: str) -> str:
    """What broke, without its place, and as short as it can be said."""
    return said.partition(", in ")[0].replace("a time that changes each ", "a time, each ")


def _line(cells: Sequence[str], widths: Sequence[int], said: str) -> str:
    row = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    room = COLUMNS - len(row) - 2
    return f"{row}  {said if len(said) <= room else said[:room - 1] + '…'}".rstrip()


def _shared(sample: Sample, native: bool) -> str:
    if sample.turn == 1 or sample.arm == COLD:
        return UNKNOWN
    if native:
        return count(sample.shared_tokens)
    share = sample.predicted_reuse
    return UNKNOWN if share is None else f"{share:.0%}".replace("%", " %")


def _summary(samples: Sequence[Sample], native: bool) -> list[str]:
    lines = ["in all, from turn 2"]
    for arm in (AS_SENT, WHAT_IF):
        chosen = valid(samples, arm, from_turn=2)
        if not chosen:
            continue
        sent, reused = (median(chosen, figure) for figure in (
            lambda s: s.prompt_tokens, lambda s: s.cached_tokens))
        computed = median(chosen, recomputed_tokens)
        took = median(chosen, prefill_s if native else (lambda s: s.ttft_s))
        what = REPLAYED[arm]
        if computed is not None and sent is not None:
            lines += _wrapped(f"{what}: {computed:,.0f} of {sent:,.0f} tokens recomputed a turn, "
                              f"{ms(took)} ms of {'prefill' if native else 'TTFT'} (medians)")
        else:
            lines.append(f"  {what}: {ms(took)} ms of TTFT (median); cached tokens are "
                         f"{'not reported' if reused is None else count(reused)}")
    if not native:
        lines += [*_against_cold(samples), *_already_cached(samples)]
    elif misses := [s for s in valid(samples, AS_SENT, from_turn=2)
                    if s.shared_tokens is not None and s.cached_tokens is not None
                    and s.cached_tokens < s.shared_tokens]:
        lines.append(f"  {len(misses)} turns reused less than they share with the turn before: the "
                     "model or the")
        lines.append("    server, not the prompt, lost it (a sliding window, a recurrent model, "
                     "another client)")
    return lines + _costs(samples)


def _against_cold(samples: Sequence[Sample]) -> list[str]:
    """TTFT of the turns as sent against the same turns cold."""
    cold = {s.turn: s.ttft_s for s in valid(samples, COLD, from_turn=2)}
    lines = []
    for arm in (AS_SENT, WHAT_IF):
        mine = {s.turn: s.ttft_s for s in valid(samples, arm, from_turn=2)}
        turns = sorted(cold.keys() & mine.keys())
        if not turns:
            continue
        found = compare([cold[t] for t in turns], [mine[t] for t in turns], paired=True)
        interval = found.interval
        lines.append(f"  {arm}: TTFT {'unknown' if found.ratio is None else f'{found.ratio:.2g}x'} "
                     "of cold" + (f" (95 % interval {interval[0]:.2g} to {interval[1]:.2g})"
                                  if interval else "") + f", n {len(turns)}")
    return lines


def _already_cached(samples: Sequence[Sample]) -> list[str]:
    """Turn 1 of the arm as sent can share nothing with this run."""
    first = next((s for s in samples if s.arm == AS_SENT and s.turn == 1 and s.counts), None)
    if first is None or not first.cached_tokens or (first.reported_reuse or 0) < HALF:
        return []
    return [f"  turn 1 was cached already ({first.cached_tokens:,} tokens): by an earlier run, or",
            "    by the agent itself; later turns may hit what no turn of this run left there"]


def _costs(samples: Sequence[Sample]) -> list[str]:
    """The breaks that cost most, in tokens computed again that the turn before had too."""
    tokens: Counter[str] = Counter()
    times: Counter[str] = Counter()
    seconds: list[float | None] = []
    lost = {reach.turn: reach.shared_tokens - reach.reused_tokens
            for reach in reaches(samples, AS_SENT) if reach.is_lost}
    for sample in valid(samples, AS_SENT):
        computed, said = recomputed_tokens(sample), broke(sample)
        if computed is None or not sample.avoidable_share or not said:
            continue
        # What the server lost is none of the prompt's doing.
        again = round(min(sample.avoidable_share * (sample.prompt_tokens or 0),
                          computed - lost.get(sample.turn, 0)))
        if again > 0:
            tokens[said] += again
            times[said] += 1
            each = prefill_s_per_token(sample)
            seconds.append(None if each is None else again * each)
    if not tokens:
        return []
    sent = sum(s.prompt_tokens or 0 for s in samples if s.arm == AS_SENT and s.counts)
    known = [took for took in seconds if took is not None]
    took = f" ({sum(known):.3g} s)" if len(known) == len(seconds) else ""
    lines = _wrapped(f"about {tokens.total():,} of {sent:,} tokens sent were computed again "
                     f"behind a break{took}")
    for said, cost in tokens.most_common(MOST_EXPENSIVE):
        n = times[said]
        lines += _wrapped(f"{cost:,} tokens by {said}, {n} time{'s' * (n != 1)}")
    return [*lines, "  --explain shows each break with both its sides, and the remedy"]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, initial_indent="  ", subsequent_indent="    ",
                         break_on_hyphens=False)
