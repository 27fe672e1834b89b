"""Print the README's table of four architectures, from runs on the real llama-server made now.

    PYTHONPATH=. python tests/architectures_table.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import embedded
from sample import Sample
from shapes import ladder
from shapes_minimum import minimum
from shapes_tables import side_by_side
from test_architectures import WRITERS, lab_of

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
                with embedded.serve(str(model), 32_768) as url:
                    runs[kind] += experiment(lab_of(url, CONTEXT_TOKENS))
    return runs


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # servers of one thread, as in the tests
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(side_by_side(measured().items()))
