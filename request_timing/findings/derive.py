"""What a record says beside its samples: summaries, verdicts and findings, all computed from them.

Nothing derived is ever read back: a corrected formula reaches old files when they are shown again.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from request_timing.findings import restore, reuse
from request_timing.findings.measures import summarise
from request_timing.findings.replay import replay_verdicts
from request_timing.findings.verdict import Verdict, verdicts
from request_timing.records.run import Run, dumps


def run_verdicts(run: Run) -> list[Verdict]:
    """The verdict on each arm of *cache* and of a replay, from the samples there are now."""
    return [*verdicts(run.samples, looks=run.settings.get("looks") or 1),
            *replay_verdicts(run.samples)]


def whole_record(run: Run) -> dict[str, Any]:
    """The record as JSON values, with everything derived computed now."""
    return run.header() | {
        "samples": [sample.to_json() for sample in run.samples],
        "summaries": summarise(run.samples),
        "verdicts": [asdict(verdict) for verdict in run_verdicts(run)],
        "findings": [*reuse.findings(run.samples), *restore.findings(run.samples, run.settings)],
    }


def to_text(run: Run) -> str:
    """The whole record as JSON, one line per sample and per summary, so that two records can be
    compared line by line."""
    blocks = []
    for name, value in whole_record(run).items():
        lines = ",\n  ".join(dumps(item) for item in value) if isinstance(value, list) else ""
        text = f"[\n  {lines}\n ]" if lines and name != "command" else dumps(value)
        blocks.append(f" {dumps(name)}: {text}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"
