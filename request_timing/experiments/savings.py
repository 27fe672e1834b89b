"""What a hit saves and what it cannot, as experiments: depth and workload.

depth      decode, and prefill of one more block, over a cached prefix of growing length
workload   a whole request, cold and as a full hit, at four shapes

Written in the manner of `basic.py`: each yields Samples as they are made. `findings/rates.py` makes
rates of them, `depth.py` and `workload.py` there say what follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from request_timing.experiments.lab import Lab, Settings, with_miss
from request_timing.prompts.filler import filler, fit_text
from request_timing.records.names import COLD_SHAPE, DEPTH, HIT_SHAPE, PRIME, WORKLOAD
from request_timing.records.sample import Sample
from request_timing.servers.backend import ASSISTANT, USER, Message, Prompt

# At this --context, the default of local_cache.py, the sizes are these; a smaller one scales them.
FULL_CONTEXT = 51_000
DEPTHS = (0, 1000, 4000, 16_000, 48_000)
CORNERS = ((40_000, 200), (14_700, 540), (5400, 1470), (2000, 4000))
LEAST_PROMPT, LEAST_OUTPUT = 16, 4

BLOCK_SHARE, BLOCK_LEAST, BLOCK_MOST = 16, 32, 256  # of the context; tokens
DEPTH_OUTPUT_TOKENS = 32
PRIME_OUTPUT_TOKENS = 8
LEAST_REPEATS = 2  # at one depth: with one, the clock could prove no prefix warm

BLOCK_TASK = "\n\nName one word of this part.\nAnswer:"
WORKLOAD_TASK = "\n\nNow write on in the manner of this text; never stop.\n"


def scale(settings: Settings) -> float:
    """How much smaller than the full sizes those of this run are: 1 from a context of 51,000."""
    return min(1.0, settings.context / FULL_CONTEXT)


def block_tokens(settings: Settings) -> int:
    """The size of the block that *depth* adds."""
    return min(BLOCK_MOST, max(BLOCK_LEAST, settings.context // BLOCK_SHARE))


def depths(settings: Settings) -> tuple[int, ...]:
    """The prefixes of *depth*, in tokens, whether they fit the server or not."""
    return (0, *(max(LEAST_PROMPT, round(scale(settings) * n)) for n in DEPTHS[1:]))


def depth_need(settings: Settings, depth: int) -> int:
    """The context that one depth takes, its prefix, blocks and answers."""
    each = block_tokens(settings) + DEPTH_OUTPUT_TOKENS
    times = depth_repeats(settings) if depth else 1
    return depth + PRIME_OUTPUT_TOKENS + times * each


def depth_repeats(settings: Settings) -> int:
    """How many blocks are added at each depth."""
    return max(LEAST_REPEATS, settings.repeats)


def corners(settings: Settings) -> tuple[tuple[int, int], ...]:
    """The (prompt, output) tokens of *workload*, whether they fit the server or not."""
    by = scale(settings)
    return tuple((max(LEAST_PROMPT, round(by * prompt)), max(LEAST_OUTPUT, round(by * output)))
                 for prompt, output in CORNERS)


def fits(settings: Settings, need: int) -> bool:
    """Whether the server's context, where it is known, holds so many tokens, and what a sized text
    may miss its size by."""
    limit = settings.limit_tokens
    return limit is None or with_miss(need) <= limit


def depth(lab: Lab) -> Iterator[Sample]:
    """At each depth a cold prefix, then blocks appended to it, of which each is answered.

    Every request but the first of a depth computes its block alone where prefixes are reused, and
    then writes the same number of tokens: both over a known context. Depths alternate request by
    request, each round in seeded random order, where a backend keeps many prefixes; else each is
    measured to its end, in random order.
    """
    settings = lab.settings
    rng = lab.rng(DEPTH)
    chosen = [n for n in depths(settings) if fits(settings, depth_need(settings, n))]
    rounds = range(1, depth_repeats(settings) + 1)
    order = rng.sample(chosen, len(chosen))
    conversations = {n: _conversation(lab, n) for n in order}
    if not lab.backend.interleave_arms:
        for n in order:
            yield from conversations[n]
        return
    for n in order:  # the cold prefixes, and the first of what has none
        yield from itertools.islice(conversations[n], 1)
    for _ in rounds:
        for n in rng.sample(chosen, len(chosen)):
            yield from itertools.islice(conversations[n], 1)


def _conversation(lab: Lab, tokens: int) -> Iterator[Sample]:
    """The requests of one depth; of depth 0, each is a new beginning."""
    settings = lab.settings
    history: Prompt = ()
    if tokens:
        history = (Message(USER, lab.sized(tokens, f"depth/{tokens}")),)
        sample, answer = lab.ask(DEPTH, f"{PRIME}{tokens}", history, PRIME_OUTPUT_TOKENS,
                                 cold=True)
        yield sample
        if sample.error is not None:
            return
        history = (*history, Message(ASSISTANT, answer))
    for repeat in range(1, depth_repeats(settings) + 1):
        block = _block(lab, f"depth/{tokens}/{repeat}")
        text = block if tokens else lab.opening() + block
        prompt = (*history, Message(USER, text))
        sample, answer = lab.ask(DEPTH, str(tokens), prompt, DEPTH_OUTPUT_TOKENS,
                                 repeat=repeat, turn=repeat + 1 if tokens else 1,
                                 cold=not tokens)
        yield sample
        if sample.error is not None:
            return
        if tokens:
            history = (*prompt, Message(ASSISTANT, answer))


def _block(lab: Lab, purpose: str) -> str:
    """New text of the block's size, with a question at its end."""
    seed = f"{lab.settings.seed}/{purpose}"
    overhead = lab.backend.head_tokens
    return fit_text(block_tokens(lab.settings),
                    lambda words: f"\n\n{filler(seed, words)}{BLOCK_TASK}",
                    lambda text: lab.count(text) - overhead)


def workload(lab: Lab) -> Iterator[Sample]:
    """Each corner cold, and at once the same again, which a prefix cache reuses in full.

    A corner whose cold request failed is not asked again.
    """
    settings = lab.settings
    rng = lab.rng(WORKLOAD)
    chosen = [c for c in corners(settings) if fits(settings, sum(c))]
    for prompt_tokens, output_tokens in rng.sample(chosen, len(chosen)):
        shape = f"{prompt_tokens}x{output_tokens}"
        text = lab.sized(prompt_tokens, f"workload/{shape}", task=WORKLOAD_TASK)
        prompt = (Message(USER, text),)
        sample, _ = lab.ask(WORKLOAD, COLD_SHAPE + shape, prompt, output_tokens, cold=True)
        yield sample
        if sample.error is not None:
            continue
        yield lab.ask(WORKLOAD, HIT_SHAPE + shape, prompt, output_tokens, turn=2)[0]


def with_note(sample: Sample, note: str) -> Sample:
    """The sample, and one more thing to know of it."""
    return replace(sample, notes=(*sample.notes, note))
