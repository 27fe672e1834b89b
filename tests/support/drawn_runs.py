"""Runs made by functions, for the tests of the pictures: any number of turns, any fault."""

from __future__ import annotations

from dataclasses import replace

from blank_sample import blank
from request_timing.records.run import Run
from request_timing.records.sample import TEXT, Failure, Sample
from run_samples import run_of
from table_samples import NATIVE, native

FAILED = Failure(kind="http", message="HTTP 500: no", http_status=500)


def cache_samples(turns: int) -> list[Sample]:
    """append computes 18 tokens from turn 2 on, prepend all of its 51,000 and some."""
    samples = []
    for turn in range(1, turns + 1):
        whole = 51_000 + 20 * turn
        computed = whole if turn == 1 else 18
        samples += [
            native("cache", "append", turn, reused=whole - computed, computed=computed,
                   prompt_ms=14_000 if turn == 1 else 40 + turn),
            native("cache", "prepend", turn, reused=20, computed=whole, prompt_ms=14_000 + turn),
            native("cache", "cold", turn, reused=0, computed=whole, prompt_ms=14_000),
        ]
    return samples


def local(turns: int) -> Run:
    """A complete run of local_cache with all experiments."""
    run = run_of(*NATIVE[:5], *cache_samples(turns))
    run.complete = True
    return run


def cloud(turns: int) -> Run:
    """The same as api_timing sees it."""
    run = local(turns)
    run.tool, run.samples = "api_timing", [replace(s, server=None) for s in run.samples]
    return run


def replayed(turns: int, *, seen_from_outside: bool = False) -> Run:
    """A replay: as_sent computes all but 32 tokens, what_if 62 of them; from outside also cold."""
    samples = []
    for turn in range(1, turns + 1):
        whole = 1000 + 30 * turn
        arms = {"as_sent": 32, "what_if": whole - 62} | ({"cold": 0} if seen_from_outside else {})
        for arm, reused in arms.items():
            reused = reused if turn > 1 else 0
            sample = native("cache", arm, turn, reused=reused, computed=whole - reused,
                            prompt_ms=10 * (whole - reused))
            samples.append(replace(sample, experiment="replay",
                                   server=None if seen_from_outside else sample.server))
    run = run_of(*samples)
    run.complete, run.tool = True, "api_timing" if seen_from_outside else "local_cache"
    return run


def outside(turns: int) -> Run:
    """The replay as api_timing sees it."""
    return replayed(turns, seen_from_outside=True)


def only(run: Run, *experiments: str) -> Run:
    """The run without its other experiments."""
    run.samples = [s for s in run.samples if s.experiment in experiments]
    return run


def failed(sample: Sample) -> Sample:
    """The same request, as one that failed."""
    return replace(sample, arrivals_s=(), arrival_kinds=(), server=None, cached_tokens=None,
                   output_tokens=None, error=FAILED)


def uncounted(sample: Sample) -> Sample:
    """The same request at an endpoint that reports no usage."""
    return replace(sample, server=None, prompt_tokens=None, cached_tokens=None,
                   output_tokens=None, first_piece_tokens=None)


def sized(experiment: str, size: int, *, tokens: int, seconds: float) -> Sample:
    """A request of *length* or *output* with one figure each way."""
    return blank(experiment=experiment, arm=str(size), arrivals_s=(seconds / 2, seconds),
                 arrival_kinds=(TEXT, TEXT), prompt_tokens=tokens, output_tokens=tokens,
                 cached_tokens=0, asked_output_tokens=size)
