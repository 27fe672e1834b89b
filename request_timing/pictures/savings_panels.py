"""What a picture shows of depth, workload and restore, as data.

Pure functions from samples to lanes and charts. Verdicts are those of the tables, by the same
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from request_timing.findings.depth import block_fit, block_s, depth_finding, is_warm
from request_timing.findings.measures import median, of_experiment
from request_timing.findings.rates import decode_of, depth_points, step_context, step_s
from request_timing.findings.restore import by_way, pause_rows, restore_findings, waited_s
from request_timing.findings.verdict import Verdict
from request_timing.findings.workload import Corner, corners_of, workload_finding
from request_timing.formats import between, count, ms
from request_timing.pictures.panel_parts import (
    TIME,
    Chart,
    Lane,
    Lanes,
    Series,
    clock_words,
    is_wide,
    known_points,
    left_out,
    unknown_lanes,
    usable,
)
from request_timing.records.names import DEPTH, DISK, HOST, RECOMPUTE, RESTORE, SLOT, WORKLOAD
from request_timing.records.sample import Sample
from request_timing.report.savings_tables import change

BLOCK, PAUSES = "block", "pauses"
WAY_NAMES = {RECOMPUTE: "recomputed", SLOT: "slot", HOST: "host memory", DISK: "disk"}
FITTED = "line through the medians"


def physics_panels(samples: Sequence[Sample]) -> list[Lanes | Chart]:
    """The panels of these three that the samples of a run have, in the order of the tables."""
    found: list[Lanes | Chart] = []
    if depth := of_experiment(samples, DEPTH):
        found += [depth_chart(depth), block_chart(depth)]
    if of_experiment(samples, WORKLOAD):
        found.append(workload_lanes(samples))  # which is predicted from other experiments
    restore = of_experiment(samples, RESTORE)
    if any(by_way(restore, way) for way in WAY_NAMES):
        found.append(restore_chart(restore))
    if pause_rows(restore):
        found.append(pause_lanes(restore))
    return found


def depth_chart(samples: Sequence[Sample]) -> Chart:
    """Time a token of decode against the context before it, and the fitted line."""
    points = known_points((step_context(s), step_s(s)) for at in depth_points(samples).values()
                      for s in at)
    decode = decode_of(samples)
    title, said = _finding_words(depth_finding(samples), "depth: nothing is known")
    fit = None
    if decode is not None and decode.fit.n > 1:
        fit = (FITTED, tuple((x, decode.fit.value((1, x)))
                             for x in (decode.shallowest, decode.deepest)))
        said.insert(0, f"line: {change(decode.slope)} for each 1,000 tokens of context "
                       f"{between(decode.fit.interval((0, 1)), 1e6)}")
    return Chart(
        name=DEPTH, title=title, x_label="tokens of context before the token",
        y_label="decode, a token", unit=TIME, fit=fit, at=None, is_log=False,
        series=(Series(label="one request", style=0, points=points),) if points else (),
        said=(*said, *left_out(samples), *clock_words(samples)))


def block_chart(samples: Sequence[Sample]) -> Chart:
    """Time of reading one more block against the prompt it ends, and the fitted line.

    A depth whose prefix was not reused is shown apart: its time holds more than the block.
    """
    warm, cold = ([(s.prompt_tokens, block_s(s)) for depth, at in depth_points(samples).items()
                   if (depth == 0 or is_warm(samples, depth) is not False) == is_in
                   for s in at] for is_in in (True, False))
    line = block_fit(samples)
    finding = depth_finding(samples)
    tokens = finding.evidence.get("block_tokens") if finding is not None else None
    size = f" of {count(tokens)} tokens" if tokens else ""
    fit, title, said = None, f"One more block{size}: no slope is known", []
    series = [Series(label=label, style=n, points=points) for n, (label, points) in enumerate((
        ("one request", known_points(warm)),
        ("prefix not reused: not in the line", known_points(cold)))) if points]
    xs = [x for x, _ in known_points(warm)]
    if line is not None and xs:
        ends = [(x, line.value((1, x))) for x in (min(xs), max(xs))]
        fit, interval = (FITTED, tuple(ends)), line.interval((0, 1))
        said.append(f"line: {change(line.coefficients[1])} for each 1,000 tokens before it "
                    f"{between(interval, 1e6)}")
        title = f"One more block{size}: no growth with the prompt before it is shown"
        if interval is not None and interval[0] > 0:
            told = (f"{ms(y)} ms at {count(x)} tokens" for x, y in ends)
            title = f"One more block{size} takes {' and '.join(told)} of prompt"
    native = any(s.server is not None for s in samples)
    return Chart(
        name=BLOCK, title=title, x_label="prompt tokens, the block included",
        y_label="prefill of one more block" if native else "TTFT of one more block", unit=TIME,
        fit=fit, at=None, is_log=False, series=tuple(series), said=tuple(said))


def workload_lanes(samples: Sequence[Sample]) -> Lanes:
    """Whole requests, cold and as a hit: measured, and as the rates predict."""
    lanes = []
    for corner in corners_of(samples):
        lanes += _corner_lanes(corner)
    title, said = _finding_words(workload_finding(samples), "workload: nothing is known")
    drawn = [v for lane in lanes for v in (lane.value, lane.mark) if v is not None]
    said += ["beside a row: ms measured, and how far off the prediction is"] if drawn else []
    return Lanes(
        name=WORKLOAD, title=title, x_label="whole request", unit=TIME, kinds=("cold", "hit"),
        mark_label="predicted by the rates", lanes=tuple(lanes), is_log=is_wide(drawn),
        said=(*said, *unknown_lanes(lanes), *left_out(of_experiment(samples, WORKLOAD))))


def _corner_lanes(corner: Corner) -> list[Lane]:
    shape = f"{count(corner.prompt_tokens)} in, {count(corner.output_tokens)} out"
    found = []
    for kind, measured, predicted in (("cold", corner.cold_s, corner.cold_predicted_s),
                                      ("hit", corner.hit_s, corner.hit_predicted_s)):
        value, mark = usable(measured), usable(predicted)
        note = _off(mark, value)
        if kind == "hit" and corner.reused is not True:
            note = {False: "no hit", None: "hit unknown"}[corner.reused]
        found.append(Lane(label=f"{shape}: {kind}", kind=kind, value=value, mark=mark, note=note))
    return found


def restore_chart(samples: Sequence[Sample]) -> Chart:
    """Time to the first token against the prompt's length, by the way it came back."""
    series = []
    for n, (way, label) in enumerate(WAY_NAMES.items()):
        found = by_way(samples, way)
        points = known_points((s.prompt_tokens, waited_s(s)) for at in found.values() for s in at)
        path = known_points((median(at, lambda s: s.prompt_tokens), median(at, waited_s))
                       for at in found.values())
        if points:
            series.append(Series(label=label, style=n, points=points, path=path))
    findings = [f for f in restore_findings(samples) if f.arm != "pause"]
    said = [f"{f.arm}: {_sooner(f)}" for f in findings if "faster_from_tokens" in f.evidence]
    values = [p for one in series for p in one.points]
    return Chart(
        name=RESTORE, title=_titles(findings) or "Recomputed alone: no way back was tried",
        x_label="prompt tokens", y_label="TTFT, reading back included", unit=TIME,
        series=tuple(series), fit=None, at=None,
        is_log=is_wide([x for x, _ in values]) and min(y for _, y in values) > 0,
        said=(*said, *(f.text for f in findings if not f.evidence), *left_out(samples),
              "the line goes through the medians"))


