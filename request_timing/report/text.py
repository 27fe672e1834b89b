"""A run as text: a heading, a table per experiment, the verdict, and what was left out."""

from __future__ import annotations

from request_timing.findings.derive import run_verdicts
from request_timing.findings.measures import (
    CACHE,
    of_experiment,
)
from request_timing.records.run import Run
from request_timing.report.remarks import COLUMNS, cut_short, remarks, wrapped
from request_timing.report.replay_tables import replay_table
from request_timing.report.tables import (
    cache_table,
    effort_line,
    heading,
    length_table,
    output_table,
    verdict_lines,
)


def render(run: Run, columns: int = COLUMNS) -> str:
    """The whole run: a heading, a table an experiment, and what was left out or failed.

    Prose is wrapped to `columns`; a table is as wide as its figures.
    """
    native = run.tool == "local_cache"
    parts = [heading(run)]
    for experiment, draw in (("length", length_table), ("output", output_table),
                             (CACHE, cache_table), ("replay", replay_table)):
        samples = of_experiment(run.samples, experiment)
        if samples:
            parts.append(draw(samples, native=native))
            parts.extend(block for block in [remarks(samples, columns)] if block)
    from request_timing.report import (
        reuse_tables,
        savings_tables,  # here, since they draw with this module
    )

    for experiment, text in reuse_tables.blocks(run.samples, native=native):
        parts.extend(block for block in (
            text, remarks(of_experiment(run.samples, experiment), columns)) if block)
    if judged := run_verdicts(run):
        parts.append("\n".join(["verdict", *(verdict_lines(v, columns) for v in judged)]))
    if run.settings.get("until_sure"):
        parts.append(effort_line(of_experiment(run.samples, CACHE)))
    parts.extend(savings_tables.blocks(run.samples, run.settings))
    if told := [*run.notes, *cut_short(run)]:
        parts.append("\n".join(wrapped(text, columns) for text in told))
    return "\n\n".join(parts)
