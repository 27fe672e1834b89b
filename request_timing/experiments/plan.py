"""What a run is going to send: known before the first token is spent, and cut to what fits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from request_timing.experiments import savings_plan
from request_timing.experiments.basic import (
    APPEND,
    CACHE_OUTPUT_TOKENS,
    CACHE_TASK,
    LENGTH_OUTPUT_TOKENS,
    OUTPUT_INPUT_WORDS,
    OUTPUT_TASK,
    PREPEND,
    schedule,
)
from request_timing.experiments.lab import SIZE_MISS, STAMP, Settings, with_miss
from request_timing.experiments.reuse_plan import SHAPES, largest_prompt, sent
from request_timing.prompts.filler import cut_text, nonces

# Bytes rather than characters: four of them are about a token of English as well as of Chinese.
BYTES_PER_TOKEN = 4
# A context is given in these steps, which is what llama.cpp rounds to.
CONTEXT_STEP = 256
CONTEXT_SLACK = 512
SHAPES_LEAST_TOKENS = 256  # with a shorter document a shape of reuse shows nothing
# A cloud API is first asked two texts, not counted: they warm the connection, and the difference
# of their reported sizes gives tokens a character. The second is a share of the largest prompt.
CALIBRATION_SHARE = 0.1
CALIBRATION_WORDS = 20, 100, 1000  # the first; the second at least, and at most
CALIBRATION_OUTPUT_TOKENS = 8
FILLER_TOKENS_PER_WORD = 3
FILLER_BYTES_PER_WORD = 7
DOCUMENT_SAMPLE_CHARS = 4000  # of the user's document, where it is counted by a piece of it


def estimate_tokens(text: str) -> int:
    """A rough size where nothing can count yet; for plans only, never for a figure."""
    return max(1, len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One experiment's share of a run."""

    experiment: str
    requests: int
    input_tokens: int
    output_tokens: int
    waiting_s: int = 0  # between requests


