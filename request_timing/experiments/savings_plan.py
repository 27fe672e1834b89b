"""What depth, workload and restore are going to send, and the context that it takes."""

from __future__ import annotations

from dataclasses import dataclass

from request_timing.experiments import restore, savings
from request_timing.experiments.lab import Settings
from request_timing.records.names import DEPTH, RESTORE, WORKLOAD

OTHER_TOKENS = 60  # of a short prompt that takes a slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of an experiment: the context it takes in a slot, and how to have less."""

    experiment: str
    what: str
    need_tokens: int
    remedy: str


def sizes(settings: Settings, *, native: bool) -> list[Size]:
    """Every size that the chosen ones of these experiments would ask for."""
    found = []
    chosen = settings.experiments
    smaller = "give a smaller --context"
    if DEPTH in chosen:
        found += [Size(experiment=DEPTH, what=f"depth {n:,}",
                       need_tokens=savings.depth_need(settings, n), remedy=smaller)
                  for n in savings.depths(settings)]
    if WORKLOAD in chosen:
        found += [Size(experiment=WORKLOAD, what=f"workload {prompt:,} in, {output:,} out",
                       need_tokens=prompt + output, remedy=smaller)
                  for prompt, output in savings.corners(settings)]
    if RESTORE in chosen:
        answer = restore.OUTPUT_TOKENS
        if native:
            found += [Size(experiment=RESTORE, what=f"restore {n:,}", need_tokens=n + answer,
                           remedy="give other --lengths")
                      for n in restore.lengths(settings)]
        if settings.pauses:
            found.append(Size(experiment=RESTORE, what="restore with pauses",
                              need_tokens=restore.pause_tokens(settings) + answer,
                              remedy=smaller))
    return found


def sent(settings: Settings, *, native: bool) -> dict[str, tuple[int, int, int]]:
    """Requests, input tokens and output tokens of each, of the sizes that fit."""
    return {DEPTH: _depth(settings), WORKLOAD: _workload(settings),
            RESTORE: _restore(settings, native=native), "fit": (0, 0, 0)}


def _depth(settings: Settings) -> tuple[int, int, int]:
    block, answer = savings.block_tokens(settings), savings.DEPTH_OUTPUT_TOKENS
    times = savings.depth_repeats(settings)
    requests = tokens = output = 0
    for n in savings.depths(settings):
        if not savings.fits(settings, savings.depth_need(settings, n)):
            continue
        requests += times + bool(n)
        output += times * answer + (savings.PRIME_OUTPUT_TOKENS if n else 0)
        # Each request sends the conversation so far.
        tokens += n + times * (n + block) + (
            (block + answer) * times * (times - 1) // 2 + savings.PRIME_OUTPUT_TOKENS * times
            if n else 0)
    return requests, tokens, output


def _workload(settings: Settings) -> tuple[int, int, int]:
    chosen = [c for c in savings.corners(settings) if savings.fits(settings, sum(c))]
    return (2 * len(chosen), 2 * sum(prompt for prompt, _ in chosen),
            2 * sum(output for _, output in chosen))


def _restore(settings: Settings, *, native: bool) -> tuple[int, int, int]:
    answer = restore.OUTPUT_TOKENS
    requests = tokens = output = 0
    if native:
        found = 3 * settings.repeats  # slot, host memory, disk
        others = 2 * settings.repeats
        for n in restore.lengths(settings):
            if savings.fits(settings, n + answer):
                requests += 1 + found + others
                tokens += (1 + found) * n + others * OTHER_TOKENS
                output += (1 + found) * answer + others
    if settings.pauses:
        asked = 2 * (1 + len(settings.pauses))
        requests += asked
        tokens += asked * restore.pause_tokens(settings)
        output += asked * answer
    return requests, tokens, output


def waiting_s(settings: Settings, *, native: bool) -> int:
    """Seconds that the pauses of *restore* take, all in all."""
    if RESTORE not in settings.experiments or not settings.pauses:
        return 0
    return sum(settings.pauses) if native else max(settings.pauses)
