"""What a reader of the tables has to know: samples left out, and what the clock could not tell.

Pure functions from samples to lines.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import textwrap
from collections.abc import Sequence

from request_timing.findings.measures import median
from request_timing.formats import ms
from request_timing.records.run import Run
from request_timing.records.sample import BROKE, Sample

COLUMNS = 79
# Seconds of a request that neither prefill nor decode explain: so many, and so large a share.
UNEXPLAINED_S, UNEXPLAINED_SHARE = 0.5, 0.5
# A prompt that is counted as less than this share of what it should have was cut by the server.
WHOLE_SHARE = 0.7


def text_columns() -> int:
    """The width that prose is wrapped to: the terminal's, if that is narrower than a page."""
    if not sys.stdout.isatty():
        return COLUMNS
    return min(COLUMNS, shutil.get_terminal_size().columns)


def wrapped(text: str, columns: int) -> str:
    """A line, or as many as it takes; a line that is short enough stays as it is."""
    return "\n".join(textwrap.wrap(text, columns, subsequent_indent="  ",
                                   break_on_hyphens=False))


def lines_of(text: str) -> list[str]:
    """A text as lines of a page, the second and later ones indented."""
    return textwrap.wrap(text, COLUMNS, subsequent_indent="  ")


def remarks(samples: Sequence[Sample], columns: int = COLUMNS) -> str:
    """A line for each sample that failed or carries a note, a kind only once."""
    lines: dict[str, int] = {}
    for sample in samples:
        said = [note for note in sample.notes if not note.startswith(BROKE)]
        if sample.error is not None:
            said.append(f"failed: {sample.error.message}")
        for text in said:
            key = f"{sample.experiment} {sample.arm}: {text}"
            lines[key] = lines.get(key, 0) + 1
    told = [f"{text}{f' ({n} times)' if n > 1 else ''}" for text, n in lines.items()]
    return "\n".join(wrapped(text, columns) for text in (
        *told, *inseparable(samples), *unexplained(samples)))


def inseparable(samples: Sequence[Sample]) -> list[str]:
    """What the clock could not tell apart, in lines; connections of a local server go unsaid."""
    chosen = [s for s in samples if s.counts and s.server is None]
    lines = []
    if bursts := sum(s.came_in_bursts for s in chosen):
        lines.append(f"{bursts} of {len(chosen)} streams came in bursts (something buffers them): "
                     "TTFT holds part of the answer, and no decode rate can be given")
    if hidden := [s.hidden_thinking_tokens for s in chosen if s.hidden_thinking_tokens]:
        lines.append(f"{len(hidden)} of {len(chosen)} answers hold thinking that was not streamed "
                     f"(median {statistics.median(hidden):,.0f} tokens): TTFT is not prefill alone")
    opened = [s.connection for s in chosen if s.connection is not None and s.connection.new]
    if (opened and len(opened) < len(chosen)) or any(c.tls_s for c in opened):
        cost = statistics.median((c.connect_s or 0) + (c.tls_s or 0) for c in opened)
        lines.append(f"{len(opened)} of {len(chosen)} requests opened a connection "
                     f"({ms(cost)} ms, before the clock starts)")
    return lines


def unexplained(samples: Sequence[Sample]) -> list[str]:
    """Requests that took much longer than the server's own prefill and decode."""
    spent = [(s.total_s, (s.server.prompt_ms + s.server.predicted_ms) / 1000) for s in samples
             if s.counts and s.total_s is not None and s.server is not None
             and s.server.prompt_ms is not None and s.server.predicted_ms is not None]
    late = [total - known for total, known in spent
            if total - known > max(UNEXPLAINED_S, UNEXPLAINED_SHARE * total)]
    if not late:
        return []
    return [f"{len(late)} of {len(spent)} requests took longer than prefill and decode explain "
            f"(median {statistics.median(late):.1f} s): a queue, another client, or a model that "
            "had to be loaded"]


def cut_short(run: Run) -> list[str]:
    """Prompts that are counted as far fewer tokens than they have: the server cut them."""
    of_filler = run.endpoint.get("calibrated_tokens_per_char")
    of_document = run.endpoint.get("document_tokens_per_char")
    has_document = run.settings.get("document") is not None
    cut = []
    for sample in run.samples:
        per_char = of_document if has_document and sample.experiment == "cache" else of_filler
        if (per_char and sample.prompt_tokens and sample.error is None
                and sample.experiment != "replay"):
            expected = run.endpoint.get("head_tokens", 0) + sample.prompt_chars * per_char
            if sample.prompt_tokens < WHOLE_SHARE * expected:
                cut.append((sample.prompt_tokens, expected))
    if not cut:
        return []
    reported, expected = cut[0]
    return [f"{len(cut)} of {len(run.samples)} prompts are counted as far fewer tokens than they "
            f"have (the first as {reported:,} of about {expected:,.0f}): the server seems to cut "
            "them, and times are not of the whole"]


def chunk_line(samples: Sequence[Sample]) -> str:
    """Where no tokens were reported, the gap between pieces, called what it is."""
    chosen = [s for s in samples if s.counts]
    if any(s.output_tokens is not None for s in chosen):
        return ""
    gap = median(chosen, lambda s: s.inter_chunk_s)
    return "" if gap is None else (
        f"no output tokens were reported: inter-chunk latency {ms(gap)} ms (a chunk may hold "
        "several tokens)")
