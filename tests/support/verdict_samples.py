"""Samples of *cache* whose verdict is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from blank_sample import blank
from request_timing.findings.verdict import Verdict, verdicts
from request_timing.records.sample import TEXT, Failure, Sample

PROMPT = 10_000
COLD_TTFT_S = 2.0
Turn = Callable[[int], float]


def cache_sample(
    arm: str, turn: int, *, repeat: int = 1, ttft_s: float = COLD_TTFT_S, gap_s: float = 0.01,
    shared: float = 0.0, cached: float | None = None, **known: Any
) -> Sample:
    """One request of ten tokens; shared and cached as shares of the prompt."""
    return blank(
        experiment="cache", arm=arm, turn=turn, repeat=repeat, prompt_chars=PROMPT,
        shared_chars=round(shared * PROMPT), prompt_tokens=PROMPT, output_tokens=10,
        cached_tokens=None if cached is None else round(cached * PROMPT),
        arrivals_s=tuple(ttft_s + n * gap_s for n in range(10)), arrival_kinds=(TEXT,) * 10,
        **known)


def run(
    *, turns: int = 6, append: float | Turn = 1.0, prepend: float | Turn = 1.0,
    repeat: float | Turn = 1.0, cold_2: float = 1.0, sigma: float = 0.05, seed: int = 1,
    reported: dict[str, Turn] | None = None, decode: dict[str, float] | None = None,
    shared: dict[str, float] | None = None,
) -> list[Sample]:
    """A run whose arms take so much of a cold TTFT, and are reported so much reused, by turn."""
    rng = random.Random(seed)
    factors: dict[tuple[str, int], Turn | float] = {
        ("append", 1): append, ("prepend", 1): prepend, ("repeat", 1): repeat, ("cold", 1): 1.0,
        ("cold", 2): cold_2}
    predicted = {"append": 0.99, "prepend": 0.01, "repeat": 1.0, "cold": 0.0} | (shared or {})
    samples = []
    for turn in range(1, turns + 1):
        for (arm, number), factor in factors.items():
            warm = turn > 1 or arm == "cold"
            times = as_turn(factor)(turn) if warm else 1.0
            told = None if reported is None else reported.get(arm, never)(turn)
            samples.append(cache_sample(
                arm, turn, repeat=number, ttft_s=COLD_TTFT_S * times * math.exp(
                    rng.gauss(0, sigma)),
                gap_s=0.01 * (decode or {}).get(arm, 1.0) * math.exp(rng.gauss(0, 0.02)),
                shared=predicted[arm] if warm else 0.0,
                cached=told if told is None or warm else 0.0))
    return samples


def as_turn(factor: float | Turn) -> Turn:
    """A constant as a function of the turn."""
    if isinstance(factor, float | int):
        constant = float(factor)
        return lambda _: constant
    return factor


def full(_: int) -> float:
    return 0.99


def never(_: int) -> float:
    return 0.0


def judged(samples: list[Sample], arm: str = "append") -> Verdict:
    return next(v for v in verdicts(samples) if v.arm == arm)


HITS: dict[str, Turn] = {"append": full, "repeat": full}


def failed(sample: Sample) -> Sample:
    return blank(experiment="cache", arm=sample.arm, turn=sample.turn, repeat=sample.repeat,
                 error=Failure(kind="http", message="no"))
