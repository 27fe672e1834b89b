"""What a run is going to send: known before the first token is spent, and cut to what fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from experiments import (
    CACHE_OUTPUT_TOKENS,
    CACHE_TASK,
    LENGTH_OUTPUT_TOKENS,
    OUTPUT_INPUT_WORDS,
    OUTPUT_TASK,
    STAMP,
    Settings,
)

# Bytes rather than characters: four of them are about a token of English as well as of Chinese.
BYTES_PER_TOKEN = 4
# A context is given in these steps, which is what llama.cpp rounds to.
CONTEXT_STEP = 256
CONTEXT_SLACK = 512
# A cloud API is first asked these two, not counted: they warm the connection, and the difference
# of their reported sizes gives tokens a character.
CALIBRATION_WORDS = 20, 1000
CALIBRATION_OUTPUT_TOKENS = 8
FILLER_TOKENS_PER_WORD = 3


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


def plan(settings: Settings, count: Callable[[str], int] = estimate_tokens) -> list[Planned]:
    """What each chosen experiment will send, in the order of `settings.experiments`."""
    turn = count(CACHE_TASK) + CACHE_OUTPUT_TOKENS
    turns, repeats = settings.turns, settings.repeats
    context = settings.context if settings.document is None else count(settings.document)
    short = count(OUTPUT_TASK) + FILLER_TOKENS_PER_WORD * OUTPUT_INPUT_WORDS
    sizes = {
        "length": (len(settings.lengths) * repeats, sum(settings.lengths) * repeats,
                   len(settings.lengths) * repeats * LENGTH_OUTPUT_TOKENS),
        "output": (len(settings.outputs) * repeats, short * len(settings.outputs) * repeats,
                   sum(settings.outputs) * repeats),
        # Two arms, and the history grows by a question and an answer a turn.
        "cache": (2 * turns, 2 * (turns * context + turn * turns * (turns + 1) // 2),
                  2 * turns * CACHE_OUTPUT_TOKENS),
    }
    return [
        Planned(experiment=name, requests=sizes[name][0], input_tokens=sizes[name][1],
                output_tokens=sizes[name][2])
        for name in settings.experiments
    ]


def calibration() -> Planned:
    """The requests that come before those of the experiments, where a server cannot count."""
    n = len(CALIBRATION_WORDS)
    return Planned(experiment="calibration", requests=n,
                   input_tokens=FILLER_TOKENS_PER_WORD * sum(CALIBRATION_WORDS),
                   output_tokens=n * CALIBRATION_OUTPUT_TOKENS)


def fit_context(
    settings: Settings, context_tokens: int, slots: int, count: Callable[[str], int],
    *, can_restart: bool = True,
) -> tuple[Settings, list[str]]:
    """The settings without what `context_tokens` (of one slot) cannot hold, and a line for each.

    `can_restart`: the server is the user's, who can give it a larger -c.
    An experiment of which nothing is left goes too; if none is left, `experiments` is empty.
    """
    lines: list[str] = []

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
            f"length {n:,}", n + LENGTH_OUTPUT_TOKENS, "give other --lengths"))
    if "output" in chosen:
        short = count(OUTPUT_TASK) + count("word ") * 2 * OUTPUT_INPUT_WORDS
        outputs = tuple(n for n in outputs if fits(
            f"output {n:,}", n + short, "give other --outputs"))
    if "cache" in chosen:
        own = settings.document is not None
        context = count(settings.document) if settings.document else settings.context
        turn = count(CACHE_TASK) + CACHE_OUTPUT_TOKENS
        frame = count(STAMP) + turn * settings.turns
        if not fits("cache", context + frame,
                    "give a shorter --doc" if own else "give a smaller --context"):
            chosen.remove("cache")
    for name, sizes in (("length", lengths), ("output", outputs)):
        if name in chosen and not sizes:
            chosen.remove(name)
    return replace(settings, experiments=tuple(chosen), lengths=lengths, outputs=outputs), lines


def context_needed(settings: Settings) -> int:
    """The context that a server must be started with so that everything asked for fits.

    On the safe side where nothing can count yet: two bytes of a document to a token, and room
    for a chat template.
    """
    turn = estimate_tokens(CACHE_TASK) * 2 + CACHE_OUTPUT_TOKENS
    document = settings.document
    context = settings.context if document is None else len(document.encode()) // 2
    sizes = {
        "length": max(settings.lengths) + LENGTH_OUTPUT_TOKENS,
        "output": max(settings.outputs),
        "cache": context + turn * settings.turns,
    }
    need = max(sizes[name] for name in settings.experiments) + CONTEXT_SLACK
    return -(-need // CONTEXT_STEP) * CONTEXT_STEP


def start_with(need: int, slots: int) -> str:
    """The -c that gives one slot `need` tokens: a server's context is shared by its slots."""
    per_slot = -(-need // CONTEXT_STEP) * CONTEXT_STEP
    return f"{per_slot * slots}" + (f" (or {per_slot} with -np 1)" if slots > 1 else "")


def describe(planned: list[Planned], *, rough: bool) -> str:
    """Two lines for people: requests and tokens in all, then by experiment."""
    parts = ", ".join(f"{p.experiment} {p.requests} ({p.input_tokens:,} in)" for p in planned)
    about = "about " if rough else ""
    return (f"plan: {sum(p.requests for p in planned)} requests, {about}"
            f"{sum(p.input_tokens for p in planned):,} input tokens, at most "
            f"{sum(p.output_tokens for p in planned):,} output tokens\n      {parts}")
