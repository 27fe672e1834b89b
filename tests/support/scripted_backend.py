"""Shared by tests: NOW, Scripted, joined, ran, settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from request_timing.experiments.basic import run
from request_timing.experiments.lab import Lab, Settings
from request_timing.records.sample import TEXT, Sample
from request_timing.servers.backend import Prompt
from request_timing.servers.timing import Chunk, End, Event, RequestFailed, Sent, Usage

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Scripted:
    """A backend whose token is a character, that reuses what it is told and fails when told."""

    head_tokens = 3
    counts_exactly = True

    def __init__(self, *, interleave: bool = True, reused: int = 0, fails_at: int = -1) -> None:
        self.interleave_arms = interleave
        self.prompts: list[Prompt] = []
        self._reused, self._fails_at = reused, fails_at

    def count_tokens(self, text: str) -> int:
        return len(text)

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        number = len(self.prompts)
        self.prompts.append(prompt)
        yield Sent(at_s=0)
        if number == self._fails_at:
            raise RequestFailed("http", "no")
        yield Chunk(at_s=1, kind=TEXT, text=f"answer {number}")
        yield Usage(prompt_tokens=sum(len(m.text) for m in prompt), cached_tokens=self._reused,
                    output_tokens=output_tokens)
        yield End(finish_reason="length")


def settings(**known: Any) -> Settings:
    chosen: dict[str, Any] = {
        "experiments": ("length", "output", "cache"), "lengths": (200, 400), "outputs": (5, 10),
        "context": 500, "turns": 3, "repeats": 2, "seed": 1}
    return Settings(**chosen | known)


def ran(backend: Scripted, **known: Any) -> list[Sample]:
    return list(run(Lab(backend=backend, settings=settings(**known), now=lambda: NOW)))


def joined(prompt: Prompt) -> str:
    return "".join(message.text for message in prompt)