def plan(
    settings: Settings, count: Callable[[str], int] = estimate_tokens, *, interleave: bool = True
) -> list[Planned]:
    """What each chosen experiment will send, in the order of `settings.experiments`.

    With --until-sure, what it will send at the most.
    """
    turn = count(CACHE_TASK) + CACHE_OUTPUT_TOKENS
    repeats = settings.repeats
    context = document_size(settings, count)
    short = count(OUTPUT_TASK) + FILLER_TOKENS_PER_WORD * OUTPUT_INPUT_WORDS
    asked = list(schedule(settings, interleave, random.Random(0)))
    # The history of the two conversations grows by a question and an answer a turn.
    grown = sum(turn * n for arm, n, _ in asked if arm in (APPEND, PREPEND))
    turns = [len(turn.raw) // BYTES_PER_TOKEN for turn in settings.captured]
    arms = 1 + bool(settings.mended) + interleave  # the control, where only the clock speaks
    sizes = {
        "replay": (len(turns) * arms, sum(turns) * arms, len(turns) * arms),
        "length": (len(settings.lengths) * repeats, sum(settings.lengths) * repeats,
                   len(settings.lengths) * repeats * LENGTH_OUTPUT_TOKENS),
        "output": (len(settings.outputs) * repeats, short * len(settings.outputs) * repeats,
                   sum(settings.outputs) * repeats),
        "cache": (len(asked), len(asked) * context + grown, len(asked) * CACHE_OUTPUT_TOKENS),
        **savings_plan.sent(settings, native=not interleave),
    } | sent(settings, count, interleave=interleave)
    waits_s = savings_plan.waiting_s(settings, native=not interleave)
    return [
        Planned(experiment=name, requests=sizes[name][0], input_tokens=sizes[name][1],
                output_tokens=sizes[name][2], waiting_s=waits_s if name == "restore" else 0)
        for name in settings.experiments if name != "fit"
    ]


def calibration_words(settings: Settings) -> tuple[int, int]:
    """The sizes of the two requests that come first where a server cannot count, in words."""
    first, least, most = CALIBRATION_WORDS
    asked = {"length": max(settings.lengths), "output": 0, "fit": 0, "replay": 0,
             "cache": document_size(settings, estimate_tokens)}
    asked |= {name: largest_prompt(settings, name) for name in SHAPES}
    largest = max(asked.get(name, settings.context) for name in settings.experiments)
    share = round(CALIBRATION_SHARE * largest)
    return first, min(max(share, least), most)


def calibration(settings: Settings) -> Planned:
    """Those two requests, and one of a piece of the document."""
    words = calibration_words(settings)
    sample = (settings.document or "")[:DOCUMENT_SAMPLE_CHARS]
    requests = len(words) + bool(sample)
    return Planned(experiment="calibration", requests=requests,
                   input_tokens=FILLER_TOKENS_PER_WORD * sum(words)
                   + (estimate_tokens(sample) if sample else 0),
                   output_tokens=requests * CALIBRATION_OUTPUT_TOKENS)


def document_size(settings: Settings, count: Callable[[str], int]) -> int:
    """Tokens of the document of *cache*: the filler's, the user's, or what is to be left of it."""
    if settings.document is None:
        return settings.context
    if settings.document_tokens is None:
        return count(settings.document)
    # A token has a byte at least: a text of fewer bytes need not be cut, and is not counted here.
    return min(settings.document_tokens, len(settings.document.encode("utf-8", "replace")))


def cut_document(settings: Settings, count: Callable[[str], int]) -> Settings:
    """The settings with the document cut to its first `document_tokens`, by the server's count."""
    if settings.document is None or settings.document_tokens is None:
        return settings
    cut = cut_text(settings.document, settings.document_tokens, count)
    return replace(settings, document=cut, document_tokens=None)


def fit_context(
    settings: Settings, context_tokens: int | None, slots: int, count: Callable[[str], int],
    *, can_restart: bool = True, native: bool = True,
) -> tuple[Settings, list[str]]:
    """The settings without what `context_tokens` (of one slot) cannot hold, and a line for each.

    `can_restart`: the server is the user's, who can give it a larger -c.
    An experiment of which nothing is left goes too; if none is left, `experiments` is empty. Of
    a server that does not say its context (None), all is tried.
    """
    if context_tokens is None:
        return settings, []
    lines: list[str] = []
    opening = count(next(nonces())) + 2

    def fits(what: str, need: int, remedy: str) -> bool:
        if need <= context_tokens:
            return True
        restart = f"start it with -c {start_with(need, slots)}, or " if can_restart else ""
        lines.append(f"{what} left out: needs {need:,} tokens of context, the server has "
                     f"{context_tokens:,} a slot; {restart}{remedy}")
        return False

    chosen = list(settings.experiments)
    lengths, outputs = settings.lengths, settings.outputs
    if "length" in chosen:
        lengths = tuple(n for n in lengths if fits(
            f"length {n:,}", with_miss(n) + LENGTH_OUTPUT_TOKENS, "give other --lengths"))
    if "output" in chosen:
        short = count(OUTPUT_TASK) + count("word ") * 2 * OUTPUT_INPUT_WORDS
        outputs = tuple(n for n in outputs if fits(
            f"output {n:,}", n + short + opening, "give other --outputs"))
    if "cache" in chosen:
        own = settings.document is not None
        context = document_size(settings, count) if own else with_miss(settings.context)
        turn = count(CACHE_TASK) + CACHE_OUTPUT_TOKENS
        turns = max(settings.turns, settings.max_turns)
        frame = count(STAMP.format(now=datetime.now(UTC))) + opening + turn * turns
        if not fits("cache", context + frame,
                    "give a shorter --doc" if own else "give a smaller --context"):
            chosen.remove("cache")
    if (shapes := [name for name in chosen if name in SHAPES]) and "cache" not in chosen:
        # They take what there is: their documents are a share of the context.
        room = max(0, math.floor((context_tokens - CONTEXT_SLACK) / (1 + SIZE_MISS)))
        settings = replace(settings, context=min(settings.context, room))
        for name in shapes:
            if not fits(name, SHAPES_LEAST_TOKENS + CONTEXT_SLACK, "leave it out"):
                chosen.remove(name)
    for name, sizes in (("length", lengths), ("output", outputs)):
        if name in chosen and not sizes:
            chosen.remove(name)
    more = savings_plan.sizes(settings, native=native)
    fitting = {size.experiment for size in more
               if fits(size.what, with_miss(size.need_tokens), size.remedy)}
    for name in {size.experiment for size in more} - fitting:
        chosen.remove(name)
    if chosen == ["fit"]:
        chosen.remove("fit")
    return replace(settings, experiments=tuple(chosen), lengths=lengths, outputs=outputs,
                   limit_tokens=context_tokens), lines


def context_needed(settings: Settings) -> int:
    """The context that a server must be started with so that everything asked for fits.

    Nothing can count yet, and no tokenizer makes more than a token of a byte: that is what a
    document and every other text is given, with room for a chat template. llama.cpp cuts it to
    what the model was made for.
    """
    turn = len(CACHE_TASK) + CACHE_OUTPUT_TOKENS
    document = settings.document
    context = with_miss(settings.context) if document is None else len(document.encode())
    if settings.document_tokens is not None:
        context = min(context, settings.document_tokens)
    sizes = {
        "replay": max((len(turn.raw) for turn in settings.captured), default=0),
        "length": with_miss(max(settings.lengths)) + LENGTH_OUTPUT_TOKENS,
        "output": max(settings.outputs) + len(OUTPUT_TASK),
        "cache": context + turn * max(settings.turns, settings.max_turns),
        "fit": 0,
    } | {name: with_miss(largest_prompt(settings, name)) for name in SHAPES}
    for size in savings_plan.sizes(settings, native=True):
        sizes[size.experiment] = max(sizes.get(size.experiment, 0), with_miss(size.need_tokens))
    need = max(sizes.get(name, 0) for name in settings.experiments)
    need = max(need, calibration_words(settings)[1] * FILLER_BYTES_PER_WORD) + CONTEXT_SLACK
    return whole_steps(need)


def whole_steps(tokens: int) -> int:
    """The smallest context, in the steps that a server takes, that holds so many tokens."""
    return -(-tokens // CONTEXT_STEP) * CONTEXT_STEP


def start_with(need: int, slots: int) -> str:
    """The -c that gives one slot `need` tokens: a server's context is shared by its slots."""
    per_slot = whole_steps(need)
    return f"{per_slot * slots}" + (f" (or {per_slot} with -np 1)" if slots > 1 else "")


def describe(planned: list[Planned], *, rough: bool) -> str:
    """Lines for people: requests and tokens in all, then by experiment."""
    about = "about " if rough else ""
    parts = "".join(f"\n      {p.experiment}: {_requests(p.requests)}, {p.input_tokens:,} "
                    f"input tokens{f', {p.waiting_s:,} s of waiting' if p.waiting_s else ''}"
                    for p in planned)
    return (f"plan: {_requests(sum(p.requests for p in planned))}, {about}"
            f"{sum(p.input_tokens for p in planned):,} input tokens, at most "
            f"{sum(p.output_tokens for p in planned):,} output tokens{parts}")


def _requests(n: int) -> str:
    return f"{n} request{'s' if n != 1 else ''}"
