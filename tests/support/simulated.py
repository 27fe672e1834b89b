"""A backend that is the known truth itself: the model of the truth server, on a clock of its own.

No server, no socket and no time pass, so that what an experiment finds from time alone can be
held to figures in a test. A token is four characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from request_timing.experiments.lab import Lab, Settings
from request_timing.records.sample import TEXT, ServerTimings
from request_timing.servers.backend import Prompt
from request_timing.servers.timing import Chunk, End, Event, Sent, Usage
from truth_model import Config, Model, tokens


@dataclass
class Said:
    """What the model needs to know of a request."""

    text: str
    output_tokens: int
    may_reuse: bool = True
    stream: bool = True
    answer_prefix: str = ""


class Simulated:
    """One server of this Config; native: it counts by itself, as a llama-server does."""

    head_tokens = 0

    def __init__(self, *, native: bool = False, **config: Any) -> None:
        self.interleave_arms = not native
        self.counts_exactly = native
        self.model = Model(Config(**config))
        self._native = native

    def count_tokens(self, text: str) -> int:
        return tokens(text)

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        asked = Said("".join(message.text for message in prompt), output_tokens)
        entry, words, steps_s = self.model.plan(asked, "/simulated", 0.0)
        yield Sent(at_s=0.0)
        at_s = entry.planned_prefill_s
        for word, step_s in zip(words, steps_s, strict=True):
            at_s += 0.0 if entry.response_hit else step_s
            yield Chunk(at_s=at_s, kind=TEXT, text=word)
        self.model.keep(asked, entry, words)
        counts = self._native or self.model.config.report_cached
        server = ServerTimings(
            cache_n=entry.cached_tokens, prompt_n=entry.prompt_tokens - entry.cached_tokens,
            prompt_ms=1000 * entry.planned_prefill_s, predicted_n=len(words), predicted_ms=0.0)
        yield Usage(prompt_tokens=entry.prompt_tokens, output_tokens=len(words),
                    cached_tokens=entry.cached_tokens if counts else None,
                    server=server if self._native else None)
        yield End(finish_reason="length")


def lab_of(backend: Simulated, **known: Any) -> Lab:
    """A lab of that backend, with these settings over small ones."""
    chosen: dict[str, Any] = {
        "experiments": (), "lengths": (1,), "outputs": (1,), "context": 4000, "turns": 3,
        "repeats": 1, "seed": 1}
    return Lab(backend=backend, settings=Settings(**chosen | known))
