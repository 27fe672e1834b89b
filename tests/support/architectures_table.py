"""Print the README's table of four architectures, from runs on the real llama-server made now.

    PYTHONPATH=. python tests/support/architectures_table.py
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tiny_models
from conftest import no_patience
from request_timing.experiments.lab import Lab, Settings
from request_timing.experiments.minimum import minimum
from request_timing.experiments.reuse import ladder
from request_timing.findings import minimum as prefix_minimum
from request_timing.findings.measures import of_experiment
from request_timing.findings.reuse import Row, rows
from request_timing.formats import UNKNOWN, count
from request_timing.records.names import LABELS, LADDER, MINIMUM
from request_timing.records.sample import Sample
from request_timing.servers import spawn
from request_timing.servers.llama_server import LlamaServer

WRITERS: dict[str, Callable[[Path], None]] = {
    "dense": tiny_models.write_dense, "sliding window": tiny_models.write_sliding_window,
    "hybrid": tiny_models.write_hybrid, "recurrent": tiny_models.write_recurrent}
CONTEXT_TOKENS = 8000  # of --context: documents of 2,000 tokens


def measured() -> dict[str, list[Sample]]:
    """*ladder* and *minimum* on each architecture, each on a server that holds nothing."""
    runs: dict[str, list[Sample]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, write in WRITERS.items():
            model = Path(folder) / "model.gguf"
            write(model)
            runs[kind] = []
            for experiment in (ladder, minimum):
                with spawn.serve(str(model), 32_768) as url:
                    runs[kind] += experiment(lab_of(url, CONTEXT_TOKENS))
    return runs


def lab_of(url: str, context: int) -> Lab:
    """A lab of the server there, with so many tokens of --context."""
    server = LlamaServer(url)
    server.wait_until_ready(print, no_patience())  # no warm-up: its prompt may share a letter
    return Lab(backend=server, settings=lab_settings(context))


def lab_settings(context: int) -> Settings:
    """The settings of `lab_of`."""
    return Settings(experiments=(), lengths=(1,), outputs=(1,), context=context, turns=1,
                    repeats=1, seed=5)


def side_by_side(runs: Iterable[tuple[str, Sequence[Sample]]]) -> str:
    """A Markdown table of what *ladder* and *minimum* found, a column a server.

    runs: the heading of each column, and the samples. A cell of *ladder* is the verdict and the
    tokens that were computed again, of those of the prompt.
    """
    named = list(runs)
    known = [{row.arm: row for row in rows(samples, LADDER)} for _, samples in named]
    lines = ["| shape | " + " | ".join(name for name, _ in named) + " |",
             "| --- |" + " --- |" * len(named)]
    for arm, label in LABELS.items():
        lines.append(f"| {label} | " + " | ".join(_cell(found.get(arm)) for found in known) + " |")
    prefixes = [prefix_minimum.found(of_experiment(samples, MINIMUM)) for _, samples in named]
    for label, name in (("shortest prefix reused", "shared"), ("and of it", "reused"),
                        ("grows in steps of", "step")):
        lines.append(f"| {label} | " + " | ".join(
            count(getattr(prefix, name, None)) for prefix in prefixes) + " |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    return UNKNOWN if row is None else (
        f"{row.code_in_words.lower()}, {count(row.recomputed_tokens)} of {count(row.input_tokens)}")


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # servers of one thread, as in the tests
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(side_by_side(measured().items()))
