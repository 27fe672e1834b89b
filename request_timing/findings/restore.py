"""What follows from restore, by way and by pause; and the findings of a whole run together.

Pure functions over the samples of one run; `report/savings_tables.py` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from request_timing.findings.depth import depth_finding, fit_finding
from request_timing.findings.found_again import was_found, was_found_again
from request_timing.findings.measures import median, of_experiment
from request_timing.findings.verdict import Verdict
from request_timing.findings.workload import asked_findings, workload_finding
from request_timing.formats import ms
from request_timing.records.names import DISK, FIRST, HOST, NO_DISK, PAUSE, RECOMPUTE, RESTORE, SLOT

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

RESTORED, NOT_RESTORED, MIXED, NOT_OFFERED = "restored", "not_restored", "mixed", "not_offered"
LIVES, GONE, UNTIMED = "lives", "gone", "not_known"
WAYS = {SLOT: "in the slot", HOST: "from host memory", DISK: "from disk"}


def waited_s(sample: Sample) -> float | None:
    """What a request of restore took until its first token, reading a slot back included."""
    if sample.ttft_s is None:
        return None
    before = sample.restored.took_s if sample.restored is not None else 0.0
    return None if before is None else sample.ttft_s + before


def by_way(samples: Sequence[Sample], way: str) -> dict[int, list[Sample]]:
    """The requests of one way by length, ascending."""
    found: dict[int, list[Sample]] = {}
    for sample in of_experiment(samples, RESTORE):
        if sample.counts and sample.arm.startswith(way):
            found.setdefault(int(sample.arm.removeprefix(way)), []).append(sample)
    return dict(sorted(found.items()))


def beats_from(samples: Sequence[Sample], way: str) -> int | None:
    """The shortest length, in tokens as counted, from which on every prompt came back, the slowest
    sooner than the recomputation; None where that is so at no length."""
    recomputed = by_way(samples, RECOMPUTE)
    shortest = None
    for tokens, found in reversed(by_way(samples, way).items()):
        times = [waited_s(s) for s in found]
        known = [t for t in times if t is not None]
        cold = [t for s in recomputed.get(tokens, []) if (t := waited_s(s)) is not None]
        if not (cold and known and all(map(was_found, found)) and max(known) < min(cold)):
            break
        shortest = _counted(tokens, found)
    return shortest


def _counted(asked_tokens: int, found: Sequence[Sample]) -> int:
    """The length of prompts that were to have so many tokens, as the server counts it."""
    return round(median(found, lambda s: s.prompt_tokens) or asked_tokens)


def way_finding(samples: Sequence[Sample], way: str) -> Verdict | None:
    """What coming back in one way brings; None where the way was not tried."""
    found = by_way(samples, way)
    name = way.rstrip("/")
    if not found:
        refused = [
            n for s in of_experiment(samples, RESTORE) for n in s.notes if n.startswith(NO_DISK)
        ]
        if way != DISK or not refused:
            return None
        return Verdict(experiment=RESTORE, arm=name, code=NOT_OFFERED,
                       text="This server saves no slot: start it with --slot-save-path DIR.")
    every = [s for at_length in found.values() for s in at_length]
    back = sum(map(was_found, every))
    shortest = beats_from(samples, way)
    evidence: dict[str, Any] = {
        "faster_from_tokens": shortest, "n": len(every), "n_found": back,
        "waited_s": {str(n): median(at, waited_s) for n, at in found.items()},
        "recomputed_s": {str(n): median(at, waited_s)
                         for n, at in by_way(samples, RECOMPUTE).items()}}
    code = RESTORED if back == len(every) else MIXED if back else NOT_RESTORED
    if code == NOT_RESTORED:
        remedy = ("start it with --cache-ram MIB"
                  if way == HOST else "this server or model reuses no prefix here")
        return Verdict(experiment=RESTORE, arm=name, code=code, evidence=evidence,
                       text=f"No prompt came back {WAYS[way]}: all was recomputed; {remedy}.")
    return Verdict(experiment=RESTORE, arm=name, code=code, evidence=evidence,
                   text=_way_words(samples, way, shortest, back, len(every)))


def _way_words(
    samples: Sequence[Sample], way: str, shortest: int | None, back: int, n: int
) -> str:
    found = by_way(samples, way)
    longest = max(found)
    text = f"{back} of {n} prompts came back {WAYS[way]}."
    cold = median(by_way(samples, RECOMPUTE).get(longest, []), waited_s)
    warm = median(found[longest], waited_s)
    if warm is not None and cold is not None:
        text += (f" At {_counted(longest, found[longest]):,} tokens the first token took "
                 f"{ms(warm)} ms, "
                 f"recomputed {ms(cold)} ms.")
    if shortest is None:
        return f"{text} At no length on up to the longest was that surely sooner."
    at_most = "at most " if shortest == _counted(*next(iter(found.items()))) else ""
    return f"{text} It is sooner from {at_most}{shortest:,} tokens on."


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRow:
    """A prefix asked for again after a pause; None is not known.

    really_s: from the end of the first request to the second · first_ttft_s: of the first one ·
    lived: whether the prefix was found again.
    """

    asked_s: int
    really_s: float
    cached_tokens: int | None
    prompt_tokens: int | None
    ttft_s: float | None
    first_ttft_s: float | None
    lived: bool | None

    def to_json(self) -> dict[str, Any]:
        """As the record has it."""
        return {"asked_s": self.asked_s, "really_s": self.really_s, "cached": self.cached_tokens,
                "prompt": self.prompt_tokens, "ttft_s": self.ttft_s,
                "first_ttft_s": self.first_ttft_s, "lived": self.lived}


def pause_rows(samples: Sequence[Sample]) -> list[PauseRow]:
    """A row a pause whose first and second request count, the shortest first."""
    of_restore = [s for s in of_experiment(samples, RESTORE) if s.counts]
    first = {s.arm.removeprefix(FIRST): s for s in of_restore if s.arm.startswith(FIRST)}
    rows = []
    for sample in of_restore:
        before = first.get(sample.arm.removeprefix(PAUSE))
        if not sample.arm.startswith(PAUSE) or before is None:
            continue
        between_s = (datetime.fromisoformat(sample.sent_at)
                     - datetime.fromisoformat(before.sent_at)).total_seconds()
        rows.append(PauseRow(
            asked_s=int(sample.arm.removeprefix(PAUSE)),
            really_s=max(0.0, between_s - (before.total_s or 0.0)),
            cached_tokens=sample.cached_tokens, prompt_tokens=sample.prompt_tokens,
            ttft_s=sample.ttft_s, first_ttft_s=before.ttft_s,
            lived=was_found_again(before, sample)))
    return sorted(rows, key=lambda row: row.asked_s)


def pause_finding(samples: Sequence[Sample]) -> Verdict | None:
    """How long a prefix lives; None where no pause was tried."""
    rows = [row for row in pause_rows(samples) if row.lived is not None]
    tried = [s for s in of_experiment(samples, RESTORE) if s.arm.startswith(PAUSE)]
    if not tried:
        return None
    evidence: dict[str, Any] = {"pauses": [row.to_json() for row in rows]}
    lived = [row.asked_s for row in rows if row.lived]
    gone = [row.asked_s for row in rows if not row.lived]
    counted = all(row.cached_tokens is not None for row in rows)
    source = ("\nOne request a pause: another machine behind the address would look the same."
              if counted else "\nThis is by the clock alone, one request a pause: consistent with, "
                              "and no proof.")
    if not rows:
        code, text = UNTIMED, "No pause has a first and a second request that count."
    elif 0 in gone:
        code, text = GONE, ("Even the same prompt at once was not found again: this server reuses "
                            "no such prefix or not yet, or another machine answered.")
    elif not gone:
        code, text = LIVES, f"A prefix lived through every pause, {max(lived):,} s the longest."
    elif max(lived) < min(gone):
        code, text = GONE, (f"A prefix lived through {max(lived):,} s and was gone after "
                            f"{min(gone):,} s.")
    else:
        code, text = MIXED, (f"Found after {_list(lived)} s, gone after {_list(gone)} s: no "
                             "lifetime does that; other prompts, other machines or chance do.")
    return Verdict(experiment=RESTORE, arm="pause", code=code, text=text + source,
                   evidence=evidence)


def _list(values: Sequence[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)


def restore_findings(samples: Sequence[Sample]) -> list[Verdict]:
    """One a way, and one on the pauses."""
    found = [*(way_finding(samples, way) for way in WAYS), pause_finding(samples)]
    return [finding for finding in found if finding is not None]


def found(samples: Sequence[Sample], settings: Mapping[str, Any] | None = None) -> list[Verdict]:
    """All that these experiments say of a run, in the order in which they are printed.

    settings: of the record, for the user's own shapes and traffic.
    """
    single = (fit_finding(samples), depth_finding(samples), workload_finding(samples))
    return [*(f for f in single if f is not None), *asked_findings(samples, settings or {}),
            *restore_findings(samples)]


def findings(
    samples: Sequence[Sample], settings: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The same as objects, for the JSON."""
    return [asdict(finding) for finding in found(samples, settings)]
