"""Whether a prompt that was sent before was found in a cache, by one rule for all experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

FOUND_SHARE = 0.5  # of the prompt reused, from which it was found
FASTER_SHARE = 0.5  # of the first TTFT, below which the second is consistent with a hit


def was_found(sample: Sample) -> bool:
    """Whether most of the prompt came back, by the server's count."""
    return (sample.reported_reuse or 0.0) >= FOUND_SHARE


def was_found_again(first: Sample, again: Sample) -> bool | None:
    """The same of a second request: by count, else by a first token in less than half the time;
    None where neither is known."""
    if again.reported_reuse is not None:
        return was_found(again)
    if not first.ttft_s or again.ttft_s is None:
        return None
    return again.ttft_s < FASTER_SHARE * first.ttft_s


def took_time(sample: Sample) -> bool:
    """Whether the pieces of an answer came one after the other, as a model writes them."""
    return sample.total_s != sample.ttft_s


def came_whole(first: Sample, again: Sample) -> bool:
    """Whether the second answer came in one go and the first did not: from a cache of whole
    answers, which is no reuse of a prefix."""
    pieces = min(len(first.arrivals_s), len(again.arrivals_s))
    return pieces > 1 and took_time(first) and not took_time(again)
