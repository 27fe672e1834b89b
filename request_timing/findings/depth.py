"""What follows from the length sweep (fit) and from depth: what a prompt and a token cost.

Pure functions over the samples of one run; `report/savings_tables.py` draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from request_timing.findings.measures import median, of_experiment, prefill_s, recomputed_tokens
from request_timing.findings.rates import (
    LINEAR,
    QUADRATIC,
    SUBLINEAR,
    UNDECIDED,
    Prefill,
    decode_of,
    depth_points,
    prefill_of,
)
from request_timing.findings.verdict import Verdict
from request_timing.formats import between, ms, percent
from request_timing.records.names import DEPTH, LENGTH, PRIME
from request_timing.stats.compare import LEVEL
from request_timing.stats.fits import Fit, fit_relative

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

SLOWER, STEADY, NO_RATE = "slower", "steady", "no_rate"
# Of the decode time, from the shallowest context to the deepest: within this it is steady.
STEADY_SHARE = 0.10
WARM_SHARE = 0.5  # of the prefix reused, from which it was warm


def fit_finding(samples: Sequence[Sample]) -> Verdict | None:
    """Whether TTFT grows linearly with the prompt, from what fixed part, and what of it a cache
    could remove; None where nothing of *length* was asked."""
    if not of_experiment(samples, LENGTH):
        return None
    fitted = prefill_of(samples)
    if fitted is None:
        return Verdict(experiment="fit", arm="prefill", code=UNDECIDED,
                       text="At least three cold requests of two sizes are needed; give more "
                       "--lengths or --repeats.")
    lines = [_shape_of(fitted), _fixed_part(fitted)]
    evidence: dict[str, Any] = {}
    for name, (value, interval) in zip(
            ("fixed_s", "s_per_token", "s_per_token_squared"), fitted.terms, strict=False):
        evidence |= {name: value, f"{name}_interval": interval}
    evidence |= {
        "quadratic_share": fitted.share, "quadratic_share_interval": fitted.share_interval,
        "removable_share": {str(n): fitted.removable(n)
                            for n in (fitted.shortest, fitted.longest)},
        "removable_share_at_least": {str(n): fitted.removable_at_least(n)
                                     for n in (fitted.shortest, fitted.longest)},
        "n": fitted.fit.n, "shortest": fitted.shortest, "longest": fitted.longest}
    return Verdict(experiment="fit", arm="prefill", code=fitted.kind, text="\n".join(lines),
                   evidence=evidence)


def _shape_of(fitted: Prefill) -> str:
    range_ = f"From {fitted.shortest:,} to {fitted.longest:,} tokens"
    if fitted.share is None or fitted.share_interval is None:
        return (f"{range_} no curve can be told from a line: that takes three --lengths and four "
                "requests.")
    low, high = fitted.share_interval
    at = (f"{percent(fitted.share)} of TTFT at {fitted.longest:,} tokens (95 %: {percent(low)} to "
          f"{percent(high)})")
    return {
        QUADRATIC: f"{range_} there is a quadratic term: {at}.",
        SUBLINEAR: f"{range_} TTFT grows more slowly than the prompt: longer prompts are read "
                   f"faster a token. The curve's last term is {at}.",
        LINEAR: f"{range_} TTFT grows in proportion: a quadratic term would be {at}.",
    }.get(fitted.kind, f"{range_} a quadratic term of {at} is neither shown nor ruled out; more "
                       "--repeats or longer --lengths would tell. It is fitted as a line.")


def _fixed_part(fitted: Prefill) -> str:
    fixed, interval = fitted.terms[0]
    shares = []
    for tokens in (fitted.shortest, fitted.longest):
        least = fitted.removable_at_least(tokens)
        sure = "" if least is None else f" ({percent(least)} at least)"
        shares.append(f"{percent(fitted.removable(tokens))}{sure} of TTFT at {tokens:,} tokens")
    of_it = ", ".join(shares)
    told = f"{ms(fixed)} ms {between(interval, 1000)}"
    if interval is not None and interval[0] <= 0:
        return f"The fixed part, {told}, can't be told from none; a cache could remove {of_it}."
    return f"A cache can't remove the fixed part, {told}; it could remove {of_it}."


def fresh_tokens(sample: Sample, earlier: Sample | None) -> int | None:
    """The prompt tokens that were new in a request of *depth*: counted by the server, or what its
    prompt has beyond the one before and its answer."""
    if sample.server is not None or earlier is None:
        return recomputed_tokens(sample) if earlier is not None else sample.prompt_tokens
    sizes = sample.prompt_tokens, earlier.prompt_tokens, earlier.output_tokens
    if sizes[0] is None or sizes[1] is None or sizes[2] is None:
        return None
    return sizes[0] - sizes[1] - sizes[2]


def before(samples: Sequence[Sample], sample: Sample) -> Sample | None:
    """The request of *depth* that this one went on from; None at depth 0."""
    if sample.arm == "0":
        return None
    return next((s for s in of_experiment(samples, DEPTH) if s.turn == sample.turn - 1
                 and s.arm in (sample.arm, PRIME + sample.arm)), None)


def block_s(sample: Sample) -> float | None:
    """Seconds of reading the block: the server's prefill, or TTFT."""
    return prefill_s(sample) or sample.ttft_s


