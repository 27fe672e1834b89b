"""What a token costs on this server, from a run's own samples: the rates of prefill and decode.

    TTFT  = fixed + linear·n + quadratic·n²      over n prompt tokens, all of them computed
    step  = decode + context·x                   each output token, x tokens of context before it

Seconds and tokens. Pure functions over samples; what a request of any shape would take follows by
adding up its `Load`. TTFT rather than the server's own prefill time: it is what one waits for, and
the fixed part (network, queue, first step) shows in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from request_timing.findings.measures import decode_s_per_token, of_experiment
from request_timing.records.names import DEPTH, LENGTH, PRIME
from request_timing.stats.compare import spread
from request_timing.stats.fits import Fit, fit_relative

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

LINEAR, QUADRATIC, SUBLINEAR, UNDECIDED = "linear", "quadratic", "sublinear", "undecided"
# Below this share of the longest TTFT a quadratic term is none, however surely it is there; where
# its interval lies within the second one the prompts are as good as linear.
NO_SHARE, SMALL_SHARE = 0.01, 0.10
LEAST_SIZES = 3  # a parabola goes through any three points
SIZE_STEP = 1.05  # sizes closer together than this are one: they differ by rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one request, or many together, make a server do.

    tokens: prompt tokens computed · squares: n² - k² for a prompt of n of which k were cached ·
    steps: output tokens after the first · step_tokens: the context of each step, summed.
    """

    requests: int = 0
    tokens: int = 0
    squares: int = 0
    steps: int = 0
    step_tokens: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(requests=self.requests + other.requests, tokens=self.tokens + other.tokens,
                    squares=self.squares + other.squares, steps=self.steps + other.steps,
                    step_tokens=self.step_tokens + other.step_tokens)


