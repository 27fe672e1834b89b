"""What a picture shows of ladder, position and minimum, as data.

Pure functions from samples to lanes and charts. Verdicts are those of the tables, by the same
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from request_timing.findings import minimum
from request_timing.findings.measures import FIGURES, median, of_experiment
from request_timing.findings.reuse import Row, judged, rows, shortest, stamped
from request_timing.formats import count
from request_timing.pictures.panel_parts import (
    SHARE,
    TIME,
    TOKENS,
    Chart,
    Lane,
    Lanes,
    Point,
    Series,
    clock_words,
    is_wide,
    left_out,
    unknown_lanes,
    usable,
    written,
)
from request_timing.records.names import LABELS, LADDER, MINIMUM, POSITION
from request_timing.records.sample import Sample
from request_timing.report.reuse_tables import OF_ALL, SUMMARY

ttft_s = FIGURES["ttft_s"]


def shape_panels(samples: Sequence[Sample]) -> list[Lanes | Chart]:
    """The panels of these three that the samples have, in the order of the tables."""
    draw: dict[str, Callable[[Sequence[Sample]], Lanes | Chart]] = {
        LADDER: ladder_lanes, POSITION: position_lanes, MINIMUM: minimum_chart}
    return [
        panel(chosen) for name, panel in draw.items() if (chosen := of_experiment(samples, name))
    ]


def ladder_lanes(samples: Sequence[Sample]) -> Lanes:
    """The share of each shape's prompt that was reused, what is shared as a mark, and the verdict.

    Where no row has a count it is TTFT against cold prompts.
    """
    known = rows(samples, LADDER)
    counted = any(row.reused_tokens is not None for row in known)
    kind = "reused, as reported" if counted else "TTFT / cold"
    lanes = tuple(Lane(
        label=LABELS[row.arm], kind=kind, note=row.code_in_words.lower(),
        value=_share(row.reused_tokens, row.input_tokens) if counted else usable(row.ttft.ratio),
        mark=usable(row.predicted) if counted else None) for row in known)
    said = ["back after n: n others came in between"]
    if not counted:
        said.append("no cached tokens are reported: judged by the clock")
    return Lanes(
        name=LADDER, title=_by_code(known, "shapes of reuse"), unit=SHARE, kinds=(kind,),
        x_label="share of the prompt" if counted else "TTFT, as a share of a cold prompt's",
        mark_label="shared, so predicted" if counted else "", lanes=lanes, is_log=False,
        said=(*said, *unknown_lanes(lanes), *left_out(samples)))


def position_lanes(samples: Sequence[Sample]) -> Lanes:
    """What a request costs by the place of a changed token, and by the granularity of a stamp.

    Tokens recomputed; where none are counted, TTFT.
    """
    known, stamps = rows(samples, POSITION), stamped(samples, ttft_s)
    is_tokens = any(one.recomputed_tokens is not None for one in known) or any(
        one.recomputed_tokens is not None for one in stamps)
    changed, stamp_kind = "one token changed", "time in front"
    lanes = [Lane(
        label=f"changed at {row.arm} %", kind=changed, note=row.code_in_words.lower(),
        value=usable(row.recomputed_tokens) if is_tokens
        else usable(median(judged(samples, row.arm), ttft_s)),
        mark=_less(row.input_tokens, row.shared_tokens) if is_tokens else None) for row in known]
    lanes += [Lane(
        label=f"stamp by {stamp.by}", kind=stamp_kind, mark=None,
        value=usable(stamp.recomputed_tokens if is_tokens else stamp.seconds),
        note=f"new in {stamp.changed} of {stamp.n}") for stamp in stamps]
    first, last = known[0] if known else None, known[-1] if known else None
    title = _by_code(known, "places of a change")
    unit = TOKENS if is_tokens else TIME
    ends = [lane for lane in lanes if lane.kind == changed and lane.value is not None]
    if first is not None and last is not None and len(ends) > 1 and first.code not in OF_ALL:
        verb = "recomputes" if is_tokens else "waits"
        least, most = (f"{written(lane.value, unit)} {unit}" for lane in (ends[0], ends[-1]))
        title = f"A change at {_place(ends[0])} {verb} {least}, one at {_place(ends[-1])} {most}"
    said = []
    if stamps:
        said.append("a stamp's bar is the mean of a request: a simulated clock, one request in "
                    "30 s; new: the stamp was another")
    return Lanes(
        name=POSITION, title=title, unit=unit, kinds=(changed, stamp_kind)[:1 + bool(stamps)],
        x_label="tokens recomputed" if is_tokens else "TTFT (ms)",
        mark_label="what follows the change" if is_tokens else "", lanes=tuple(lanes),
        is_log=False, said=(*said, *unknown_lanes(lanes), *left_out(samples),
                            *clock_words(samples)))


def minimum_chart(samples: Sequence[Sample]) -> Chart:
    """Each pair of prompts: tokens reused against the prefix shared, and the minimum found.

    Where no tokens are counted: the TTFT that the second prompt saved; a saving below zero is none.
    """
    counted = minimum.is_counted(samples)
    answer = {True: "reused", False: "not reused", None: "unclear"}
    by_answer: dict[str, list[Point]] = {word: [] for word in answer.values()}
    drawn = unknown = below = 0
    for chars in minimum.lengths(samples):
        x = usable(minimum.tokens(samples, chars))
        word = answer[minimum.reused(samples, chars)]
        for cold, second in minimum.pairs(samples, chars):
            y = second.cached_tokens if counted else _less(cold.ttft_s, second.ttft_s)
            if x is None or usable(y) is None:
                unknown += 1
                continue
            drawn += 1
            by_answer[word].append((x, usable(y) or 0.0))
            below += not counted and (second.ttft_s or 0.0) > (cold.ttft_s or 0.0)
    finding = shortest(samples)
    first, _, rest = finding.text.partition("; ")
    prefix = minimum.found(samples)
    at = usable(prefix.shared) if prefix is not None else None
    xs = [x for points in by_answer.values() for x, _ in points]
    said = [rest] if rest else []
    said += [f"{drawn} pairs of prompts that share a prefix and nothing else"]
    if unknown:
        said.append(f"not drawn: {unknown} pairs without a known figure")
    if below:
        said.append(f"{below} pairs whose second prompt was slower stand at 0")
    return Chart(
        name=MINIMUM, title=f"{finding.code_in_words}: {first}",
        x_label="tokens of the shared prefix", y_label="tokens reused" if counted else "TTFT saved",
        unit=TOKENS if counted else TIME, fit=None,
        at=None if at is None else (f"shortest reused: {count(at)}", at),
        series=tuple(Series(label=word, style=n, points=tuple(points))
                     for n, (word, points) in enumerate(by_answer.items()) if points),
        is_log=is_wide(xs), said=(*said, *left_out(samples)))


def _by_code(known: Sequence[Row], what: str) -> str:
    """How many rows have which verdict; the words of one that holds for the whole server."""
    for row in known:
        if row.code in OF_ALL:
            return f"{row.code_in_words}: {row.text}"
    parts = [f"{n} {words}" for code, words in SUMMARY.items()
             if (n := sum(row.code == code for row in known))]
    return f"Of {len(known)} {what}: {' · '.join(parts)}"


def _place(lane: Lane) -> str:
    return lane.label.removeprefix("changed at ")


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else usable(part / whole)


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else usable(max(0.0, whole - part))