def block_fit(samples: Sequence[Sample]) -> Fit | None:
    """Seconds of one more block against the prompt before it, one median a depth, of the depths
    whose prefix was reused or that have none."""
    xs: list[float] = []
    ys: list[float] = []
    for depth, at_depth in depth_points(samples).items():
        if depth and is_warm(samples, depth) is False:
            continue
        x, y = median(at_depth, lambda s: s.prompt_tokens), median(at_depth, block_s)
        if x is not None and y:
            xs.append(x)
            ys.append(y)
    return fit_relative([(1.0, x) for x in xs], ys) if len(xs) > 1 else None


def is_warm(samples: Sequence[Sample], depth: int) -> bool | None:
    """Whether the prefix of a depth was reused: by count, else by the clock; None at depth 0 or
    where nothing is known. By the clock: every request over the prefix had its first token sooner
    than the shorter, cold one that read it."""
    at_depth = depth_points(samples).get(depth, [])
    if not depth or not at_depth:
        return None
    reused = [r for s in at_depth if (r := s.reported_reuse) is not None]
    if reused:
        # All of the prefix but a block of the cache; a block of ours is new in any case.
        return all((s.cached_tokens or 0) >= WARM_SHARE * depth for s in at_depth)
    cold = [s.ttft_s for s in of_experiment(samples, DEPTH)
            if s.arm == f"{PRIME}{depth}" and s.counts and s.ttft_s]
    warm = [s.ttft_s for s in at_depth if s.ttft_s]
    return max(warm) < min(cold) if cold and warm else None


def warm_words(samples: Sequence[Sample]) -> str:
    """How it is known that the prefixes were warm, or that they were not."""
    depths = [d for d in depth_points(samples) if d]
    known = {d: is_warm(samples, d) for d in depths}
    cold = [f"{d:,}" for d, warm in known.items() if not warm]
    counted = any(s.reported_reuse is not None for d in depths for s in depth_points(samples)[d])
    if not depths:
        return "No prefix could be tried."
    if cold:
        return (f"Not proved warm: the prefix of {', '.join(cold)} tokens "
                f"({'counted' if counted else 'by the clock'}). Its block column holds more than "
                "the block; decode is over that context all the same.")
    if counted:
        return "Every prefix was reused, by the server's count."
    # In each depth all of the r later requests beat the cold one: by chance once in r + 1 times.
    p = math.prod(1 / (1 + len(depth_points(samples)[d])) for d in depths)
    sure = "" if p <= LEVEL else ", which is no proof"
    return ("Every prefix was warm by the clock: each longer, later prompt had its first token "
            f"sooner than the cold one (p {p:.2g}{sure}).")


def depth_finding(samples: Sequence[Sample]) -> Verdict | None:
    """What a token costs over a longer prefix; None where nothing of *depth* was asked."""
    if not of_experiment(samples, DEPTH):
        return None
    decode = decode_of(samples)
    if decode is None:
        return Verdict(experiment=DEPTH, arm="decode", code=NO_RATE,
                       text="No rate of decode is known: no answer came token by token.")
    evidence: dict[str, Any] = {
        "s_per_step": decode.fit.coefficients[0], "s_per_step_per_token": None, "interval": None,
        "block_s": None, "block_s_per_token": None, "block_interval": None,
        "block_tokens": None, "s_per_token_squared": None,
        "depths": len(depth_points(samples)),
        "warm": {str(d): is_warm(samples, d) for d in depth_points(samples) if d}}
    block = block_fit(samples)
    if block is not None:
        evidence |= {"block_s": block.coefficients[0], "block_s_per_token": block.coefficients[1],
                     "block_interval": block.interval((0, 1))}
        every = [s for at in depth_points(samples).values() for s in at]
        if tokens := median(every, lambda s: fresh_tokens(s, before(samples, s))):
            # A block of B tokens that ends at n takes c·(n² - (n - B)²): a slope of 2·c·B in n.
            evidence |= {"block_tokens": tokens,
                         "s_per_token_squared": block.coefficients[1] / (2 * tokens)}
    if decode.fit.n < 2:
        return Verdict(experiment=DEPTH, arm="decode", code=UNDECIDED, evidence=evidence,
                       text="One depth alone fits this server: nothing to compare.")
    interval = decode.fit.interval((0, 1))
    evidence |= {"s_per_step_per_token": decode.slope, "interval": interval}
    first, last = (decode.fit.value((1, x)) for x in (decode.shallowest, decode.deepest))
    reach = decode.deepest - decode.shallowest
    code = UNDECIDED
    if interval is not None:
        moved = [abs(bound) * reach / first for bound in interval]
        code = SLOWER if interval[0] > 0 else STEADY if max(moved) <= STEADY_SHARE else UNDECIDED
    told = (f"by the line, a token takes {ms(first)} ms over {decode.shallowest:,.0f} tokens of "
            f"context and {ms(last)} ms over {decode.deepest:,.0f}")
    text = {
        SLOWER: f"A longer prefix makes each token slower, cached or not: {told}.",
        STEADY: f"Decode is steady over this range: {told}.",
        UNDECIDED: f"B{told[1:]}; its slope is within its error of none, and of more. More "
                   "--repeats or a larger --context would tell.",
    }[code]
    return Verdict(experiment=DEPTH, arm="decode", code=code, evidence=evidence,
                   text=f"{text}\n{warm_words(samples)}")
