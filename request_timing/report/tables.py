"""A run as text: tables and plain lines for an 80-column terminal.

Pure functions from a Run to strings; only the command lines print. Seconds become milliseconds
here. "-" is unknown, 0 is zero.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from request_timing.errors import one_line
from request_timing.findings.measures import (
    FIGURES,
    Figure,
    arms,
    decode_s,
    decode_s_per_token,
    line,
    median,
    prefill_s,
    prefill_s_per_token,
    recomputed_tokens,
    spent_tokens,
    total,
    valid,
)
from request_timing.findings.verdict import Verdict
from request_timing.formats import UNKNOWN, count, ms, significant
from request_timing.records.run import Run
from request_timing.records.sample import Sample
from request_timing.report.remarks import COLUMNS, chunk_line
from request_timing.stats.compare import ratio, spread
from request_timing.stats.fits import Line

CACHE_TITLE = (
    "cache: one long context over several turns",
    "       append: new text at the end; prepend: the time now in front of it all;",
    "       controls: repeat, one prompt over and over; cold, a new beginning each",
)
MOST_TURNS = 12
LINE_REQUESTS = 3

ttft_s, total_s, inter_token_s = (
    FIGURES[name] for name in ("ttft_s", "total_s", "inter_token_s"))


def heading(run: Run) -> str:
    """Which server and model, when, and whether the run was finished."""
    end = run.endpoint
    model, url = (one_line(end.get(name, UNKNOWN)) for name in ("model", "url"))
    lines = [f"{one_line(run.tool)}: {model}",
             f"{url}, {one_line(run.created_at[:19].replace('T', ' '))} UTC"]
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


def per_s(rate: float | None) -> str:
    """Tokens per second."""
    return UNKNOWN if rate is None else significant(rate)


def times(value: float | None) -> str:
    """A ratio: 6.00x."""
    return UNKNOWN if value is None else f"{significant(value)}x"


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
    significant: tuple[Figure, ...] = (recomputed_tokens, lambda s: s.prompt_tokens, prefill_s)
    sums = {arm: [total(valid(samples, arm), figure) for figure in significant]
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
    significant = (ttft_s, inter_token_s)
    rows = []
    middle: dict[str, list[float | None]] = {}
    for arm in arms(samples):
        chosen = valid(samples, arm, from_turn=2)
        middle[arm] = [median(chosen, figure) for figure in significant]
        rows.append([arm, str(len(chosen)), count(median(chosen, lambda s: s.cached_tokens)),
                     ms(middle[arm][0]), quartiles_ms(chosen, ttft_s), ms(middle[arm][1])])
    if "append" in middle and "prepend" in middle:
        append, prepend = middle["append"], middle["prepend"]
        rows.append(["prepend/append", "", "", times(ratio(prepend[0], append[0])), "",
                     times(ratio(prepend[1], append[1]))])
    return table(["median from turn 2", "n", "cached", "TTFT ms", "quartiles", "inter-token ms"],
                 rows)


def slope_line(fitted: Line | None, what: str, unit: str, scale: float) -> str:
    """The slope of a line, for people; nothing where the noise is all there is."""
    if fitted is None or fitted.n < LINE_REQUESTS or fitted.slope <= 0:
        return ""
    return (f"{what} {ms(fitted.slope * scale)} ms per {unit} "
            f"(median slope, {fitted.n} requests)")


def verdict_lines(verdict: Verdict, columns: int = COLUMNS) -> str:
    """A verdict in plain lines: the arm and its code, then why, wrapped for a terminal."""
    first, *rest = verdict.text.splitlines()
    lines = textwrap.wrap(f"{verdict.arm_in_words}: {verdict.code_in_words}. {first}",
                          columns, subsequent_indent="  ")
    for text in rest:
        lines += textwrap.wrap(text, columns, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def effort_line(samples: Sequence[Sample]) -> str:
    """What --until-sure took."""
    turns = max((s.turn for s in samples), default=0)
    tokens = sum(map(spent_tokens, samples))
    return f"this took {turns} turns, {len(samples)} requests and {tokens:,} input tokens"


def _join(*blocks: str) -> str:
    return "\n".join(block for block in blocks if block)