def load(prompt: int, cached: int, output: int) -> Load:
    """One request; a server computes one prompt token at least, so `cached` is cut to prompt - 1.

    Raises ValueError where a size is below zero, or prompt or output below one.
    """
    if prompt < 1 or output < 1 or cached < 0:
        raise ValueError(f"expected sizes of a request, found {prompt}, {cached}, {output}")
    kept = min(cached, prompt - 1)
    steps = output - 1
    return Load(requests=1, tokens=prompt - kept, squares=prompt**2 - kept**2, steps=steps,
                step_tokens=steps * (prompt + output / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """TTFT against prompt tokens, computed in full.

    kind: linear, quadratic, sublinear (longer prompts are faster a token) or undecided · fit: of
    (1, n), or of (1, n, n²) where the kind says that the last term is there · curve: of (1, n, n²)
    whatever the kind; None where it is not determined · positive: as `fit` without the fixed term,
    where that came out below zero, which no time is; predictions use it · share: of the quadratic
    term in the curve at the longest prompt, with its interval · shortest, longest: the range that
    was measured.
    """

    kind: str
    fit: Fit
    curve: Fit | None
    positive: Fit | None
    share: float | None
    share_interval: tuple[float, float] | None
    shortest: int
    longest: int

    @property
    def predictor(self) -> Fit:
        """What predictions are made with: no part of a time is below zero."""
        return self.positive or self.fit

    @property
    def terms(self) -> list[tuple[float, tuple[float, float] | None]]:
        """The fixed, linear and perhaps quadratic term, each with its interval; that of a fixed
        term below zero, given as zero, is of the fit that had it."""
        fitted = self.predictor
        known = [(fitted.coefficients[i], fitted.interval(fitted.term(i)))
                 for i in range(len(fitted.coefficients))]
        return known if self.positive is None else [
            (0.0, self.fit.interval(self.fit.term(0))), *known]

    def row(self, work: Load) -> list[float]:
        """The terms of `predictor`."""
        terms = [float(work.requests), float(work.tokens), float(work.squares)]
        return terms[self.positive is not None:len(self.fit.coefficients)]

    def ttft_s(self, tokens: int) -> float:
        """Of a cold prompt."""
        return self.predictor.value(self.row(load(tokens, 0, 1)))

    def removable(self, tokens: int) -> float:
        """The share of a cold prompt's TTFT that is not fixed: all that a cache could remove."""
        return self._not_fixed(self.terms[0][0], tokens)

    def removable_at_least(self, tokens: int) -> float | None:
        """The same where the fixed part is as large as its interval allows; None without one."""
        interval = self.terms[0][1]
        return None if interval is None else self._not_fixed(interval[1], tokens)

    def _not_fixed(self, fixed_s: float, tokens: int) -> float:
        whole = self.ttft_s(tokens)
        return min(1.0, max(0.0, 1 - fixed_s / whole)) if whole > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """Seconds a step against the context before it, from one point (the median) a depth.

    fit: of (1, x); of (1,) where there is one depth alone.
    """

    fit: Fit
    shallowest: float
    deepest: float

    @property
    def slope(self) -> float:
        """Seconds a step for each token of context."""
        return self.fit.coefficients[1] if len(self.fit.coefficients) > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of prefill and of decode: what a request of any shape takes here."""

    prefill: Prefill
    decode: Decode

    def seconds(self, work: Load) -> float:
        """The time that such a load takes, one request after the other."""
        return self.prefill_s(work) + self.decode_s(work)

    def prefill_s(self, work: Load) -> float:
        """The seconds until the first token of each request, summed."""
        return self.prefill.predictor.value(self.prefill.row(work))

    def decode_s(self, work: Load) -> float:
        """The seconds of the steps after each first token, summed."""
        row = [float(work.steps), work.step_tokens]
        return self.decode.fit.value(row[:len(self.decode.fit.coefficients)])

    def saved_interval_s(self, cold: Load, warm: Load) -> tuple[float, float] | None:
        """95 % interval of the time that reuse saves, the rates' own error; None if unknown."""
        saved = [a - b for a, b in zip(self.prefill.row(cold), self.prefill.row(warm),
                                       strict=True)]
        return self.prefill.predictor.interval(saved)


def cold_prompts(samples: Iterable[Sample]) -> list[Sample]:
    """The requests whose whole prompt was computed: those of *length*, and those of *depth* that
    read a prefix for the first time, or had none."""
    return [s for s in samples
            if s.counts and s.ttft_s and s.prompt_tokens and not s.came_in_bursts
            and (s.experiment == LENGTH
                 or (s.experiment == DEPTH and (s.arm == "0" or s.arm.startswith(PRIME))))]


def prefill_of(samples: Sequence[Sample]) -> Prefill | None:
    """Prefill's rates from cold prompts; None with fewer than two sizes or three requests.

    Whether there is a quadratic term is decided by the 95 % interval of its share in the longest
    TTFT (Student's t of relative least squares, the same as an F test for the one term at 5 %):
    quadratic or sublinear where the interval leaves zero out and the share is 1 % at least; linear
    where it lies within ±10 % or the share is below 1 %; else undecided, which is fitted as linear.
    Where the fixed term of the curve comes out below zero, which no time is, the term is tested in
    a curve without it: a fixed part that is there and left out makes the quadratic one smaller,
    so that this finds none too many.
    """
    chosen = cold_prompts(samples)
    points = [(s.prompt_tokens, s.ttft_s) for s in chosen if s.prompt_tokens and s.ttft_s]
    sizes = sorted(n for n, _ in points)
    ys = [y for _, y in points]
    line = fit_relative([(1.0, float(n)) for n, _ in points], ys)
    distinct = _distinct(sizes)
    if line is None or line.df < 1 or distinct < 2:
        return None
    curve = fit_relative([(1.0, float(n), float(n) ** 2) for n, _ in points], ys
                         ) if distinct >= LEAST_SIZES else None
    longest = sizes[-1]
    kind, share, interval = UNDECIDED, None, None
    if curve is not None:
        tested = curve
        if curve.coefficients[0] < 0:
            tested = fit_relative([(float(n), float(n) ** 2) for n, _ in points], ys) or curve
        at_longest = (1.0, float(longest), float(longest) ** 2)[-len(tested.coefficients):]
        if (whole := tested.value(at_longest)) > 0:
            row = [0.0] * (len(at_longest) - 1) + [longest**2 / whole]
            share = tested.value(row)
            interval = tested.interval(row)
            kind = _kind(share, interval)
    chosen_fit = curve if curve is not None and kind in (QUADRATIC, SUBLINEAR) else line
    positive = None
    if chosen_fit.coefficients[0] < 0:
        terms = len(chosen_fit.coefficients) - 1
        positive = fit_relative([(float(n), float(n) ** 2)[:terms] for n, _ in points], ys)
    return Prefill(kind=kind, fit=chosen_fit, curve=curve, positive=positive, share=share,
                   share_interval=interval, shortest=sizes[0], longest=longest)


def _kind(share: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return UNDECIDED
    low, high = interval
    if (low > 0 or high < 0) and abs(share) >= NO_SHARE:
        return QUADRATIC if low > 0 else SUBLINEAR
    return LINEAR if max(abs(low), abs(high)) <= SMALL_SHARE else UNDECIDED


def _distinct(sizes: Sequence[int]) -> int:
    """How many sizes there are, less those that differ by rounding alone; `sizes` ascend."""
    kept: list[int] = []
    for size in sizes:
        if not kept or size > SIZE_STEP * kept[-1]:
            kept.append(size)
    return len(kept)


def depth_points(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """The requests of *depth* that wrote over a prefix, by the depth asked for, ascending."""
    points: dict[int, list[Sample]] = {}
    for sample in of_experiment(samples, DEPTH):
        if sample.counts and sample.arm.isdigit():
            points.setdefault(int(sample.arm), []).append(sample)
    return dict(sorted(points.items()))


def step_s(sample: Sample) -> float | None:
    """Seconds a step of decode: the server's own, or else those between the pieces."""
    return decode_s_per_token(sample) or sample.inter_token_s


def step_context(sample: Sample) -> float | None:
    """The mean context of this request's steps: the prompt, and half of what it wrote."""
    if sample.prompt_tokens is None or sample.output_tokens is None:
        return None
    return sample.prompt_tokens + sample.output_tokens / 2


def decode_of(samples: Sequence[Sample]) -> Decode | None:
    """Decode's rates from *depth*, one median a depth; None where no step was timed.

    One point a depth, not one a request: those of a depth share its prefix and its moment, and
    are no independent evidence of a slope.
    """
    points: list[tuple[float, float]] = []
    for at_depth in depth_points(samples).values():
        x, y = spread(map(step_context, at_depth)), spread(map(step_s, at_depth))
        if x is not None and y is not None and y.median > 0:
            points.append((x.median, y.median))
    ys = [y for _, y in points]
    fit = (fit_relative([(1.0, x) for x, _ in points], ys) if len(points) > 1
           else fit_relative([(1.0,) for _ in points], ys))
    if fit is None:
        return None
    return Decode(fit=fit, shallowest=min(x for x, _ in points),
                  deepest=max(x for x, _ in points))


def rates_of(samples: Sequence[Sample]) -> Rates | None:
    """Both rates, where both are known."""
    prefill, decode = prefill_of(samples), decode_of(samples)
    return None if prefill is None or decode is None else Rates(prefill=prefill, decode=decode)
