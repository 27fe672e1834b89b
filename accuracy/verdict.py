"""The verdict from time alone, held to the server's own counts; a part of `make accuracy`.

api_timing's way of measuring runs against a real llama-server of the tiny models, whose counts are
the truth. Each run is then judged twice: as it was, and with the cached tokens withheld, as by an
endpoint that does not report them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tiny_models
from accuracy.rows import Row, show
from conftest import at, no_patience
from request_timing.experiments.basic import cache
from request_timing.experiments.calibration import calibrate
from request_timing.experiments.lab import Lab, Settings
from request_timing.findings.verdict import HIT, verdicts
from request_timing.servers import spawn
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from truth_server import truth

RUNS = 20
CONTEXT_TOKENS = 20_000
TURNS = 6
AGREE_BAR = 19


# What the server does, and the verdict on append and on prepend that only a clock can reach.
SILENT: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "no cache": ({"cache": "off"}, ("no_reuse_here", "undecided"), ("no_reuse_here", "undecided")),
    "prefix cache": ({"cache": "prefix"}, ("hit",), ("no_hit",)),
    "prefix cache in blocks": ({"cache": "prefix", "block_tokens": 64}, ("hit",), ("no_hit",)),
    "delayed write": ({"cache": "prefix", "write_delay_requests": 7}, ("hit",), ("no_hit",)),
    # A minimum, so that the few letters that every prompt shares are no hit.
    "faster decode on a hit": (
        {"cache": "prefix", "minimum_tokens": 64, "decode_factor_on_hit": 0.4}, ("not_cache",),
        ("no_hit",)),
    "whole answers": ({"cache": "response"}, ("contradiction",), ("no_hit",)),
}
TRUTH: dict[str, Any] = {
    "prefill_s_per_token": 20e-6, "decode_s_per_token": 0.001, "fixed_s": 0.005,
    "noise_sigma": 0.1, "report_cached": False}


def silent_rows() -> Iterator[Row]:
    """The verdict on servers of known truth that report nothing, from their times."""
    settings = Settings(experiments=("cache",), lengths=(1,), outputs=(1,), context=4000, turns=8,
                        repeats=1, seed=3)
    for name, (server, append, prepend) in SILENT.items():
        with truth(**TRUTH | server) as known:
            endpoint = OpenAIEndpoint(at(f"{known.url}/v1"), key=None, model="truth", provider=None)
            calibrate(endpoint, (20, 200), no_patience())
            found = verdicts(list(cache(Lab(backend=endpoint, settings=settings))))
        for verdict, allowed in zip(found, (append, prepend), strict=True):
            yield Row(figure=f"{name}, {verdict.arm}: {verdict.code}", truth=None, measured=None,
                      bar=" or ".join(allowed), held=verdict.code in allowed)


def rows(runs: int = RUNS) -> Iterator[Row]:
    """How often time alone reached the counts' verdict, and whether prepend ever was a hit."""
    agreed, prepend_hits = {"append": 0, "prepend": 0}, 0
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny-dense.gguf"
        tiny_models.write_dense(model)
        with spawn.serve(str(model), CONTEXT_TOKENS * 3 // 2) as url:
            endpoint = OpenAIEndpoint(at(f"{url}/v1"), key=None, model=None, provider=None)
            calibrate(endpoint, (20, 1000), no_patience())
            for seed in range(runs):
                settings = Settings(
                    experiments=("cache",), lengths=(1,), outputs=(1,), context=CONTEXT_TOKENS,
                    turns=TURNS, repeats=1, seed=seed)
                samples = list(cache(Lab(backend=endpoint, settings=settings)))
                withheld = [replace(sample, cached_tokens=None) for sample in samples]
                for counted, timed in zip(verdicts(samples), verdicts(withheld), strict=True):
                    agreed[counted.arm] += counted.code == timed.code
                    prepend_hits += timed.arm == "prepend" and timed.code == HIT
                    if counted.code != timed.code:
                        print(f"seed {seed} {counted.arm}: {counted.code} by count, "
                              f"{timed.code} by time: {timed.text}", file=sys.stderr)
    bar = AGREE_BAR * runs // RUNS
    for arm, times in agreed.items():
        yield Row(figure=f"verdict by time = by count, {arm}, runs", truth=runs, measured=times,
                  bar=f">= {bar}", held=times >= bar)
    yield Row(figure="hit claimed in the prepend arm, runs", truth=0, measured=prepend_hits,
              bar="0", held=prepend_hits == 0)


if __name__ == "__main__":
    sys.exit(show([*silent_rows(), *rows(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)]))
