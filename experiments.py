"""The three experiments, written once for both backends.

length   prefill (or TTFT) against input length, every prompt cold
output   total time against output length, on one short input
cache    one long context over several turns: appended to, and with the time put in front

Each is a function that yields Samples as they are made. What differs between a cloud API and a
llama-server is behind `Backend`: how a prompt is sent, and how its tokens are counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from common import filler, fit_text, nonces
from record import Sample
from timing import Event, Progress, measure, prompt_hash

USER, ASSISTANT = "user", "assistant"
APPEND, PREPEND = "append", "prepend"

# A cold prompt may share this much with an earlier one: a BOS token, a letter. More than that and
# more than the head a chat template puts before every prompt, and the sample was not cold.
COLD_SHARE = 0.01

LENGTH_OUTPUT_TOKENS = 16
CACHE_OUTPUT_TOKENS = 32
OUTPUT_INPUT_WORDS = 20

LENGTH_TASK = "\n\nName one word of this text.\nAnswer:"
OUTPUT_TASK = "\n\nWrite the whole numbers from one upwards in English words; never stop.\n"
CACHE_TASK = "\n\nQuestion {turn}: which word stands out?\nAnswer:"
STAMP = "Current time: {now:%Y-%m-%dT%H:%M:%S.%fZ}\n\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; a backend without roles joins the texts as they are."""

    role: str
    text: str


Prompt = tuple[Message, ...]


class Backend(Protocol):
    """What the experiments need of a server."""

    head_tokens: int  # what the server puts before every prompt (BOS, chat template)
    interleave_arms: bool  # alternate the arms turn by turn, or run them as blocks

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        """Send one request and yield what happens."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a prompt of this one text, all that the server adds included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The sizes of a run. `document` is the user's own text for *cache*, if there is one."""

    experiments: tuple[str, ...]
    lengths: tuple[int, ...]
    outputs: tuple[int, ...]
    context: int
    turns: int
    repeats: int
    seed: int
    document: str | None = None


@dataclass(kw_only=True)
class Lab:
    """One run's backend and settings, and what makes each of its prompts unlike the others."""

    backend: Backend
    settings: Settings
    on_request: Callable[[Sample], None] = lambda sample: None
    on_progress: Callable[[Progress], None] | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._nonces = nonces()
        self._last_stamp = datetime.min.replace(tzinfo=UTC)

    def opening(self) -> str:
        """A first line that no other prompt has, so that no cache knows its first token."""
        return next(self._nonces) + ".\n"

    def stamp(self) -> str:
        """The time now, to the microsecond, and never the same twice."""
        self._last_stamp = max(self.now(), self._last_stamp + timedelta(microseconds=1))
        return STAMP.format(now=self._last_stamp)

    def rng(self, purpose: str) -> random.Random:
        """A generator of its own for each purpose, so that one experiment alone, or all three,
        makes the same choices."""
        return random.Random(f"{self.settings.seed}/{purpose}")

    def sized(self, tokens: int, purpose: str, *, task: str = "") -> str:
        """A cold text of `tokens` tokens that ends with `task`."""
        opening, seed = self.opening(), f"{self.settings.seed}/{purpose}"
        return fit_text(
            tokens, lambda words: opening + filler(seed, words) + task, self.backend.count_tokens
        )

    def ask(
        self, experiment: str, arm: str, prompt: Prompt, output_tokens: int,
        *, turn: int = 1, repeat: int = 1, cold: bool = False,
    ) -> tuple[Sample, str]:
        """Send one prompt, and return its Sample and the answer.

        With `cold`, a sample of which the server reused more than a common head is marked and
        leaves every average: the server's own count is the proof.
        """
        text = "".join(message.text for message in prompt)
        blank = Sample(
            experiment=experiment, arm=arm, turn=turn, repeat=repeat,
            sent_at=self.now().isoformat(timespec="milliseconds"), prompt_chars=len(text),
            prompt_hash=prompt_hash(text), asked_output_tokens=output_tokens,
        )
        self.on_request(blank)
        events = self.backend.stream(prompt, output_tokens)
        sample, answer = measure(events, blank, on_progress=self.on_progress)
        if cold and sample.cached_tokens and sample.prompt_tokens:
            allowed = max(self.backend.head_tokens, COLD_SHARE * sample.prompt_tokens)
            if sample.cached_tokens > allowed:
                note = f"not_cold: {sample.cached_tokens} of {sample.prompt_tokens} tokens reused"
                sample = replace(sample, notes=(*sample.notes, note))
        return sample, answer


