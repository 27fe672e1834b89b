"""Tables of fit, depth, workload and restore: pure functions from samples to 80 columns of text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from request_timing.findings.depth import (
    before,
    block_fit,
    block_s,
    depth_finding,
    fit_finding,
    fresh_tokens,
)
from request_timing.findings.measures import median, of_experiment, recomputed_tokens
from request_timing.findings.rates import (
    LINEAR,
    Rates,
    cold_prompts,
    decode_of,
    depth_points,
    load,
    prefill_of,
    rates_of,
    step_context,
    step_s,
)
from request_timing.findings.restore import by_way, pause_rows, restore_findings, waited_s
from request_timing.findings.verdict import Verdict
from request_timing.findings.workload import (
    asked_findings,
    corners_of,
    is_far,
    measured_range,
    workload_finding,
)
from request_timing.formats import UNKNOWN, between, count, ms, percent_cell, significant
from request_timing.records.names import (
    DEPTH,
    DISK,
    HOST,
    LENGTH,
    RECOMPUTE,
    RESTORE,
    SLOT,
    WORKLOAD,
)
from request_timing.records.sample import Sample
from request_timing.report.remarks import COLUMNS, remarks
from request_timing.report.tables import inverse, per_s, quartiles_ms, table

GRID_OUTPUTS = (10, 100, 1000, 4000)
GRID_STEPS = (1 / 64, 1 / 16, 1 / 4, 1, 4)  # of the longest prompt measured


def blocks(samples: Sequence[Sample], settings: Mapping[str, Any]) -> list[str]:
    """A block of text for each of these experiments that was asked for, in the order they run."""
    chosen = settings.get("experiments") or ()
    native = any(s.server is not None for s in samples)
    parts = []
    if "fit" in chosen and of_experiment(samples, LENGTH):
        parts.append(fit_table(samples))
    if of_experiment(samples, DEPTH):
        parts.append(depth_table(samples, native=native))
    if of_experiment(samples, WORKLOAD):
        parts.append(workload_table(samples))
    if asked := asked_findings(samples, settings):
        parts.append("\n".join(["what your own shapes would take, by the rates above",
                                *map(finding_lines, asked)]))
    if of_experiment(samples, RESTORE):
        parts.append(restore_table(samples))
    return parts


def finding_lines(finding: Verdict) -> str:
    """A finding in plain lines, as a verdict is printed."""
    first, *rest = finding.text.replace(" %", "\u00a0%").splitlines()  # no line ends there
    lines = textwrap.wrap(f"{finding.experiment}, {finding.arm}: "
                          f"{finding.code_in_words}. {first}",
                          COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    for text in rest:
        lines += textwrap.wrap(text, COLUMNS, initial_indent="  ", subsequent_indent="  ",
                               break_on_hyphens=False)
    return "\n".join(lines).replace("\u00a0", " ")


def fit_table(samples: Sequence[Sample]) -> str:
    """The parts of TTFT, and what of it a cache could remove at each length."""
    title = "fit: TTFT of cold prompts = fixed + linear x n + quadratic x n^2"
    finding = fit_finding(samples)
    said = finding_lines(finding) if finding else ""
    fitted = prefill_of(samples)
    if fitted is None:
        return f"{title}\n{said}"
    parts = ["fixed, ms", "linear, ms per 1,000 tokens", "quadratic, ms per 1,000 tokens squared"]
    rows = []
    for part, scale, (value, interval) in zip(parts, (1e3, 1e6, 1e9), fitted.terms, strict=False):
        bounds = (
            UNKNOWN if interval is None else "..".join(significant(scale * b) for b in interval)
        )
        rows.append([part, significant(scale * value), bounds])
    lengths: dict[str, list[Sample]] = {}
    for sample in cold_prompts(of_experiment(samples, LENGTH)):
        lengths.setdefault(sample.arm, []).append(sample)
    by_length = []
    for arm in sorted(lengths, key=int):
        tokens = round(median(lengths[arm], lambda s: s.prompt_tokens) or 0)
        by_length.append([count(tokens), ms(median(lengths[arm], lambda s: s.ttft_s)),
                          ms(fitted.ttft_s(tokens)), percent_cell(fitted.removable(tokens)),
                          str(len(lengths[arm]))])
    also = " and depth" if len(cold_prompts(samples)) > sum(map(len, lengths.values())) else ""
    how = "" if fitted.kind == LINEAR or len(fitted.fit.coefficients) == 3 else " (as a line)"
    return "\n".join([
        title + how, table(["part", "value", "95 %"], rows), "",
        table(["input", "TTFT ms", "fitted ms", "a cache could remove", "n"], by_length),
        f"least squares of relative errors, {fitted.fit.n} cold requests of length{also}", said])


def depth_table(samples: Sequence[Sample], *, native: bool) -> str:
    """Decode, and one more block, over each prefix."""
    title = "depth: writing, and reading one more block, over a cached prefix"
    first = "block ms" if native else "TTFT ms"
    headers = ["prefix", "context", "reused", "block", first, "tokens/s", "ms/token", "quartiles",
               "n"]
    rows = []
    for depth, at_depth in depth_points(samples).items():
        block = median(at_depth, lambda s: fresh_tokens(s, before(samples, s)))
        seconds = median(at_depth, block_s)
        rate = inverse(seconds / block) if block and seconds else None
        rows.append([
            count(depth), count(median(at_depth, step_context)),
            count(median(at_depth, lambda s: s.cached_tokens)), count(block), ms(seconds),
            per_s(rate), ms(median(at_depth, step_s)), quartiles_ms(at_depth, step_s),
            str(len(at_depth))])
    lines = [title, table(headers, rows)]
    decode, block_line = decode_of(samples), block_fit(samples)
    if decode is not None and decode.fit.n > 1:
        lines.append(f"decode: {start(decode.fit.coefficients[0])} a token, and "
                     f"{change(decode.slope)} for each 1,000 tokens of context\n"
                     f"  {between(decode.fit.interval((0, 1)), 1e6)}")
    if block_line is not None:
        lines.append(f"block:  {start(block_line.coefficients[0])}, and "
                     f"{change(block_line.coefficients[1])} for each 1,000 tokens before it"
                     f"\n  {between(block_line.interval((0, 1)), 1e6)}")
    lines.append(remarks(of_experiment(samples, DEPTH)))
    if finding := depth_finding(samples):
        lines.append(finding_lines(finding))
    return "\n".join(line for line in lines if line)


def start(seconds: float) -> str:
    """Where a line begins; noise may put that below zero, which no time is."""
    return f"{ms(seconds)} ms" if seconds > 0 else "nothing that shows"


def change(seconds_per_token: float) -> str:
    """1.2 ms more, or less, a thousand tokens further on."""
    return f"{ms(1000 * abs(seconds_per_token))} ms {'less' if seconds_per_token < 0 else 'more'}"


def workload_table(samples: Sequence[Sample]) -> str:
    """Whole requests, predicted beside measured; and the grid of what a full hit saves."""
    title = ("workload: whole requests, cold and as a full hit\n"
             "          pred.: predicted by the rates of length and depth")
    headers = ["input", "output", "cold ms", "pred.", "hit ms", "pred.", "saved", "pred.",
               "ms/tok", "hit"]
    rows = [[count(c.prompt_tokens), count(c.output_tokens), ms(c.cold_s),
             ms(c.cold_predicted_s), ms(c.hit_s), ms(c.hit_predicted_s), percent_cell(c.saved),
             percent_cell(c.saved_predicted), ms(c.cold_step_s), ms(c.hit_step_s)]
            for c in corners_of(samples)]
    lines = [title, table(headers, rows),
             "ms/tok, hit: decode, ms a token, of the cold request and of the hit",
             remarks(of_experiment(samples, WORKLOAD))]
    rates = rates_of(samples)
    if rates is not None:
        lines += ["", grid(rates), ""]
    if finding := workload_finding(samples):
        lines.append(finding_lines(finding))
    text = "\n".join(line for line in lines if line is not None)
    return text.replace("\n\n\n", "\n\n")


def grid(rates: Rates) -> str:
    """The share of the whole time that a full hit saves, by prompt and output."""
    longest = min(rates.prefill.longest, rates.decode.deepest)
    prompts = sorted({max(2, _round_size(step * longest)) for step in GRID_STEPS})
    rows = []
    for prompt in prompts:
        cells = []
        for output in GRID_OUTPUTS:
            cold, hit = (rates.seconds(load(prompt, cached, output)) for cached in (0, prompt))
            far = "*" if is_far(rates, prompt, output) else " "
            cells.append((percent_cell(1 - hit / cold) if 0 < hit <= cold else UNKNOWN) + far)
        rows.append([count(prompt), *cells])
    headers = ["input", *(f"{count(output)} out " for output in GRID_OUTPUTS)]
    return (f"a full hit saves, of the whole time (predicted)\n{table(headers, rows)}\n"
            f"* beyond what was measured: {measured_range(rates)}")


def _round_size(value: float) -> int:
    """Two figures: 1,882 is 1,900."""
    return int(float(f"{value:.2g}"))


def restore_table(samples: Sequence[Sample]) -> str:
    """From where a prefix comes back, and what of it was recomputed; and the pauses."""
    lines = []
    lengths = by_way(samples, RECOMPUTE)
    if lengths:
        title = ("restore: the first token, ms, of a prompt that was seen before\n"
                 "         tokens: recomputed for it; disk: reading the slot back included")
        headers = ["input", "recomputed", "slot", "tokens", "host memory", "tokens", "disk",
                   "tokens", "n"]
        rows = []
        for length, cold in lengths.items():
            row = [count(median(cold, lambda s: s.prompt_tokens)), ms(median(cold, waited_s))]
            for way in (SLOT, HOST, DISK):
                found = by_way(samples, way).get(length, [])
                row += [ms(median(found, waited_s)), count(median(found, recomputed_tokens))]
            rows.append([*row, str(len(by_way(samples, SLOT).get(length, [])))])
        lines += [title, table(headers, rows)]
    if pauses := pause_rows(samples):
        told = {True: "yes", False: "no", None: UNKNOWN}
        lines += ["restore: the same prompt again after a pause",
                  table(["pause s", "really", "input", "cached", "TTFT ms", "first ms", "found"],
                        [[count(p.asked_s), significant(p.really_s), count(p.prompt_tokens),
                          count(p.cached_tokens), ms(p.ttft_s), ms(p.first_ttft_s),
                          told[p.lived]] for p in pauses])]
    lines.append(remarks(of_experiment(samples, RESTORE)))
    lines += map(finding_lines, restore_findings(samples))
    return "\n".join(line for line in lines if line)
