"""Shared by tests: NATIVE, native."""

from __future__ import annotations

from blank_sample import blank
from request_timing.records.sample import TEXT, Sample, ServerTimings


def native(experiment: str, arm: str, turn: int, *, reused: int, computed: int, prompt_ms: float,
           asked: int = 5, written: int = 5) -> Sample:
    """A llama-server's sample: 10 ms a token."""
    return blank(
        experiment=experiment, arm=arm, turn=turn, asked_output_tokens=asked,
        arrivals_s=(prompt_ms / 1000, prompt_ms / 1000 + 0.01 * (written - 1)),
        arrival_kinds=(TEXT, TEXT), first_piece_tokens=1, prompt_tokens=reused + computed,
        cached_tokens=reused, output_tokens=written,
        server=ServerTimings(cache_n=reused, prompt_n=computed, prompt_ms=prompt_ms,
                             predicted_n=written, predicted_ms=10.0 * (written - 1)))


NATIVE = [
    native("length", "1000", 1, reused=0, computed=1000, prompt_ms=500),
    native("length", "1000", 1, reused=0, computed=1000, prompt_ms=600),
    native("length", "2000", 1, reused=0, computed=2000, prompt_ms=1100),
    native("output", "50", 1, reused=0, computed=20, prompt_ms=10, asked=50, written=50),
    native("output", "100", 1, reused=0, computed=20, prompt_ms=10, asked=100, written=60),
    native("cache", "append", 1, reused=0, computed=51_000, prompt_ms=14_000),
    native("cache", "append", 2, reused=51_004, computed=18, prompt_ms=40),
    native("cache", "prepend", 1, reused=0, computed=51_000, prompt_ms=14_000),
    native("cache", "prepend", 2, reused=20, computed=51_002, prompt_ms=14_080),
]