def length(lab: Lab) -> Iterator[Sample]:
    """One cold request a size and repeat; the sizes of each repeat in seeded random order."""
    rng = lab.rng("length")
    for repeat in range(1, lab.settings.repeats + 1):
        for size in rng.sample(lab.settings.lengths, len(lab.settings.lengths)):
            text = lab.sized(size, f"length/{size}/{repeat}", task=LENGTH_TASK)
            yield lab.ask("length", str(size), (Message(USER, text),), LENGTH_OUTPUT_TOKENS,
                          repeat=repeat, cold=True)[0]


def output(lab: Lab) -> Iterator[Sample]:
    """One request an output length and repeat, on the same short text after a cold opening."""
    rng = lab.rng("output")
    text = filler(f"{lab.settings.seed}/output", OUTPUT_INPUT_WORDS) + OUTPUT_TASK
    for repeat in range(1, lab.settings.repeats + 1):
        for size in rng.sample(lab.settings.outputs, len(lab.settings.outputs)):
            prompt = (Message(USER, lab.opening() + text),)
            yield lab.ask("output", str(size), prompt, size, repeat=repeat, cold=True)[0]


def cache(lab: Lab) -> Iterator[Sample]:
    """Both arms over `turns` turns; each arm is a conversation that keeps its real answers.

    append: the document, then the turns so far, then the new question: the beginning never
    changes. prepend: the same, with the time of this turn in front of it all.
    """
    settings = lab.settings
    document = settings.document or lab.sized(settings.context, "cache")
    # The same document in both arms, behind an opening of its own: neither may warm the other.
    history: dict[str, Prompt] = {
        arm: (Message(USER, lab.opening() + document),) for arm in (APPEND, PREPEND)
    }
    for arm, turn in schedule(settings.turns, lab.backend.interleave_arms, lab.rng("cache")):
        *earlier, last = history[arm]
        asked = (*earlier, Message(USER, last.text + CACHE_TASK.format(turn=turn)))
        first, *rest = asked
        stamp = lab.stamp() if arm == PREPEND else ""
        prompt = (Message(USER, stamp + first.text), *rest)
        sample, answer = lab.ask("cache", arm, prompt, CACHE_OUTPUT_TOKENS, turn=turn,
                                 cold=arm == APPEND and turn == 1)
        yield sample
        if sample.error is None:
            history[arm] = (*asked, Message(ASSISTANT, answer), Message(USER, ""))


def schedule(turns: int, interleave: bool, rng: random.Random) -> list[tuple[str, int]]:
    """Which arm asks when: turn by turn in random order, or one arm after the other.

    Interleaved, a drift of the server hits both arms alike; that is for backends that keep many
    prefixes. A server with one slot holds one prefix, and there an arm runs as a block.
    """
    if not interleave:
        return [(arm, turn) for arm in (APPEND, PREPEND) for turn in range(1, turns + 1)]
    return [
        (arm, turn) for turn in range(1, turns + 1) for arm in rng.sample((APPEND, PREPEND), 2)
    ]


# A new experiment is a function above and a line here.
EXPERIMENTS: dict[str, Callable[[Lab], Iterator[Sample]]] = {
    "length": length,
    "output": output,
    "cache": cache,
}


def run(lab: Lab) -> Iterator[Sample]:
    """Every chosen experiment, in the order of the table."""
    for name, experiment in EXPERIMENTS.items():
        if name in lab.settings.experiments:
            yield from experiment(lab)
