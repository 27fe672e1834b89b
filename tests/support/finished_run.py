"""Shared by tests: finished."""

from __future__ import annotations

from request_timing.records.run import Run
from request_timing.records.sample import Sample
from run_samples import run_of


def finished(*samples: Sample, **endpoint: str) -> Run:
    run = run_of(*samples)
    run.complete = True
    run.endpoint |= endpoint
    run.environment = {"python": "3.11.7", "cpus": 2}
    return run
