"""Shared by tests: LADDER, NAMES, pair."""

from __future__ import annotations

from typing import Any

from blank_sample import blank
from request_timing.records.sample import Sample

NAMES = ["ladder", "position", "minimum", "depth", "block", "workload", "restore", "pauses"]


def pair(experiment: str, arm: str, repeat: int = 1, *, shared: int, reused: int | None,
         seconds: float = 1.0, computed: int | None = None, **known: Any) -> list[Sample]:
    """A cold prompt of 1,000 tokens that took 4 s, and one that shares so many with it."""
    both: dict[str, Any] = {"experiment": experiment, "arm": arm, "repeat": repeat,
                            "prompt_tokens": 1000, "prompt_chars": 4000, "output_tokens": 2}
    return [
        blank(**both | {"turn": 1, "arrivals_s": (4.0, 4.1), "shared_tokens": 0,
                        "shared_chars": 0, "cached_tokens": None if reused is None else 0}),
        blank(**both | known | {
            "turn": 2, "arrivals_s": (seconds, seconds + 0.1), "shared_tokens": shared,
            "shared_chars": 4 * shared, "cached_tokens": reused})]


LADDER = [*pair("ladder", "repeat", shared=1000, reused=999),
          *pair("ladder", "tail_cut", shared=800, reused=512),
          *pair("ladder", "after_4", shared=900, reused=0, seconds=4.0),
          *pair("ladder", "head_changed", shared=4, reused=0, seconds=4.0)]
