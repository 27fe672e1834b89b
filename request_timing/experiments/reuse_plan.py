"""How much *ladder*, *position* and *minimum* are going to send, for `plan.py`."""

from __future__ import annotations

from collections.abc import Callable

from request_timing.experiments.lab import Settings
from request_timing.experiments.minimum import BUDGET_TOKENS, TAILS, most_prefix_tokens
from request_timing.experiments.minimum import OUTPUT_TOKENS as PROBE_OUTPUT_TOKENS
from request_timing.experiments.reuse import (
    OTHERS_BETWEEN,
    OUTPUT_TOKENS,
    QUESTION,
    STAMPED_TURNS,
    TAIL_SHARE,
    document_tokens,
    rounds,
)
from request_timing.records.names import LADDER, MINIMUM, PLACES, POSITION, STAMPS

SHAPES = (LADDER, POSITION, MINIMUM)
# Of a round: two of each row, three of the questions, four of the two conversations in turn; the
# conversations that are begun, and gone back to.
LADDER_REQUESTS = 5 * 2 + 3 + 4 + max(OTHERS_BETWEEN) + 1 + len(OTHERS_BETWEEN)
POSITION_REQUESTS = 1 + len(PLACES) + STAMPED_TURNS * len(STAMPS)
COLD_REQUESTS = 2  # of a round, where arms are interleaved
BISECTIONS = 3  # doubling and bisecting, and the same again for the step
LONGEST_TOKEN_CHARS = 8  # lengths are told apart by the character


def largest_prompt(settings: Settings, name: str) -> int:
    """Tokens of the longest prompt of one of them, but for questions, answers and stamps."""
    if name == MINIMUM:
        return most_prefix_tokens(settings)
    tokens = document_tokens(settings)
    return tokens + tokens // TAIL_SHARE * (name == LADDER)


def sent(settings: Settings, count: Callable[[str], int], *, interleave: bool
         ) -> dict[str, tuple[int, int, int]]:
    """Of each: requests, input tokens and output tokens, at the most.

    Where cached tokens are reported it is two rounds of eight or more, and less of *minimum*.
    """
    times = rounds(settings, counted=False) if interleave else 1
    found = {}
    for name, requests in ((LADDER, LADDER_REQUESTS), (POSITION, POSITION_REQUESTS)):
        all_of_it = times * (requests + COLD_REQUESTS * interleave)
        size = document_tokens(settings) + count(QUESTION) + OUTPUT_TOKENS
        found[name] = (all_of_it, all_of_it * size, all_of_it * OUTPUT_TOKENS)
    longest = most_prefix_tokens(settings) + count(TAILS[0])
    budget = settings.max_tokens or BUDGET_TOKENS
    steps = BISECTIONS * (LONGEST_TOKEN_CHARS * most_prefix_tokens(settings)).bit_length()
    pairs = budget // (2 * longest) + 1 if interleave else steps
    tokens = min(budget, 2 * pairs * longest)
    found[MINIMUM] = (2 * pairs, tokens, 2 * pairs * PROBE_OUTPUT_TOKENS)
    return found
