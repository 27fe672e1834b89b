"""What a plan can cost at most, and where --max-cost stops a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from request_timing.costs.money import (
    HEAD_TOKENS_AT_MOST,
    TOKENS_PER_CHAR_AT_MOST,
    ZERO,
    Prices,
    billed_output_tokens,
    spent_at_most,
    stop_line,
    upper_bound,
)
from request_timing.experiments.lab import Settings, Stopped
from request_timing.experiments.plan import (
    DOCUMENT_SAMPLE_CHARS,
    FILLER_BYTES_PER_WORD,
    Planned,
    calibration,
    calibration_words,
)
from request_timing.records.sample import Sample


def within(max_cost: Decimal, prices: Prices, samples: Sequence[Sample], *,
           before: Decimal = ZERO, tokens_per_char: int = TOKENS_PER_CHAR_AT_MOST
           ) -> Callable[[int, int], None]:
    """What is called before each request with the most tokens of its prompt and its answer, and
    raises Stopped where --max-cost could be passed. `samples` are those so far, and grow; `before`
    is what was spent before the first of them. An endpoint that wrote more than it was asked to is
    taken to do so again."""
    def check(prompt_tokens: int, output_tokens: int) -> None:
        spent = before + spent_at_most(samples, prices, tokens_per_char=tokens_per_char)
        times = max([1.0, *(written / s.asked_output_tokens for s in samples
                            if (written := billed_output_tokens(s)))])
        most = math.ceil(output_tokens * times)
        line = stop_line(max_cost, spent, upper_bound(prices, prompt_tokens, most))
        if line is not None:
            raise Stopped(line)

    return check


def calibration_bound(settings: Settings, prices: Prices) -> Decimal:
    """The most that the requests before a run can cost: a token of each byte of their texts, and
    of each a head (chat template, the provider's own system prompt)."""
    sample = TOKENS_PER_CHAR_AT_MOST * min(len(settings.document or ""), DOCUMENT_SAMPLE_CHARS)
    planned = calibration(settings)
    tokens = (FILLER_BYTES_PER_WORD * sum(calibration_words(settings)) + sample
              + planned.requests * HEAD_TOKENS_AT_MOST)
    return upper_bound(prices, tokens, planned.output_tokens)


def estimate(planned: Iterable[Planned], prices: Prices) -> dict[str, Decimal]:
    """The most that each experiment of a plan can cost: nothing cached, answers at full length.

    As good as the plan's tokens, which are rough where nothing can count yet.
    """
    return {part.experiment: upper_bound(prices, part.input_tokens, part.output_tokens)
            for part in planned}
