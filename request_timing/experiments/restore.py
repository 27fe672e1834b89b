"""From where a prefix comes back, and how long it lives: the experiment restore.

On a llama-server: recomputed, found in its slot, brought back from host memory (--cache-ram) after
other prompts took the slot, and read from disk (--slot-save-path), at several lengths. With
--pauses, on any server: asked again after so many seconds, of which none is on a clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from request_timing.experiments.lab import WORD_TASK, Lab, Settings
from request_timing.experiments.savings import LEAST_PROMPT, fits, with_note
from request_timing.prompts.filler import filler
from request_timing.records.names import (
    DISK,
    FIRST,
    HOST,
    NO_DISK,
    OTHER,
    PAUSE,
    RECOMPUTE,
    RESTORE,
    SLOT,
)
from request_timing.records.sample import Restored, Sample
from request_timing.servers.backend import USER, Message, Prompt
from request_timing.servers.timing import RequestFailed, clock

OUTPUT_TOKENS = 8
OTHER_WORDS = 12
LEAST_LENGTH = 256
SHORT_SHARE = 8  # the shortest length of all is this part of the first of --lengths
MOST_OTHERS = 16  # prompts that take the slots, one a slot
PAUSE_TOKENS = 8000  # of a prefix that waits; fewer where --context is smaller
PAUSE_STEP_S = 1.0
SLOT_FILE = "llm-request-timing.slot"

NOT_SUPPORTED = 501  # of a server without --slot-save-path
NOT_TAKEN = "void: no other prompt took the slot"


@runtime_checkable
class HasSlots(Protocol):
    """What a backend with slots has beside those of `servers.backend.Backend`."""

    @property
    def facts(self) -> Any:
        """With `slots`, how many there are, or None."""

    def slot_action(self, slot: int, action: str, filename: str) -> dict[str, Any]:
        """Save or restore a slot. Raises RequestFailed."""


def lengths(settings: Settings) -> tuple[int, ...]:
    """The prefixes of *restore* on a llama-server: one short one, and those of --lengths."""
    first = settings.lengths[0] if settings.lengths else LEAST_LENGTH  # none of them may fit
    short = max(LEAST_PROMPT, first // SHORT_SHARE)
    return tuple(sorted({short, *settings.lengths}))


def pause_tokens(settings: Settings) -> int:
    """The size of a prefix that waits."""
    return min(PAUSE_TOKENS, settings.context)


def restore(
    lab: Lab, sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[Sample]:
    """Every way back at every length, in seeded random order; then the pauses, if there are any."""
    settings = lab.settings
    backend = lab.backend
    if isinstance(backend, HasSlots):
        chosen = [n for n in lengths(settings) if fits(settings, n + OUTPUT_TOKENS)]
        store = _Store(backend)
        for tokens in lab.rng(RESTORE).sample(chosen, len(chosen)):
            yield from _ways(lab, tokens, store, backend.facts.slots or 1)
        store.shrink(lab)
    if settings.pauses and fits(settings, pause_tokens(settings) + OUTPUT_TOKENS):
        yield from pauses(lab, sleep, now_s)


def _ways(lab: Lab, tokens: int, store: _Store, slots: int) -> Iterator[Sample]:
    """One prompt: recomputed once, then found again in each way, `repeats` times."""
    text = lab.sized(tokens, f"restore/{tokens}", task=WORD_TASK)
    prompt = (Message(USER, text),)
    first, _ = lab.ask(RESTORE, f"{RECOMPUTE}{tokens}", prompt, OUTPUT_TOKENS, cold=True)
    if first.error is None:
        first = store.save(first)
    yield first
    if first.error is not None:
        return
    for repeat in range(1, lab.settings.repeats + 1):
        found, _ = lab.ask(RESTORE, f"{SLOT}{tokens}", prompt, OUTPUT_TOKENS, turn=2,
                           repeat=repeat)
        yield found
        for way in (HOST, DISK):
            if way == DISK and not store.has(tokens=first.prompt_tokens):
                continue
            taken = yield from _take_the_slots(lab, tokens, found, slots, repeat)
            try:
                restored = store.restore() if way == DISK else None
            except RequestFailed as failed:
                lab.on_end(f"restore, disk, {tokens:,} tokens: the saved slot could not be read "
                           f"back ({failed})")
                continue
            found, _ = lab.ask(RESTORE, f"{way}{tokens}", prompt, OUTPUT_TOKENS, turn=2,
                               repeat=repeat)
            found = replace(found, restored=restored)
            yield found if taken or way == DISK else with_note(found, NOT_TAKEN)


def _take_the_slots(
    lab: Lab, tokens: int, holder: Sample, slots: int, repeat: int
) -> Generator[Sample, None, bool]:
    """Short prompts of other beginnings, until one has taken the holder's slot; whether it did."""
    slot = holder.server.id_slot if holder.server else None
    for turn in range(1, min(slots, MOST_OTHERS) + 1):
        text = lab.opening() + filler(f"{lab.settings.seed}/other", OTHER_WORDS) + WORD_TASK
        other, _ = lab.ask(RESTORE, f"{OTHER}{tokens}", (Message(USER, text),), 1, turn=turn,
                           repeat=repeat, cold=True)
        yield other
        if other.error is None and other.server is not None and other.server.id_slot == slot:
            return True
    return False