def _sooner(finding: Verdict) -> str:
    tokens = finding.evidence["faster_from_tokens"]
    back = f"{finding.evidence['n_found']} of {finding.evidence['n']} came back"
    return (f"{back}, at no length surely sooner than recomputed" if tokens is None
            else f"{back}, surely sooner than recomputed from {count(tokens)} tokens on")


def pause_lanes(samples: Sequence[Sample]) -> Lanes:
    """TTFT of the same prompt again after a pause, the first one's as a mark."""
    told = {True: "found", False: "gone", None: "unknown"}
    lanes = tuple(Lane(
        label=f"after {row.asked_s:,} s", kind="TTFT again", value=usable(row.ttft_s),
        mark=usable(row.first_ttft_s), note=told[row.lived]) for row in pause_rows(samples))
    title, said = _finding_words(
        next((f for f in restore_findings(samples) if f.arm == "pause"), None), "pauses")
    drawn = [v for lane in lanes for v in (lane.value, lane.mark) if v is not None]
    return Lanes(
        name=PAUSES, title=title, x_label="TTFT", unit=TIME, kinds=("TTFT again",),
        mark_label="the first time", lanes=lanes, is_log=is_wide(drawn),
        said=(*said, *unknown_lanes(lanes), *clock_words(samples)))


def _titles(findings: Iterable[Verdict]) -> str:
    return " · ".join(f"{f.arm}: {f.code_in_words}" for f in findings)


def _finding_words(finding: Verdict | None, otherwise: str) -> tuple[str, list[str]]:
    """A finding's code and first sentence as a title; the other lines of it."""
    if finding is None:
        return otherwise, []
    first, *rest = finding.text.splitlines()
    return f"{finding.code_in_words}: {first.rstrip('.')}", rest


def _off(predicted: float | None, measured: float | None) -> str:
    """How far a prediction is from the measurement, as a share of that."""
    return "unknown" if predicted is None or not measured else (
        f"{round(100 * (predicted / measured - 1), 1) + 0.0:+g} %")
