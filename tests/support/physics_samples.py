"""Samples made up to the microsecond, of a server whose rates are known, for the physics' tests."""

from __future__ import annotations

from typing import Any

from blank_sample import blank
from request_timing.records.sample import TEXT, Sample, ServerTimings

FIXED_S, LINEAR_S, SQUARED_S = 0.02, 1e-4, 1e-8
STEP_S, CONTEXT_S = 0.01, 1e-6


def request_s(prompt: int, cached: int, squared_s: float = SQUARED_S) -> float:
    """TTFT by the rates."""
    return FIXED_S + LINEAR_S * (prompt - cached) + squared_s * (prompt**2 - cached**2)


def sample(
    experiment: str, arm: str, prompt: int, output: int = 9, *, cached: int = 0, turn: int = 1,
    repeat: int = 1, native: bool = False, reported: bool = True, squared_s: float = SQUARED_S,
    context_s: float = CONTEXT_S, factor: float = 1.0, **known: Any,
) -> Sample:
    """One request that took what the rates say, its TTFT times `factor`."""
    ttft = round(factor * request_s(prompt, cached, squared_s), 9)
    steps = [STEP_S + context_s * (prompt + k) for k in range(1, output)]
    arrivals = tuple(ttft + sum(steps[:k]) for k in range(output))
    server = ServerTimings(
        cache_n=cached, prompt_n=prompt - cached, prompt_ms=1000 * (ttft - FIXED_S),
        predicted_n=output, predicted_ms=1000 * sum(steps), id_slot=0) if native else None
    return blank(**{
        "experiment": experiment, "arm": arm, "turn": turn, "repeat": repeat,
        "asked_output_tokens": output, "arrivals_s": arrivals, "arrival_kinds": (TEXT,) * output,
        "first_piece_tokens": 1, "prompt_tokens": prompt, "output_tokens": output,
        "cached_tokens": cached if reported else None, "server": server} | known)


def sweep(*sizes: int, repeats: int = 3, **known: Any) -> list[Sample]:
    """A sweep of length."""
    return [sample("length", str(n), n, repeat=r, **known)
            for r in range(1, repeats + 1) for n in sizes]


def deep(*depths: int, block: int = 100, output: int = 20, repeats: int = 2, warm: bool = True,
         **known: Any) -> list[Sample]:
    """The experiment depth over these prefixes, the cold ones first."""
    made = []
    for n in depths:
        held = 0
        if n:
            made.append(sample("depth", f"prime/{n}", n, 8, **known))
            held = n + 8
        for r in range(1, repeats + 1):
            prompt = held + block
            made.append(sample("depth", str(n), prompt, output, repeat=r,
                               turn=r + 1 if n else 1, cached=held if warm else 0, **known))
            held = prompt + output if n else 0
    return made


def worked(*shapes: tuple[int, int], reused: bool = True, **known: Any) -> list[Sample]:
    """The experiment workload at these shapes."""
    return [one for p, o in shapes for one in (
        sample("workload", f"cold/{p}x{o}", p, o, **known),
        sample("workload", f"hit/{p}x{o}", p, o, turn=2, cached=p - 1 if reused else 0, **known))]
