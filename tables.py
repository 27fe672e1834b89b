"""A run as text: tables and plain lines for an 80-column terminal.

Pure functions from a Run to strings; only the command lines print. Milliseconds appear here and
nowhere else. "-" is unknown, 0 is zero.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Sequence

from common import Line, ratio, spread
from lab import spent_tokens
from record import Run
from sample import Sample
from summary import (
    CACHE,
    FIGURES,
    Figure,
    arms,
    decode_s,
    decode_s_per_token,
    line,
    median,
    of,
    prefill_s,
    prefill_s_per_token,
    recomputed_tokens,
    total,
    valid,
)
from verdict import Verdict

UNKNOWN = "-"
CACHE_TITLE = (
    "cache: one long context over several turns",
    "       append: new text at the end; prepend: the time now in front of it all;",
    "       controls: repeat, one prompt over and over; cold, a new beginning each",
)
COLUMNS = 79
MOST_TURNS = 12
LINE_REQUESTS = 3

ttft_s, total_s, inter_token_s = (
    FIGURES[name] for name in ("ttft_s", "total_s", "inter_token_s"))


def render(run: Run) -> str:
    """The whole run: a heading, a table an experiment, and what was left out or failed."""
    native = run.tool == "local_cache"
    parts = [heading(run)]
    for experiment, draw in (("length", length_table), ("output", output_table),
                             (CACHE, cache_table)):
        samples = of(run.samples, experiment)
        if samples:
            parts.append(draw(samples, native=native))
            parts.extend(block for block in [remarks(samples)] if block)
    if judged := run.verdicts():
        parts.append("\n".join(["verdict", *map(verdict_lines, judged)]))
    if run.settings.get("until_sure"):
        parts.append(effort_line(of(run.samples, CACHE)))
    if run.notes:
        parts.append("\n".join(run.notes))
    return "\n\n".join(parts)


def heading(run: Run) -> str:
    """Which server and model, when, and whether the run was finished."""
    end = run.endpoint
    lines = [f"{run.tool}: {end.get('model', UNKNOWN)}",
             f"{end.get('url', UNKNOWN)}, {run.created_at[:19].replace('T', ' ')} UTC"]
    if not run.complete:
        lines.append("INCOMPLETE: this run was stopped before its end")
    return "\n".join(lines)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Right-aligned columns, two spaces apart, each as wide as its widest cell."""
    cells = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def count(value: float | None) -> str:
    """A count of tokens: 51,222."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds: 14,210, 183, 5.46."""
    return UNKNOWN if seconds is None else figures(seconds * 1000)


