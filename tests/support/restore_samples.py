"""Shared by tests: DEPTHS, RATED, SHAPES, SIZES, paused, restored, way."""

from __future__ import annotations

from typing import Any

from physics_samples import (
    deep,
    sample,
    sweep,
)
from request_timing.records.sample import Restored, Sample

SIZES = (250, 500, 1000, 2000, 4000)
DEPTHS = (0, 500, 1000, 2000, 4000)
RATED = [*sweep(*SIZES), *deep(*DEPTHS)]
SHAPES = (4000, 10), (2000, 40), (500, 100), (250, 400)


def way(name: str, prompt: int, ms: float, *, cached: int = 0, **known: Any) -> Sample:
    return sample("restore", f"{name}/{prompt}", prompt, 3, native=True,
                  cached=cached, arrivals_s=(ms / 1000, ms / 1000 + 0.01, ms / 1000 + 0.02),
                  **known)


def restored(prompt: int, recompute: float, slot: float, host: float, disk: float | None = None,
             *, found_host: bool = True) -> list[Sample]:
    made = [way("recompute", prompt, recompute), way("slot", prompt, slot, cached=prompt - 1),
            way("host", prompt, host, cached=prompt - 1 if found_host else 0)]
    if disk is not None:
        made.append(way("disk", prompt, 5.0, cached=prompt - 1,
                        restored=Restored(tokens=prompt, size_bytes=9, took_s=disk / 1000 - 0.005)))
    return made


def paused(*seconds: int, until: int, reported: bool = True) -> list[Sample]:
    made = []
    for wait in seconds:
        made.append(sample("restore", f"first/{wait}", 4000, 3, reported=reported,
                           sent_at="2026-01-01T00:00:00+00:00"))
        whole = made[-1].total_s or 0
        at = f"2026-01-01T00:{int(whole + wait) // 60:02}:{(whole + wait) % 60:06.3f}+00:00"
        made.append(sample("restore", f"pause/{wait}", 4000, 3, reported=reported, turn=2,
                           cached=3999 if wait <= until else 0, sent_at=at))
    return made
