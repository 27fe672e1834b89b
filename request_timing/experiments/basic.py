"""The table of all experiments, written once for both backends, and the three that run by default.

length   prefill (or TTFT) against input length, every prompt cold
output   total time against output length, on one short input
cache    one long context over several turns: appended to, and with the time put in front

Each is a function that yields Samples as they are made; the others are in files of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from request_timing.experiments.lab import WORD_TASK, Lab, Settings
from request_timing.experiments.minimum import minimum
from request_timing.experiments.restore import restore
from request_timing.experiments.reuse import ladder, position
from request_timing.experiments.savings import depth, workload
from request_timing.findings.measures import COLD
from request_timing.prompts.filler import filler
from request_timing.records.sample import Sample
from request_timing.servers.backend import ASSISTANT, USER, Message, Prompt
from request_timing.servers.timing import RequestFailed

APPEND, PREPEND = "append", "prepend"
REPEAT = "repeat"  # the positive control; cold against cold is the negative one

# So many failures in a row of one kind end an experiment.
MOST_FAILURES = 5
VOID = "void: no earlier turn of this arm was answered, so nothing was primed"
# The controls of a server that counts by itself: two turns show what it reuses.
BLOCK_CONTROL_TURNS = 2
LENGTH_OUTPUT_TOKENS = 16
CACHE_OUTPUT_TOKENS = 32
OUTPUT_INPUT_WORDS = 20

OUTPUT_TASK = "\n\nWrite the whole numbers from one upwards in English words; never stop.\n"
CACHE_TASK = "\n\nQuestion {turn}: which word stands out?\nAnswer:"


def length(lab: Lab) -> Iterator[Sample]:
    """One cold request a size and repeat; the sizes of each repeat in seeded random order.

    A size that the server's context cannot hold is asked once.
    """
    rng = lab.rng("length")
    too_long: set[int] = set()
    for repeat in range(1, lab.settings.repeats + 1):
        for size in rng.sample(lab.settings.lengths, len(lab.settings.lengths)):
            if size in too_long:
                continue
            text = lab.sized(size, f"length/{size}/{repeat}", task=WORD_TASK)
            sample, _ = lab.ask("length", str(size), (Message(USER, text),), LENGTH_OUTPUT_TOKENS,
                                repeat=repeat, cold=True)
            yield sample
            if sample.error is not None and sample.error.kind == "context":
                too_long.add(size)


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
    primed: set[str] = set()  # arms of which the server holds an earlier turn
    times_away = lab.patience.times_away
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
                                 cold=arm == COLD or (arm not in primed and arm != PREPEND))
        if lab.patience.times_away > times_away:
            primed.clear()
            times_away = lab.patience.times_away
        if turn > 1 and arm not in primed and arm != COLD:
            sample = replace(sample, notes=(*sample.notes, VOID))
        so_far.append(sample)
        yield sample
        if sample.error is None:
            primed.add(arm)
            if arm in (APPEND, PREPEND):
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


def replayed(lab: Lab) -> Iterator[Sample]:
    """The user's own captured turns; imported where there are any."""
    from request_timing.experiments.replay import replay

    return replay(lab)


# A new experiment is a function that yields Samples, and a line here. Beside that it takes its name
# among the values of --only (records/names.py), what it sends and the context it needs (plan.py), a
# table (report/) and, if it is to be drawn, a panel (pictures/).
EXPERIMENTS: dict[str, Callable[[Lab], Iterator[Sample]]] = {
    "length": length,
    "output": output,
    "cache": cache,
    "replay": replayed,
    "ladder": ladder,
    "position": position,
    "minimum": minimum,
    "depth": depth,
    "workload": workload,
    "restore": restore,
}


def run(lab: Lab) -> Iterator[Sample]:
    """Every chosen experiment, in the order of the table; one that fails leaves the others."""
    for name, experiment in EXPERIMENTS.items():
        if name in lab.settings.experiments:
            yield from _while_it_answers(name, experiment(lab), lab.on_end)


def _while_it_answers(
    name: str, samples: Iterator[Sample], on_end: Callable[[str], None]
) -> Iterator[Sample]:
    """The samples of an experiment, up to so many failures in a row of one kind."""
    kind, in_a_row = "", 0
    try:
        for sample in samples:
            yield sample
            found = sample.error.kind if sample.error is not None else ""
            kind, in_a_row = found, in_a_row + 1 if found == kind else 1
            if kind and in_a_row == MOST_FAILURES:
                on_end(f"{name} ended early: {in_a_row} failures in a row of one kind ({kind})")
                return
    except RequestFailed as failed:  # between samples, where a prompt is sized
        on_end(f"{name} ended early: the server does not answer any more ({failed})")