def figures(value: float) -> str:
    """Three figures, or all of those before the decimal point: 14,210, 18.0, 0.130, 0."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def per_s(rate: float | None) -> str:
    """Tokens per second."""
    return UNKNOWN if rate is None else figures(rate)


def times(value: float | None) -> str:
    """A ratio: 6.00x."""
    return UNKNOWN if value is None else f"{figures(value)}x"


def quartiles_ms(samples: Iterable[Sample], figure: Figure) -> str:
    """The middle half of the samples in milliseconds, where there are two or more."""
    values = spread(map(figure, samples))
    return UNKNOWN if values is None or values.n < 2 else f"{ms(values.q1)}..{ms(values.q3)}"


def inverse(value: float | None) -> float | None:
    """1 / value: seconds a token to tokens a second."""
    return ratio(1.0, value)


def length_table(samples: Sequence[Sample], *, native: bool) -> str:
    """Prefill, or TTFT where only that is seen, against input length."""
    title = "length: time to read the input (prefill), every prompt cold"
    if native:
        headers = ["asked", "input", "reused", "prefill ms", "quartiles", "tokens/s", "TTFT ms",
                   "n"]
    else:
        headers = ["asked", "input", "cached", "TTFT ms", "quartiles", "total ms", "n"]
    rows = []
    for arm in arms(samples):
        chosen = valid(samples, arm)
        tokens = [count(int(arm)), count(median(chosen, lambda s: s.prompt_tokens)),
                  count(median(chosen, lambda s: s.cached_tokens))]
        if native:
            each = median(chosen, prefill_s_per_token)
            measured = [ms(median(chosen, prefill_s)), quartiles_ms(chosen, prefill_s),
                       per_s(inverse(each)), ms(median(chosen, ttft_s))]
        else:
            measured = [ms(median(chosen, ttft_s)), quartiles_ms(chosen, ttft_s),
                       ms(median(chosen, total_s))]
        rows.append([*tokens, *measured, str(len(chosen))])
    figure = prefill_s if native else ttft_s
    fitted = line(samples, lambda s: s.prompt_tokens, figure)
    what = "prefill" if native else "TTFT"
    return _join(title, table(headers, rows), slope_line(
        fitted, f"{what} grows by", "1,000 input tokens", 1000))


def output_table(samples: Sequence[Sample], *, native: bool) -> str:
    """Decode time against output length; a size that the answer fell short of says so."""
    title = "output: time to write the output (decode), one short input"
    decode = "decode ms" if native else "TTFT ms"
    headers = ["asked", "written", decode, "ms/token", "tokens/s", "total ms", "quartiles", "n",
               "short"]
    per_token = decode_s_per_token if native else inter_token_s
    rows = []
    for arm in arms(samples):
        chosen = valid(samples, arm)
        written = median(chosen, lambda s: s.output_tokens)
        each = median(chosen, per_token)
        short = sum(s.output_tokens is not None and s.output_tokens < s.asked_output_tokens
                    for s in chosen)
        rows.append([
            count(int(arm)), count(written), ms(median(chosen, decode_s if native else ttft_s)),
            ms(each), per_s(inverse(each)), ms(median(chosen, total_s)),
            quartiles_ms(chosen, total_s), str(len(chosen)),
            f"{short} of {len(chosen)}" if short else "",
        ])
    legend = "short: answers that stopped before the length asked for"
    if not any(row[-1] for row in rows):
        headers, rows, legend = headers[:-1], [row[:-1] for row in rows], ""
    fitted = line(samples, lambda s: s.output_tokens, total_s)
    return _join(title, table(headers, rows), legend, chunk_line(samples), slope_line(
        fitted, "total time grows by", "output token", 1))


def cache_table(samples: Sequence[Sample], *, native: bool) -> str:
    """A row a turn, then what each arm cost in all and how they compare."""
    title = "\n".join(CACHE_TITLE)
    if native:
        headers = ["arm", "turn", "input", "recomputed", "reused", "prefill ms", "decode ms/token"]
    else:
        headers = ["arm", "turn", "input", "cached", "TTFT ms", "written", "total ms",
                   "inter-token ms"]
    rows = []
    last = max(s.turn for s in samples)
    for arm in arms(samples):
        for sample in (s for s in samples if s.arm == arm and s.turn <= MOST_TURNS):
            cells = [arm, str(sample.turn), count(sample.prompt_tokens)]
            if native:
                cells += [count(recomputed_tokens(sample)), count(sample.cached_tokens),
                          ms(prefill_s(sample)), ms(decode_s_per_token(sample))]
            else:
                cells += [count(sample.cached_tokens), ms(sample.ttft_s),
                          count(sample.output_tokens), ms(sample.total_s),
                          ms(sample.inter_token_s)]
            rows.append(cells)
    more = f"the turns from {MOST_TURNS + 1} to {last} are in the JSON" if last > MOST_TURNS else ""
    return _join(title, table(headers, rows), more, chunk_line(samples),
                 "\n" + (totals(samples) if native else medians(samples)))


def totals(samples: Sequence[Sample]) -> str:
    """What each arm recomputed over all turns, by the server's counts, and the ratio."""
    figures: tuple[Figure, ...] = (recomputed_tokens, lambda s: s.prompt_tokens, prefill_s)
    sums = {arm: [total(valid(samples, arm), figure) for figure in figures]
            for arm in arms(samples)}
    rows = [
        [arm, str(len(valid(samples, arm))), count(recomputed), count(sent), ms(seconds)]
        for arm, (recomputed, sent, seconds) in sums.items()
    ]
    # Sums compare only over the same turns.
    turns = [{s.turn for s in valid(samples, arm)} for arm in ("append", "prepend")]
    if turns[0] == turns[1] != set():
        append, prepend = sums["append"], sums["prepend"]
        rows.append(["prepend/append", "", times(ratio(prepend[0], append[0])), "",
                     times(ratio(prepend[2], append[2]))])
    return table(["all turns", "n", "recomputed", "of input tokens", "prefill ms"], rows)


