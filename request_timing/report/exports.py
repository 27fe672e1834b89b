"""A run for other programs and places: CSV of its samples, Markdown for an issue.

Pure functions that return text. The JSON is that of `findings.derive.to_text`, described by
records/run.schema.json.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from request_timing.findings.derive import run_verdicts
from request_timing.findings.measures import recomputed_tokens
from request_timing.records.run import Run
from request_timing.records.sample import Sample
from request_timing.report.bill import of_run
from request_timing.report.tables import heading
from request_timing.report.text_blocks import Table, Title, blocks, body

Cell = str | int | float | bool | None

# What a spreadsheet takes for the beginning of a formula.
_FORMULA = "=+-@"

# Name and value of each column; the unit is in the name, as in the JSON.
COLUMNS: dict[str, Callable[[Sample], Cell]] = {
    "experiment": lambda s: s.experiment,
    "arm": lambda s: s.arm,
    "turn": lambda s: s.turn,
    "repeat": lambda s: s.repeat,
    "sent_at": lambda s: s.sent_at,
    "prompt_chars": lambda s: s.prompt_chars,
    "prompt_hash": lambda s: s.prompt_hash,
    "shared_chars": lambda s: s.shared_chars,
    "shared_tokens": lambda s: s.shared_tokens,
    "asked_output_tokens": lambda s: s.asked_output_tokens,
    "pieces": lambda s: len(s.arrivals_s),
    "first_byte_s": lambda s: s.first_byte_s,
    "ttft_s": lambda s: s.ttft_s,
    "total_s": lambda s: s.total_s,
    "inter_token_s": lambda s: s.inter_token_s,
    "inter_chunk_s": lambda s: s.inter_chunk_s,
    "prompt_tokens": lambda s: s.prompt_tokens,
    "cached_tokens": lambda s: s.cached_tokens,
    "recomputed_tokens": recomputed_tokens,
    "output_tokens": lambda s: s.output_tokens,
    "reasoning_tokens": lambda s: s.reasoning_tokens,
    "first_piece_tokens": lambda s: s.first_piece_tokens,
    "finish_reason": lambda s: s.finish_reason,
    "server_reused_tokens": lambda s: getattr(s.server, "cache_n", None),
    "server_computed_tokens": lambda s: getattr(s.server, "prompt_n", None),
    "server_prompt_ms": lambda s: getattr(s.server, "prompt_ms", None),
    "server_written_tokens": lambda s: getattr(s.server, "predicted_n", None),
    "server_predicted_ms": lambda s: getattr(s.server, "predicted_ms", None),
    "server_slot": lambda s: getattr(s.server, "id_slot", None),
    "connection_new": lambda s: getattr(s.connection, "new", None),
    "connect_s": lambda s: getattr(s.connection, "connect_s", None),
    "tls_s": lambda s: getattr(s.connection, "tls_s", None),
    "counts": lambda s: s.counts,
    "error_kind": lambda s: getattr(s.error, "kind", None),
    "error_message": lambda s: getattr(s.error, "message", None),
    "http_status": lambda s: getattr(s.error, "http_status", None),
    "retry_after_s": lambda s: getattr(s.error, "retry_after_s", None),
    "notes": lambda s: "; ".join(s.notes),
}


def to_csv(run: Run) -> str:
    """One row a sample, in the order they were made, under a row of names; "\\n" ends a line.

    Unknown is empty, 0 is 0. `counts` says whether the sample may enter an average. The arrivals
    of the pieces are in the JSON alone. A text that a spreadsheet would run as a formula has a '
    in front.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(column(sample)) for column in COLUMNS.values()]
                     for sample in run.samples)
    return out.getvalue()


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.lstrip().startswith(tuple(_FORMULA)) else value
    return repr(value)


def to_markdown(run: Run) -> str:
    """A run as GitHub-flavoured Markdown, for an issue or a pull request: the verdict first, then
    the tables and the bill, then what it ran on."""
    first, *rest = heading(run).split("\n")
    out = [f"### {_text(first)}", "", *_paragraphs(rest)]
    for verdict in run_verdicts(run):
        lines = "; ".join(verdict.text.split("\n"))
        out.append(f"- **{_text(verdict.arm_in_words)}: {verdict.code_in_words}** {_text(lines)}")
    for block in [*body(run), *blocks("\n".join(of_run(run)))]:
        if isinstance(block, Table):
            out += ["", _row(block.headers), "|" + " ---: |" * len(block.headers),
                    *map(_row, block.rows), ""]
        elif isinstance(block, Title):
            out += ["", f"**{_text(block.experiment)}**: {_text(block.text)}", ""]
        else:
            out += _paragraphs([block])
    facts = ", ".join(f"{name} {value}" for name, value in run.environment.items())
    out += ["", *_paragraphs([f"{run.tool} {run.version}; {facts}", " ".join(run.command)])]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n") + "\n"


def _paragraphs(lines: Sequence[str]) -> list[str]:
    """Lines by themselves, of which none begins an item of a list or draws a rule."""
    plain = [re.sub(r"^(\d*)([-+=.)])(?=\s|[-=]|$)", r"\1\\\2", _text(line)) for line in lines]
    return [part for line in plain for part in (line, "")]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_text, cells)) + " |"


def _text(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no mention of a person."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line).replace("@", "@&#8203;")
