"""The bill of a run by experiment and arm, and what prepend takes more than append."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from request_timing.costs.money import (
    Cost,
    Prices,
    billed_output_tokens,
    prices_json,
    request_cost,
    sample_cost,
)
from request_timing.findings.measures import CACHE, arms, of_experiment
from request_timing.records.sample import Sample

TURNS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmBill:
    """One arm: all its requests, failed ones too, and the tokens reported.

    `unreported` of them told no usage and are in no sum; cached_tokens is None where any of the
    others told none; cost is None without prices, or where none of them told its usage.
    """

    experiment: str
    arm: str
    requests: int
    unreported: int
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    cost: Cost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What prepend takes more than append, for the input of 1,000 turns from the second on.

    The mean over the `turns` that both arms have. Answers are left out: how long they are is not
    the cache's doing. None is not known.
    """

    turns: int
    uncached_tokens: Decimal | None
    cost: Cost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The bill of a run."""

    arms: tuple[ArmBill, ...]
    total: Cost | None
    difference: Difference | None
    prices: Prices | None

    def to_json(self) -> dict[str, Any]:
        """Tokens as numbers, USD as decimal strings, null for unknown."""
        more = self.difference
        return {
            "prices": None if self.prices is None else prices_json(self.prices),
            "arms": [{
                "experiment": row.experiment, "arm": row.arm, "requests": row.requests,
                "requests_without_usage": row.unreported, "prompt_tokens": row.prompt_tokens,
                "cached_tokens": row.cached_tokens, "output_tokens": row.output_tokens,
                "cost": row.cost and row.cost.to_json()} for row in self.arms],
            "total": self.total and self.total.to_json(),
            "prepend_minus_append_per_1000_turns": None if more is None else {
                "turns": more.turns,
                "uncached_tokens": None if more.uncached_tokens is None
                else float(more.uncached_tokens),
                "input_cost": more.cost and more.cost.to_json()},
        }


def bill(samples: Sequence[Sample], prices: Prices | None) -> Bill:
    """The bill by experiment and arm, of every sample that reported its tokens."""
    rows = tuple(_arm_bill([s for s in group if s.arm == arm], prices)
                 for experiment in dict.fromkeys(s.experiment for s in samples)
                 for group in [of_experiment(samples, experiment)] for arm in arms(group))
    return Bill(
        arms=rows,
        prices=prices,
        difference=_difference(of_experiment(samples, CACHE), prices),
        total=None
        if prices is None
        else sum((row.cost for row in rows if row.cost is not None), Cost()),
    )


def _arm_bill(samples: Sequence[Sample], prices: Prices | None) -> ArmBill:
    told = [s for s in samples if s.prompt_tokens is not None and s.output_tokens is not None]
    cached = [s.cached_tokens for s in told if s.cached_tokens is not None]
    costs = [] if prices is None else [sample_cost(s, prices) for s in told]
    return ArmBill(
        experiment=samples[0].experiment, arm=samples[0].arm, requests=len(samples),
        unreported=len(samples) - len(told),
        prompt_tokens=sum(s.prompt_tokens or 0 for s in told),
        cached_tokens=sum(cached) if told and len(cached) == len(told) else None,
        output_tokens=sum(billed_output_tokens(s) or 0 for s in told),
        cost=sum((c for c in costs if c is not None), Cost()) if costs else None,
    )


def _difference(samples: Sequence[Sample], prices: Prices | None) -> Difference | None:
    arm = {name: {s.turn: s for s in samples if s.arm == name and s.turn > 1 and s.counts
                  and s.prompt_tokens is not None} for name in ("append", "prepend")}
    turns = sorted(arm["append"].keys() & arm["prepend"].keys())
    if not turns:
        return None
    pairs = [(arm["append"][turn], arm["prepend"][turn]) for turn in turns]
    fresh = [[None if s.cached_tokens is None or s.cached_tokens > (s.prompt_tokens or 0)
              else (s.prompt_tokens or 0) - s.cached_tokens for s in pair] for pair in pairs]
    known = [b - a for a, b in fresh if a is not None and b is not None]
    cost = None
    if prices is not None:
        paid = sum((_input_cost(b, prices) - _input_cost(a, prices) for a, b in pairs), Cost())
        cost = Cost(low_usd=TURNS * paid.low_usd / len(turns),
                    high_usd=TURNS * paid.high_usd / len(turns))
    return Difference(
        turns=len(turns), cost=cost, uncached_tokens=Decimal(TURNS * sum(known)) / len(turns)
        if len(known) == len(turns) else None)


def _input_cost(sample: Sample, prices: Prices) -> Cost:
    return request_cost(prices, sample.prompt_tokens or 0, sample.cached_tokens, 0)