def medians(samples: Sequence[Sample]) -> str:
    """The median from turn 2 of each arm, and the ratio of the arms."""
    figures = (ttft_s, inter_token_s)
    rows = []
    middle: dict[str, list[float | None]] = {}
    for arm in arms(samples):
        chosen = valid(samples, arm, from_turn=2)
        middle[arm] = [median(chosen, figure) for figure in figures]
        rows.append([arm, str(len(chosen)), count(median(chosen, lambda s: s.cached_tokens)),
                     ms(middle[arm][0]), quartiles_ms(chosen, ttft_s), ms(middle[arm][1])])
    if "append" in middle and "prepend" in middle:
        append, prepend = middle["append"], middle["prepend"]
        rows.append(["prepend/append", "", "", times(ratio(prepend[0], append[0])), "",
                     times(ratio(prepend[1], append[1]))])
    return table(["median from turn 2", "n", "cached", "TTFT ms", "quartiles", "inter-token ms"],
                 rows)


def chunk_line(samples: Sequence[Sample]) -> str:
    """Where no tokens were reported, the gap between pieces, called what it is."""
    chosen = [s for s in samples if s.counts]
    if any(s.output_tokens is not None for s in chosen):
        return ""
    gap = median(chosen, lambda s: s.inter_chunk_s)
    return "" if gap is None else (
        f"no output tokens were reported: inter-chunk latency {ms(gap)} ms (a chunk may hold "
        "several tokens)")


def slope_line(fitted: Line | None, what: str, unit: str, scale: float) -> str:
    """The slope of a least-squares line, for people; nothing where the noise is all there is."""
    if fitted is None or fitted.n < LINE_REQUESTS or fitted.slope <= 0:
        return ""
    return (f"{what} {ms(fitted.slope * scale)} ms per {unit} "
            f"(least squares, {fitted.n} requests)")


def verdict_lines(verdict: Verdict) -> str:
    """A verdict in plain lines: the arm and its code, then why, wrapped for a terminal."""
    first, *rest = verdict.text.splitlines()
    lines = textwrap.wrap(f"{verdict.arm}: {verdict.code.upper().replace('_', ' ')}. {first}",
                          COLUMNS, subsequent_indent="  ")
    for text in rest:
        lines += textwrap.wrap(text, COLUMNS, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def effort_line(samples: Sequence[Sample]) -> str:
    """What --until-sure took."""
    turns = max((s.turn for s in samples), default=0)
    tokens = sum(map(spent_tokens, samples))
    return f"this took {turns} turns, {len(samples)} requests and {tokens:,} input tokens"


def remarks(samples: Sequence[Sample]) -> str:
    """A line for each sample that failed or carries a note, a kind only once."""
    lines: dict[str, int] = {}
    for sample in samples:
        said = list(sample.notes)
        if sample.error is not None:
            said.append(f"failed: {sample.error.message}")
        for text in said:
            key = f"{sample.experiment} {sample.arm}: {text}"
            lines[key] = lines.get(key, 0) + 1
    told = [f"{text}{f' ({n} times)' if n > 1 else ''}" for text, n in lines.items()]
    return "\n".join([*told, *inseparable(samples)])


def inseparable(samples: Sequence[Sample]) -> list[str]:
    """What the clock could not tell apart, in lines; connections of a local server go unsaid."""
    chosen = [s for s in samples if s.counts and s.server is None]
    lines = []
    if bursts := sum(s.came_in_bursts for s in chosen):
        lines.append(f"{bursts} of {len(chosen)} streams came in bursts (something buffers them): "
                     "TTFT holds\n  part of the answer, and no decode rate can be given")
    if hidden := [s.hidden_thinking_tokens for s in chosen if s.hidden_thinking_tokens]:
        lines.append(f"{len(hidden)} of {len(chosen)} answers hold thinking that was not streamed "
                     f"(median {statistics.median(hidden):,.0f}\n  tokens): TTFT is not prefill "
                     "alone")
    opened = [s.connection for s in chosen if s.connection is not None and s.connection.new]
    if (opened and len(opened) < len(chosen)) or any(c.tls_s for c in opened):
        cost = statistics.median((c.connect_s or 0) + (c.tls_s or 0) for c in opened)
        lines.append(f"{len(opened)} of {len(chosen)} requests opened a connection "
                     f"({ms(cost)} ms, before the clock starts)")
    return lines


def _join(*blocks: str) -> str:
    return "\n".join(block for block in blocks if block)
