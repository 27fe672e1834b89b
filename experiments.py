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
from sample import Sample
from timing import Event, Progress, measure, prompt_hash
from verdict import verdicts

USER, ASSISTANT = "user", "assistant"
APPEND, PREPEND = "append", "prepend"
REPEAT, COLD = "repeat", "cold"  # the positive and the negative control

# Beside the head that the server puts before every prompt (a BOS token, a chat template), a cold
# prompt may share a letter or so with an earlier one; with more the sample was not cold.
COLD_SHARE, COLD_TOKENS = 0.01, 4

FIRST_LOOK = 8
# The controls of a server that counts by itself: two turns show what it reuses.
BLOCK_CONTROL_TURNS = 2
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
    counts_exactly: bool  # whether count_tokens is the server's own count

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
    until_sure: bool = False
    max_turns: int = 0
    max_tokens: int | None = None

    @property
    def looks(self) -> tuple[int, ...]:
        """After which turns --until-sure looks whether the verdict is firm.

        Each look has its share of the level, so that many looks together are wrong no more often
        than one; a few, further and further apart, cost less of it than one a turn.
        """
        return look_turns(max(self.turns, FIRST_LOOK), self.max_turns) if self.until_sure else ()


def look_turns(first: int, last: int) -> tuple[int, ...]:
    """first, half as many again, and so on, and last; none less than a tenth before last."""
    turns = []
    while 11 * first <= 10 * last:
        turns.append(first)
        first = first + (first + 1) // 2
    return (*turns, last)


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
        self._held: list[str] = []

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

    def is_enough(self, samples: list[Sample]) -> bool:
        """Whether --until-sure may end after these turns: its budget is spent, or its verdict
        firm."""
        if not self.settings.until_sure:
            return False
        budget, last = self.settings.max_tokens, samples[-1].turn
        if budget is not None:
            spent = sum(map(spent_tokens, samples))
            next_turn = sum(spent_tokens(s) for s in samples if s.turn == last)
            if spent + next_turn > budget:
                return True
        looks = self.settings.looks
        return last in looks and all(
            verdict.is_firm for verdict in verdicts(samples, looks=len(looks)))

    def ask(
        self, experiment: str, arm: str, prompt: Prompt, output_tokens: int,
        *, turn: int = 1, repeat: int = 1, cold: bool = False,
    ) -> tuple[Sample, str]:
        """Send one prompt, and return its Sample and the answer.

        With `cold`, a sample of which the server reused more than a common head is marked and
        leaves every average: the server's own count is the proof.
        """
        text = "".join(message.text for message in prompt)
        shared = max((common_prefix_chars(text, earlier) for earlier in self._held), default=0)
        exact = self.backend.counts_exactly
        blank = Sample(
            experiment=experiment, arm=arm, turn=turn, repeat=repeat,
            sent_at=self.now().isoformat(timespec="milliseconds"), prompt_chars=len(text),
            prompt_hash=prompt_hash(text), asked_output_tokens=output_tokens,
            shared_chars=shared,
            shared_tokens=self.backend.count_tokens(text[:shared]) if exact else None,
        )
        self.on_request(blank)
        events = self.backend.stream(prompt, output_tokens)
        sample, answer = measure(events, blank, on_progress=self.on_progress)
        if sample.error is None:
            self._held.append(text + answer)
        if cold and sample.cached_tokens and sample.prompt_tokens:
            share = max(COLD_TOKENS, COLD_SHARE * sample.prompt_tokens)
            allowed = self.backend.head_tokens + share
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
    """Both arms over `turns` turns, each a conversation that keeps its real answers; and controls.

    append: the document, then the turns so far, then the new question: the beginning never
    changes. prepend: the same, with the time of this turn in front of it all. repeat: one prompt,
    sent again and again, which any prefix cache must reuse. cold: a new beginning each time, twice
    a turn, of which neither may be faster than the other.
    """
    settings = lab.settings
    document = settings.document or lab.sized(settings.context, "cache")
    # The same document in each arm, behind an opening of its own: none may warm another.
    history: dict[str, Prompt] = {
        arm: (Message(USER, lab.opening() + document),) for arm in (APPEND, PREPEND, REPEAT)
    }
    so_far: list[Sample] = []
    for arm, turn, repeat in schedule(settings, lab.backend.interleave_arms, lab.rng("cache")):
        if so_far and turn > so_far[-1].turn and lab.is_enough(so_far):
            return
        if arm == COLD:
            history[COLD] = (Message(USER, lab.opening() + document),)
        *earlier, last = history[arm]
        question = CACHE_TASK.format(turn=turn if arm in (APPEND, PREPEND) else 1)
        asked = (*earlier, Message(USER, last.text + question))
        first, *rest = asked
        stamp = lab.stamp() if arm == PREPEND else ""
        prompt = (Message(USER, stamp + first.text), *rest)
        sample, answer = lab.ask("cache", arm, prompt, CACHE_OUTPUT_TOKENS, turn=turn,
                                 repeat=repeat,
                                 cold=arm == COLD or (turn == 1 and arm != PREPEND))
        so_far.append(sample)
        yield sample
        if sample.error is None and arm in (APPEND, PREPEND):
            history[arm] = (*asked, Message(ASSISTANT, answer), Message(USER, ""))


def schedule(
    settings: Settings, interleave: bool, rng: random.Random
) -> Iterator[tuple[str, int, int]]:
    """Which arm asks when: (arm, turn, repeat), turn by turn in random order, or arm after arm.

    Interleaved, a drift of the server hits all arms alike; that is for backends that keep many
    prefixes, and there --until-sure goes on to `max_turns`. A server with one slot holds one
    prefix, and there an arm runs as a block, the controls first.
    """
    if interleave:
        each = ((APPEND, 1), (PREPEND, 1), (REPEAT, 1), (COLD, 1), (COLD, 2))
        last = settings.max_turns if settings.until_sure else settings.turns
        for turn in range(1, last + 1):
            for arm, repeat in rng.sample(each, len(each)):
                yield arm, turn, repeat
        return
    controls = min(settings.turns, BLOCK_CONTROL_TURNS)
    for arm, turns in ((REPEAT, controls), (COLD, controls),
                       (APPEND, settings.turns), (PREPEND, settings.turns)):
        for turn in range(1, turns + 1):
            yield arm, turn, 1


def spent_tokens(sample: Sample) -> int:
    """Input tokens of a request as reported; where not, four characters to a token."""
    if sample.prompt_tokens is not None:
        return sample.prompt_tokens
    return sample.prompt_chars // 4


def common_prefix_chars(a: str, b: str) -> int:
    """How many characters two texts share from the start, by bisection over slices."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


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
