"""Shared by tests: FAILED, FULL, run_of."""

from __future__ import annotations

from dataclasses import replace

from blank_sample import blank
from request_timing.records.run import Run
from request_timing.records.sample import TEXT, Connection, Failure, Sample, ServerTimings

FULL = blank(
    arrivals_s=(0.5, 0.6), arrival_kinds=(TEXT, TEXT), first_byte_s=0.4, prompt_tokens=10,
    cached_tokens=0, output_tokens=2, finish_reason="limit",
    server=ServerTimings(cache_n=0, prompt_n=10, prompt_ms=400.0, predicted_n=2,
                         predicted_ms=100.0, id_slot=0),
    connection=Connection(new=True, connect_s=0.001), notes=("a note",),
)
FAILED = replace(FULL, arrivals_s=(), arrival_kinds=(), server=None, connection=None,
                 error=Failure(kind="http", message="HTTP 500: no", http_status=500))


def run_of(*samples: Sample) -> Run:
    return Run(tool="local_cache", command=["local_cache.py"], created_at="2026-01-01T00:00:00",
               environment={}, endpoint={"model": "tiny", "url": "http://x"}, settings={"seed": 0},
               samples=list(samples))
