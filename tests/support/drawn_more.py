"""Runs with ladder, position, minimum, depth, workload and restore, for the tests of the pictures.

Of simulated servers of known truth and of samples made by hand: no time passes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drawn_runs import failed, local
from physics_samples import deep, sweep, worked
from request_timing.experiments.minimum import minimum
from request_timing.experiments.reuse import ladder, position
from request_timing.records.run import Run
from request_timing.records.sample import Sample
from restore_samples import paused, restored
from simulated import Simulated, lab_of

EXPERIMENTS = ["ladder", "position", "minimum", "depth", "workload", "restore"]
SHAPES = ((40_000, 200), (2_000, 4_000), (9_000, 1_000), (4_000, 2_000))


def shaped(*, native: bool = True, **server: Any) -> list[Sample]:
    """Ladder, position and minimum on a server of these constants."""
    known = {"cache": "prefix", "prefill_s_per_token": 1e-4, "decode_s_per_token": 0.001} | server
    return [s for experiment in (ladder, position, minimum)
            for s in experiment(lab_of(Simulated(native=native, **known), max_tokens=60_000))]


def timed(**known: Any) -> list[Sample]:
    """Length, depth and workload by known rates; all three ways of restore, and pauses."""
    return [*sweep(1_000, 8_000, 40_000), *deep(0, 1_000, 4_000, 16_000, 48_000, **known),
            *worked(*SHAPES, **known), *ways(), *paused(0, 10, 60, 600, until=60)]


def ways() -> list[Sample]:
    """Prompts of 100 and 800 tokens, back in every way."""
    return [s for n in (100, 800, 6_400) for s in restored(n, n, 2, 5 + n / 100, 20 + n / 50)]


def everything(**server: Any) -> Run:
    """A complete run with all of these and the first three experiments."""
    run = local(3)
    run.samples += [*shaped(**server), *timed()]
    return run


def six(**server: Any) -> Run:
    """The same with these experiments alone."""
    run = everything(**server)
    run.samples = [s for s in run.samples if s.experiment in EXPERIMENTS]
    return run


def unknown_to_all() -> Run:
    """An incomplete run in which no server counts and every other request failed."""
    run = six(native=False, report_cached=False, noise_sigma=0.1)
    run.complete = False
    run.samples = [failed(s) if n % 2 else replace(s, cached_tokens=None, server=None)
                   for n, s in enumerate(run.samples)]
    return run
