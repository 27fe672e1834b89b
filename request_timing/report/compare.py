"""Two runs side by side: what differs between them, then the ratios B/A with their intervals.

    request-timing compare A.json B.json

The interval is of chance within the runs, by rank tests. What another hour, route or load did
between them is in the ratio too: run A, B and A again before a small difference is believed.
"""

from __future__ import annotations

import json
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from request_timing.errors import UserError, one_line
from request_timing.findings.derive import run_verdicts
from request_timing.stats import compare as arms

if TYPE_CHECKING:
    from request_timing.findings.measures import Figure
    from request_timing.records.run import Run
    from request_timing.records.sample import Sample

VALUE_CHARS = 120
SAME_WORK = 1.05  # prompts whose lengths differ by no more than this are of one length
# Facts of one occasion, which differ between any two runs and change nothing.
COMPARED = ("length", "output", "cache", "replay")
PASSING = {"endpoint.calibrated_tokens_per_char"}
FASTER, SLOWER = "B faster", "B slower"
NONE_SHOWN, TOO_FEW = "no difference shown", "too few to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One condition that both runs have: medians in seconds, and B/A with its 95 % interval."""

    name: str
    a_s: float | None
    b_s: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    n: tuple[int, int]

    @property
    def says(self) -> str:
        """What the interval allows to be said."""
        if self.ratio is None:
            return "unknown"
        if self.interval is None:
            return TOO_FEW
        low, high = self.interval
        return NONE_SHOWN if low <= 1 <= high else FASTER if high < 1 else SLOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One experiment: what is compared, a row for each condition, and remarks."""

    title: str
    condition: str
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()


def check(a: Run, b: Run, names: tuple[str, str]) -> None:
    """Raises UserError, in one line, where the runs have nothing that can be compared."""
    for run, name in ((a, names[0]), (b, names[1])):
        if not any(s.counts for s in run.samples):
            raise UserError(f"{name}: expected a run with a valid sample, found none among "
                          f"{len(run.samples)}; measure again")
    done = [dict.fromkeys(s.experiment for s in run.samples) for run in (a, b)]
    if not done[0].keys() & done[1].keys() & {*COMPARED}:
        raise UserError(
            f"expected two runs of {', '.join(COMPARED)}, found {', '.join(done[0])} in "
            f"{names[0]} and {', '.join(done[1])} in {names[1]}; name two that have one "
            "of these in common"
        )
    conditions = [{(s.experiment, s.arm) for s in run.samples if s.counts} for run in (a, b)]
    if not conditions[0] & conditions[1]:
        raise UserError(f"expected a size or arm that both runs have valid samples of, found none "
                      f"in {names[0]} and {names[1]}; measure them with the same sizes")


def differences(a: Run, b: Run) -> list[str]:
    """Tool, endpoint, settings and environment where they differ, a line each."""
    from request_timing.records.run import flat

    facts = [dict(flat({"tool": run.tool, "version": run.version, "endpoint": run.endpoint,
                         "settings": run.settings, "environment": run.environment}))
             for run in (a, b)]
    names = [n for n in dict.fromkeys([*facts[0], *facts[1]]) if n not in PASSING]
    return [f"{one_line(name)}: {_value(facts[0], name)} against {_value(facts[1], name)}"
            for name in names if _value(facts[0], name) != _value(facts[1], name)]


def _value(facts: Mapping[str, Any], name: str) -> str:
    """null, empty, off and absent are one: another version may not have recorded it."""
    value = facts.get(name)
    if value is None or value is False or value in ([], {}):
        return "none"
    return one_line(value if isinstance(value, str) else json.dumps(value), limit=VALUE_CHARS)


def row(name: str, a: Sequence[Sample], b: Sequence[Sample], figure: Figure) -> Row:
    """The samples of one condition, of two runs that were not made side by side: no pairs."""
    values = [[v for s in samples if (v := figure(s)) is not None] for samples in (a, b)]
    compared = arms.compare(*values)
    a_s, b_s = (statistics.median(v) if v else None for v in values)
    return Row(name=name, a_s=a_s, b_s=b_s, ratio=compared.ratio, interval=compared.interval,
               n=(compared.n_control, compared.n_treated))


def together(strata: Sequence[tuple[Sequence[Sample], Sequence[Sample]]], figure: Figure) -> Row:
    """All sizes in one ratio: the median of the ratios within sizes, its interval likewise."""
    from request_timing.stats.ranks import stratified_interval

    logs = [tuple([math.log(max(v, arms.CLOCK_FLOOR_S)) for s in samples
                   if (v := figure(s)) is not None] for samples in pair) for pair in strata]
    steps = [t - c for log_a, log_b in logs for c in log_a for t in log_b]
    return Row(name="all", a_s=None, b_s=None, n=(sum(len(a) for a, _ in logs),
                                                  sum(len(b) for _, b in logs)),
               ratio=math.exp(statistics.median(steps)) if steps else None,
               interval=stratified_interval([(a, b) for a, b in logs]))


def parts(a: Run, b: Run) -> list[Part]:
    """What both runs measured: by length, by output length, by arm of cache and of a replay."""
    from request_timing.findings.measures import (
        CACHE,
        FIGURES,
        arms,
        decode_s_per_token,
        median,
        of_experiment,
        prefill_s,
        valid,
    )

    native = all(s.server is not None for run in (a, b) for s in run.samples if s.counts)
    first = ("prefill", prefill_s) if native else ("TTFT", FIGURES["ttft_s"])
    token = decode_s_per_token if native else FIGURES["inter_token_s"]
    found = []
    for experiment, title, condition, figure in (
        ("length", f"length: {first[0]} ms by input tokens", "asked", first[1]),
        ("output", "output: ms a token by output tokens", "asked", token),
        (CACHE, f"cache: {first[0]} ms, turns from 2 on", "arm", first[1]),
        ("replay", f"replay: {first[0]} ms, turns from 2 on", "arm", first[1]),
    ):
        pair = of_experiment(a.samples, experiment), of_experiment(b.samples, experiment)
        by_arm = experiment in (CACHE, "replay")
        from_turn = 2 if by_arm else 1
        both = [arm for arm in arms([*pair[0], *pair[1]])
                if all(valid(side, arm, from_turn=from_turn) for side in pair)]
        strata = {arm: (valid(pair[0], arm, from_turn=from_turn),
                        valid(pair[1], arm, from_turn=from_turn)) for arm in both}
        if not strata:
            continue
        rows = [row(arm if by_arm else f"{int(arm):,}", *sides, figure)
                for arm, sides in strata.items()]
        remarks = [] if experiment == "output" else _other_work(strata)
        if by_arm:
            shares = {arm: [median(side, lambda s: s.reported_reuse) for side in sides]
                      for arm, sides in strata.items()}
            remarks += [f"{arm} reused: A {_share(x)}, B {_share(y)}"
                       for arm, (x, y) in shares.items()]
            remarks += _verdicts(a, b, experiment)
        elif len(rows) > 1:
            rows.append(together(list(strata.values()), figure))
        found.append(Part(title=f"{title}, B against A", condition=condition, rows=tuple(rows),
                          remarks=tuple(remarks)))
    return found


def _other_work(strata: Mapping[str, tuple[Sequence[Sample], Sequence[Sample]]]) -> list[str]:
    """A line for each condition whose prompts were not of one length: the times are no match."""
    from request_timing.findings.measures import median

    lines = []
    for arm, sides in strata.items():
        read = [median(side, lambda s: s.prompt_tokens) for side in sides]
        if None not in read and not 1 / SAME_WORK <= (arms.ratio(*read) or 1) <= SAME_WORK:
            lines.append(f"{arm}: not the same work, A read {read[0]:,.0f} tokens, "
                         f"B {read[1]:,.0f}")
    return lines


def _share(value: float | None) -> str:
    from request_timing.formats import percent

    return "not reported" if value is None else percent(value, fixed=True)


def _verdicts(a: Run, b: Run, experiment: str) -> list[str]:
    codes = [{v.arm: v.code_in_words for v in run_verdicts(run)
              if v.experiment == experiment} for run in (a, b)]
    return [f"{arm} verdict: A {code}, B {codes[1][arm]}" for arm, code in codes[0].items()
            if arm in codes[1]]


def render(a: Run, b: Run, names: tuple[str, str]) -> str:
    """The comparison as text, 80 columns; raises UserError where nothing can be compared."""
    from request_timing.report.remarks import COLUMNS

    check(a, b, names)
    heads = [f"{letter}: {one_line(name)}, {one_line(run.created_at[:19].replace('T', ' '))} UTC"
             + ("" if run.complete else ", INCOMPLETE")
             for letter, run, name in (("A", a, names[0]), ("B", b, names[1]))]
    other = differences(a, b)
    heads += (["", "what differs, A against B", *(f"  {line}" for line in other)] if other
              else ["", "tool, endpoint, settings and environment are the same"])
    wrap = textwrap.TextWrapper(COLUMNS, subsequent_indent="    ", break_on_hyphens=False)
    blocks = ["\n".join(wrapped for line in heads for wrapped in wrap.wrap(line) or [""])]
    compared = parts(a, b)
    if not compared:
        raise UserError(f"expected a size, or an arm from its second turn on, that both runs have "
                      f"valid samples of, found none in {names[0]} and {names[1]}; measure more")
    blocks += [_table(part) for part in compared]
    blocks.append(f"B/A below 1: B is faster. {NONE_SHOWN}: the 95 % interval holds 1.\n"
                  "It is of chance within the runs; another hour or load is in the ratio too.")
    return "\n\n".join(blocks)


def _table(part: Part) -> str:
    from request_timing.formats import UNKNOWN, ms, significant
    from request_timing.report.tables import table, times

    headers = [part.condition, "A ms", "B ms", "B/A", "95 % interval", "n", ""]
    rows = [[r.name, ms(r.a_s) if r.name != "all" else "", ms(r.b_s) if r.name != "all" else "",
             times(r.ratio), UNKNOWN if r.interval is None else
             "..".join(map(significant, r.interval)), f"{r.n[0]}, {r.n[1]}", r.says]
            for r in part.rows]
    return "\n".join([part.title, table(headers, rows), *part.remarks])
