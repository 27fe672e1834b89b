"""What the server of known truth does: its configuration, its cache, its costs, its log.

No I/O: `Model.plan` says what a request costs and answers, `truth_server.py` takes that time and
speaks the two protocols.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

CHARS_PER_TOKEN = 4
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class Asked(Protocol):
    """What the model needs to know of a request, whichever protocol it came by."""

    text: str
    output_tokens: int
    may_reuse: bool
    stream: bool
    answer_prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is true of the server.

    Time: prefill_s_per_token_squared is a factor on n² - k², of a prompt of n tokens of which k are
    reused, as attention makes it. noise_sigma (log-normal), outlier_share and outlier_factor act on
    fixed and prefill time, drawn for each request. drift: a factor on all of a request's time, one
    a request, the last
    staying; drift_per_request is added to it with each. decode_factor_on_hit: on the steps of a
    request that reused something.

    Cache: "off"; "prefix", the longest beginning shared with a stored prompt and its answer, in
    whole blocks, 0 below minimum_tokens, never the whole prompt; "response", a prompt seen before,
    with as many tokens asked for, gets the old answer in one go. A prompt becomes reusable after
    write_delay_requests further requests. Each replica has a cache of its own, of which the
    latest keep_prompts are kept (None: all).
    """

    prefill_s_per_token: float = 0.0
    prefill_s_per_token_squared: float = 0.0
    fixed_s: float = 0.0
    decode_s_per_token: float = 0.0
    decode_s_per_context_token: float = 0.0
    decode_factor_on_hit: float = 1.0
    noise_sigma: float = 0.0
    outlier_share: float = 0.0
    outlier_factor: float = 3.0
    drift: tuple[float, ...] = ()
    drift_per_request: float = 0.0
    seed: int = 0
    cache: str = "off"
    block_tokens: int = 1
    minimum_tokens: int = 0
    replicas: int = 1
    routing: str = "round_robin"
    write_delay_requests: int = 0
    keep_prompts: int | None = None
    report_cached: bool = True

    def __post_init__(self) -> None:
        assert self.cache in ("off", "prefix", "response"), self.cache
        assert self.routing in ("round_robin", "random"), self.routing


@dataclass(slots=True, kw_only=True)
class Entry:
    """The log of one request; moments are of `time.perf_counter`.

    planned_prefill_s is the time that was due; prefill_s (last byte received to first token
    ready) and decode_s (first to last token ready) are what was really taken.
    """

    number: int
    path: str
    stream: bool
    received_at_s: float
    prompt_tokens: int
    cached_tokens: int
    planned_prefill_s: float
    replica: int
    response_hit: bool
    prefill_s: float = 0.0
    decode_s: float = 0.0
    sent_at_s: list[float] = field(default_factory=list)  # each token, once given to the transport
    output_tokens: int = 0
    complete: bool = False


def tokens(text: str) -> int:
    """How many tokens a text is; the last one may be short."""
    return -(-len(text) // CHARS_PER_TOKEN)


def shared_chars(a: str, b: str) -> int:
    """Characters that two texts have in common from the start."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a.startswith(b[:middle]) else (low, middle - 1)
    return low


class Model:
    """What is computed: which tokens are reused, what all of it costs, what is answered."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.log: list[Entry] = []
        self._numbers = itertools.count()
        self._held: list[deque[tuple[int, str]]] = [
            deque(maxlen=config.keep_prompts) for _ in range(config.replicas)]
        self._answers: dict[tuple[int, str, int], tuple[int, list[str]]] = {}

    def plan(self, asked: Asked, path: str, received_at_s: float
             ) -> tuple[Entry, list[str], list[float]]:
        """A request's log entry, the words of its answer, and the step before each of them; all
        drawn by its number and the seed alone."""
        config, number, count = self.config, next(self._numbers), asked.output_tokens
        rng = random.Random(f"{config.seed}/{number}")
        noise = math.exp(rng.gauss(0, config.noise_sigma))
        noise *= config.outlier_factor if rng.random() < config.outlier_share else 1.0
        drawn = rng.randrange(config.replicas)
        replica = drawn if config.routing == "random" else number % config.replicas
        drift = config.drift[min(number, len(config.drift) - 1)] if config.drift else 1.0
        drift += config.drift_per_request * number

        usable_from, words = self._answers.get((replica, asked.text, count), (number + 1, []))
        response_hit = usable_from <= number
        if not response_hit:
            words = ["".join(rng.choices(ALPHABET, k=CHARS_PER_TOKEN - 1)) + " "
                     for _ in range(count)]
        prompt = tokens(asked.text)
        reused = self._reusable(asked.text, replica, number) if asked.may_reuse else 0
        prefill_s = noise * drift * (
            config.fixed_s + config.prefill_s_per_token * (prompt - reused)
            + config.prefill_s_per_token_squared * (prompt**2 - reused**2))
        factor = drift * (config.decode_factor_on_hit if reused else 1.0)
        steps_s = [0.0] + [factor * (config.decode_s_per_token + (prompt + k)
                                     * config.decode_s_per_context_token) for k in range(1, count)]
        entry = Entry(number=number, path=path, stream=asked.stream, received_at_s=received_at_s,
                      prompt_tokens=prompt, cached_tokens=reused, replica=replica,
                      planned_prefill_s=0.0 if response_hit else prefill_s,
                      response_hit=response_hit)
        self.log.append(entry)
        return entry, words, steps_s

    def keep(self, asked: Asked, entry: Entry, words: list[str]) -> None:
        """Put an answered request where later ones may find it."""
        usable_from = entry.number + 1 + self.config.write_delay_requests
        if self.config.cache == "prefix":
            stored = asked.text + asked.answer_prefix + "".join(words)
            self._held[entry.replica].append((usable_from, stored))
        elif self.config.cache == "response":
            key = (entry.replica, asked.text, len(words))
            self._answers.setdefault(key, (usable_from, words))

    def _reusable(self, text: str, replica: int, number: int) -> int:
        shared = max((shared_chars(text, stored) for usable_from, stored in self._held[replica]
                      if usable_from <= number), default=0) // CHARS_PER_TOKEN
        block = self.config.block_tokens
        reused = max(0, min(shared, tokens(text) - 1)) // block * block
        return reused if reused >= self.config.minimum_tokens else 0