class _Store:
    """The file that a slot is saved to: one, written over at each length."""

    def __init__(self, backend: HasSlots) -> None:
        self._backend = backend
        self._slot: int | None = None
        self._saved: int | None = None  # tokens, of the last save
        self._refused = False
        self._used = False

    def save(self, sample: Sample) -> Sample:
        """Save the slot that answered; the sample, with a note the first time that it can't be."""
        self._saved = None
        self._slot = sample.server.id_slot if sample.server else None
        if self._refused or self._slot is None:
            return sample
        try:
            said = self._backend.slot_action(self._slot, "save", SLOT_FILE)
        except RequestFailed as failed:
            self._refused = True
            status = failed.failure.http_status
            why = f"HTTP {status}" if status == NOT_SUPPORTED else str(failed)
            return with_note(sample, f"{NO_DISK} ({why})")
        self._used = True
        self._saved = _whole(said.get("n_saved"))
        return sample

    def has(self, *, tokens: int | None) -> bool:
        """Whether the prompt of so many tokens is in the file."""
        return self._saved is not None and self._saved >= (tokens or 0) - 1

    def restore(self) -> Restored:
        """Read the file back into the slot that it came from. Raises RequestFailed."""
        assert self._slot is not None
        started = clock()
        said = self._backend.slot_action(self._slot, "restore", SLOT_FILE)
        return Restored(tokens=_whole(said.get("n_restored")),
                        size_bytes=_whole(said.get("n_read")), took_s=clock() - started)

    def shrink(self, lab: Lab) -> None:
        """Leave a file of a few tokens behind, since a server has no way to delete one."""
        if not self._used or self._slot is None:
            return
        try:
            for _ in lab.backend.stream((Message(USER, lab.opening()),), 1):
                pass
            self._backend.slot_action(self._slot, "save", SLOT_FILE)
        except RequestFailed:
            return


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def pauses(
    lab: Lab, sleep: Callable[[float], None], now_s: Callable[[], float]
) -> Iterator[Sample]:
    """A prefix for each pause, read once and asked for again that much later; and one at once.

    Where a backend keeps many prefixes all are read first, so that the whole takes as long as the
    longest pause; where one slot holds one, they take turns.
    """
    waits = [0, *lab.settings.pauses]
    tokens = pause_tokens(lab.settings)
    prompts: dict[int, Prompt] = {
        wait: (Message(USER, lab.sized(tokens, f"pause/{wait}", task=WORD_TASK)),)
        for wait in waits}
    # The longest is read first: it has the time of all the others.
    together = waits[:0:-1] if lab.backend.interleave_arms else []
    due_s: dict[int, float] = {}

    def read(wait: int) -> Iterator[Sample]:
        sample, _ = lab.ask(RESTORE, f"{FIRST}{wait}", prompts[wait], OUTPUT_TOKENS, cold=True)
        yield sample
        if sample.error is None:
            due_s[wait] = now_s() + wait

    def asked_again(wait: int) -> Iterator[Sample]:
        while (left := due_s[wait] - now_s()) > 0:
            sleep(min(left, PAUSE_STEP_S))  # in steps, so that Ctrl-C is heard at once everywhere
        yield lab.ask(RESTORE, f"{PAUSE}{wait}", prompts[wait], OUTPUT_TOKENS, turn=2)[0]

    for wait in waits:
        if wait not in together:
            yield from read(wait)
            if wait in due_s:
                yield from asked_again(wait)
    for wait in together:
        yield from read(wait)
    for wait in sorted(due_s.keys() & set(together), key=due_s.__getitem__):
        yield from asked_again(wait)
