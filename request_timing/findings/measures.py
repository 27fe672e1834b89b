"""From samples to figures: the medians and totals that tables, JSON and pictures share.

Pure functions over the samples of one run. A sample that failed, or was not cold where it had
to be, enters no figure here; how many were left out is counted beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from request_timing.records.sample import Sample
from request_timing.stats.compare import ratio, spread
from request_timing.stats.fits import Line, typical_line

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

CACHE = "cache"
AS_SENT, WHAT_IF, COLD = "as_sent", "what_if", "cold"  # of a replay
REPLAYED = {AS_SENT: "as sent", WHAT_IF: "mended", COLD: "cold"}  # the same in words
ARMS = ("append", "prepend", "repeat", AS_SENT, WHAT_IF, COLD)
# Where the first turn of an arm has nothing to reuse, or only fills the cache.
FROM_TURN_2 = (CACHE, "replay", "ladder", "position", "minimum")

Figure = Callable[["Sample"], "float | None"]


def prefill_s(sample: Sample) -> float | None:
    """Seconds of prefill as the server measured them."""
    server = sample.server
    return None if server is None or server.prompt_ms is None else server.prompt_ms / 1000


def prefill_s_per_token(sample: Sample) -> float | None:
    """Seconds of prefill a prompt token computed; a table shows its inverse, tokens/s.

    The tokens computed, not the whole prompt: a reused token took no prefill. None after a full
    hit (one token computed), which says nothing of the speed of prefill.
    """
    server = sample.server
    if server is None or server.prompt_n is None or server.prompt_n < 2:
        return None
    return ratio(prefill_s(sample), server.prompt_n)


def decode_s(sample: Sample) -> float | None:
    """Seconds of decode as the server measured them."""
    server = sample.server
    return None if server is None or server.predicted_ms is None else server.predicted_ms / 1000


def decode_s_per_token(sample: Sample) -> float | None:
    """Seconds a token of decode.

    A llama-server's predicted_ms begins when the first token is there, so it spans
    predicted_n - 1 steps; None where there was no second token.
    """
    server = sample.server
    if server is None or server.predicted_n is None or server.predicted_n < 2:
        return None
    return ratio(decode_s(sample), server.predicted_n - 1)


def recomputed_tokens(sample: Sample) -> int | None:
    """Prompt tokens the server computed: its own count, else prompt minus cached."""
    if sample.server is not None and sample.server.prompt_n is not None:
        return sample.server.prompt_n
    if sample.prompt_tokens is None or sample.cached_tokens is None:
        return None
    left = sample.prompt_tokens - sample.cached_tokens
    return left if left >= 0 else None  # more cached than there is: a count that means nothing


FIGURES: dict[str, Figure] = {
    "prompt_tokens": lambda s: s.prompt_tokens,
    "cached_tokens": lambda s: s.cached_tokens,
    "recomputed_tokens": recomputed_tokens,
    "output_tokens": lambda s: s.output_tokens,
    "ttft_s": lambda s: s.ttft_s,
    "total_s": lambda s: s.total_s,
    "inter_token_s": lambda s: s.inter_token_s,
    "inter_chunk_s": lambda s: s.inter_chunk_s,
    "prefill_s": prefill_s,
    "prefill_s_per_token": prefill_s_per_token,
    "decode_s": decode_s,
    "decode_s_per_token": decode_s_per_token,
}


def of_experiment(samples: Iterable[Sample], experiment: str) -> list[Sample]:
    """The samples of one experiment, in the order they were made."""
    return [sample for sample in samples if sample.experiment == experiment]


def arms(samples: Iterable[Sample]) -> list[str]:
    """The arms that occur: those of `ARMS`, then others as they came, sizes by size (a name may
    end with one: host/4000)."""
    seen = dict.fromkeys(sample.arm for sample in samples)
    others = [arm for arm in seen if arm not in ARMS]
    return [arm for arm in ARMS if arm in seen] + sorted(others, key=_by_size)


def _by_size(arm: str) -> tuple[str, int]:
    name, _, size = arm.rpartition("/")
    return (name, int(size)) if size.isdecimal() else ("", 0)


def valid(samples: Iterable[Sample], arm: str, *, from_turn: int = 1) -> list[Sample]:
    """The samples of one arm that may enter an average."""
    return [s for s in samples if s.arm == arm and s.counts and s.turn >= from_turn]


def median(samples: Iterable[Sample], figure: Figure) -> float | None:
    """The median of a figure where it is known; None where it is known of no sample."""
    values = spread(map(figure, samples))
    return values.median if values else None


def total(samples: Sequence[Sample], figure: Figure) -> float | None:
    """The sum of a figure over samples; None where it is unknown of any, or there is none."""
    values = [figure(sample) for sample in samples]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def line(samples: Sequence[Sample], x: Figure, y: Figure) -> Line | None:
    """The typical line of y against x over the samples that count."""
    chosen = [sample for sample in samples if sample.counts]
    if len({sample.arm for sample in chosen}) < 2:
        return None  # one size asked for: what x differs by is the rounding of sizes
    return typical_line([x(s) for s in chosen], [y(s) for s in chosen])


def summarise(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One object an arm: how many samples, and the spread of each figure (null: unknown).

    Where the first turn of an arm can have nothing to reuse, the spreads are of the turns from
    the second on; `totals` of *cache* are over all turns.
    """
    rows: list[dict[str, Any]] = []
    for experiment in dict.fromkeys(sample.experiment for sample in samples):
        chosen_samples = of_experiment(samples, experiment)
        from_turn = 2 if experiment in FROM_TURN_2 else 1
        for arm in arms(chosen_samples):
            all_of_arm = [s for s in chosen_samples if s.arm == arm]
            chosen = valid(chosen_samples, arm, from_turn=from_turn)
            row: dict[str, Any] = {
                "experiment": experiment, "arm": arm, "from_turn": from_turn, "n": len(chosen),
                "n_failed": sum(s.error is not None for s in all_of_arm),
                "n_left_out": sum(s.error is None and not s.counts for s in all_of_arm),
            }
            for name, figure in FIGURES.items():
                values = spread(map(figure, chosen))
                row[name] = None if values is None else asdict(values)
            if experiment in (CACHE, "replay"):
                counted = valid(chosen_samples, arm)
                row["totals"] = {
                    name: total(counted, FIGURES[name])
                    for name in ("prompt_tokens", "recomputed_tokens", "prefill_s", "ttft_s")
                }
            rows.append(row)
    return rows


def spent_tokens(sample: Sample) -> int:
    """Input tokens of a request as reported; where not, four characters to a token."""
    if sample.prompt_tokens is not None:
        return sample.prompt_tokens
    return sample.prompt_chars // 4
