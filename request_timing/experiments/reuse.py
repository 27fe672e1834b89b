"""Which shapes of reuse a server supports: two experiments, written once for both backends.

ladder     an identical repeat, an appended turn, another question, a changed head, a changed
           middle, a cut tail, two conversations in turn, an old one after others: a row each
position   one changed token at 0 to 100 % of a document, and a stamp in front of it by the
           second, minute, hour and day

Where the server counts by itself, arms run as blocks and one round decides. Elsewhere rounds in
random order repeat, with cold prompts among them; counts, where they are reported, end that early.

In a sample `turn` is the place within an arm: the first only fills the cache, the later ones are
what is measured; `repeat` is the round.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from request_timing.experiments.lab import Lab, Settings
from request_timing.findings.measures import COLD
from request_timing.records.names import AFTER, LADDER, PLACES, POSITION, STAMPS
from request_timing.records.sample import Sample
from request_timing.servers.backend import ASSISTANT, USER, Message, Prompt

OUTPUT_TOKENS = 8
# A document is a share of --context, since an experiment sends it some twenty times a round; where
# that would be too short to show anything, as much as this.
DOCUMENT_SHARE, DOCUMENT_LEAST = 4, 500
# Two rounds where counts are reported; else so many that with eleven rows even one row's p-value,
# 2**-8, stays below a twentieth of the level.
COUNTED_ROUNDS, TIMED_ROUNDS = 2, 8
QUESTION = "\n\nQuestion {number}: which word stands out?\nAnswer:"

OTHERS_BETWEEN = (1, 2, 4)
TAIL_SHARE = 4  # of the document, that is cut off
FILLED = "filled"  # an arm that only fills the cache
CHANGED = "0"  # filler holds no digit
# The simulated clock: of four steps all change the second, two the minute, one the hour.
CLOCK_START = datetime(2026, 1, 1, 10, 58, 40)
CLOCK_STEP = timedelta(seconds=30)
STAMPED_TURNS = 5

Ask = Callable[..., tuple[Sample, str]]
Row = Callable[[Lab, Ask, str], Iterator[Sample]]


def document_tokens(settings: Settings) -> int:
    """Tokens of the document of *ladder* and *position*."""
    return min(settings.context, max(settings.context // DOCUMENT_SHARE, DOCUMENT_LEAST))


def ladder(lab: Lab) -> Iterator[Sample]:
    """Each shape of reuse once a round; every row begins with a prompt of its own that is cold."""
    document = lab.sized(document_tokens(lab.settings), LADDER)
    for repeat, order in _rounds(lab, LADDER, list(ROWS)):
        ask = functools.partial(lab.ask, LADDER, output_tokens=OUTPUT_TOKENS, repeat=repeat)
        for row in order:
            yield from row(lab, ask, document)


def position(lab: Lab) -> Iterator[Sample]:
    """A token changed at 0 to 100 % of one document, then stamps in front of others.

    A clock is simulated, so that a stamp by the day takes no day. As blocks the changes go from
    the end to the beginning: so each prompt shares with the one before what it shares with the
    first.
    """
    document = lab.sized(document_tokens(lab.settings), POSITION)
    places = functools.partial(_changed_tokens, lab.rng("position/places"))
    rows: list[Row] = [places, *(functools.partial(_stamped, by) for by in STAMPS)]
    for repeat, order in _rounds(lab, POSITION, rows):
        ask = functools.partial(lab.ask, POSITION, output_tokens=OUTPUT_TOKENS, repeat=repeat)
        for row in order:
            yield from row(lab, ask, document)


def _rounds(lab: Lab, purpose: str, rows: list[Row]) -> Iterator[tuple[int, list[Row]]]:
    """The rows of each round; interleaved ones in random order, with two cold prompts."""
    if not lab.backend.interleave_arms:
        yield 1, rows
        return
    rng = lab.rng(purpose)
    reported: list[bool] = []
    watched = [_watched(row, reported) for row in rows]
    colds = [functools.partial(_cold, turn) for turn in (1, 2)]
    for repeat in range(1, rounds(lab.settings, counted=False) + 1):
        if repeat > rounds(lab.settings, counted=True) and any(reported):
            return
        yield repeat, rng.sample([*watched, *colds], len(rows) + len(colds))


def rounds(settings: Settings, *, counted: bool) -> int:
    """How many rounds where arms are interleaved; `counted`: cached tokens are reported."""
    return COUNTED_ROUNDS if counted else max(settings.turns, TIMED_ROUNDS)


def _watched(row: Row, reported: list[bool]) -> Row:
    """The row, noting of each sample whether cached tokens were reported."""
    def watched(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
        for sample in row(lab, ask, document):
            reported.append(sample.cached_tokens is not None)
            yield sample
    return watched


def _question(number: int) -> str:
    return QUESTION.format(number=number)


def _single(text: str) -> Prompt:
    return (Message(USER, text),)


def _continued(first: str, answer: str) -> Prompt:
    """The next turn of a conversation: its first prompt, the answer really given, a question."""
    return (Message(USER, first), Message(ASSISTANT, answer), Message(USER, _question(2)))


def _cold(turn: int, lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    yield ask(COLD, _single(lab.opening() + document + _question(1)), turn=turn, cold=True)[0]


def _repeat(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    prompt = _single(lab.opening() + document + _question(1))
    yield ask("repeat", prompt, cold=True)[0]
    yield ask("repeat", prompt, turn=2)[0]


def _append(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    text = lab.opening() + document + _question(1)
    sample, answer = ask("append", _single(text), cold=True)
    yield sample
    yield ask("append", _continued(text, answer), turn=2)[0]


def _questions(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    """A+B, then A+C, then A+D: some caches need a prefix twice before they keep it."""
    shared = lab.opening() + document
    yield ask("other_question", _single(shared + _question(1)), cold=True)[0]
    yield ask("other_question", _single(shared + _question(2)), turn=2)[0]
    yield ask("third_question", _single(shared + _question(3)), turn=2)[0]


def _head_changed(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    for turn in (1, 2):
        prompt = _single(lab.opening() + document + _question(1))
        yield ask("head_changed", prompt, turn=turn, cold=turn == 1)[0]


def _middle_changed(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    text = lab.opening() + document
    yield ask("middle_changed", _single(text + _question(1)), cold=True)[0]
    yield ask("middle_changed", _single(changed(text, 50) + _question(1)), turn=2)[0]


def _tail_cut(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    """A prompt with a longer end first, so that the cut one is as long as a cold one."""
    text = lab.opening() + document
    yield ask("tail_cut", _single(text + document[:len(document) // TAIL_SHARE]), cold=True)[0]
    yield ask("tail_cut", _single(text), turn=2)[0]


def _two_in_turn(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    texts = [lab.opening() + document + _question(1) for _ in range(2)]
    answers = []
    for text in texts:
        sample, answer = ask("two_in_turn", _single(text), cold=True)
        answers.append(answer)
        yield sample
    for text, answer in zip(texts, answers, strict=True):
        yield ask("two_in_turn", _continued(text, answer), turn=2)[0]


def _returns(lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    """Conversations are begun, then gone back to, so that 1, 2 and 4 others came since each.

    A return makes a conversation the latest one, so the order matters: of 0 to 4, the one before
    the last has one later; then the one before that has two, and the first one four.
    """
    most = max(OTHERS_BETWEEN)
    arms = {most - others: f"{AFTER}{others}" for others in OTHERS_BETWEEN}
    begun = []
    for number in range(most + 1):
        text = lab.opening() + document + _question(1)
        sample, answer = ask(arms.get(number, FILLED), _single(text), cold=True)
        begun.append((text, answer))
        yield sample
    for number in sorted(arms, reverse=True):
        yield ask(arms[number], _continued(*begun[number]), turn=2)[0]


ROWS: tuple[Row, ...] = (_repeat, _append, _questions, _head_changed, _middle_changed, _tail_cut,
                         _two_in_turn, _returns)


def changed(text: str, percent: int) -> str:
    """The text with the character at so many percent of it replaced by one that it never holds."""
    place = min(len(text) - 1, len(text) * percent // 100)
    return text[:place] + CHANGED + text[place + 1:]


def _changed_tokens(
    rng: random.Random, lab: Lab, ask: Ask, document: str
) -> Iterator[Sample]:
    text = lab.opening() + document
    yield ask(FILLED, _single(text + _question(1)), cold=True)[0]
    order = sorted(PLACES, reverse=True)
    if lab.backend.interleave_arms:
        rng.shuffle(order)
    for percent in order:
        # The first token must differ from that of every other prompt, not from this one's alone.
        other = changed(text, percent) if percent else lab.opening() + document
        yield ask(str(percent), _single(other + _question(1)), turn=2)[0]


def _stamped(by: str, lab: Lab, ask: Ask, document: str) -> Iterator[Sample]:
    text = lab.opening() + document
    for turn in range(1, STAMPED_TURNS + 1):
        now = CLOCK_START + (turn - 1) * CLOCK_STEP
        stamp = f"Current time: {now.strftime(STAMPS[by])}\n\n"
        yield ask(by, _single(stamp + text + _question(turn)), turn=turn)[0]
