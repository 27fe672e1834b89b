"""What follows from workload: whole requests, predicted from the rates and measured.

Pure functions over the samples of one run; `report/savings_tables.py` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from request_timing.findings.found_again import came_whole, was_found_again
from request_timing.findings.measures import of_experiment
from request_timing.findings.rates import Load, Rates, load, rates_of, step_s
from request_timing.findings.verdict import Verdict
from request_timing.formats import between, percent, significant
from request_timing.records.names import COLD_SHAPE, HIT_SHAPE, WORKLOAD
from request_timing.stats.compare import ratio

if TYPE_CHECKING:
    from request_timing.records.sample import Sample

AS_PREDICTED, OFF, NO_HIT, NO_RATES = "as_predicted", "off", "no_hit", "no_rates"
ALL_FAILED, ANSWER_CACHE = "all_failed", "answer_cache"
PREDICTION_BAR = 0.10  # a prediction of a whole request's time within this is as good as measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """One shape of *workload*: seconds of the whole request, measured and predicted."""

    prompt_tokens: int  # as counted
    output_tokens: int
    cold_s: float | None
    hit_s: float | None
    cold_predicted_s: float | None
    hit_predicted_s: float | None
    cold_step_s: float | None
    hit_step_s: float | None
    reused: bool | None
    came_whole: bool  # from a cache of whole answers

    def to_json(self) -> dict[str, Any]:
        """As the record has it."""
        return {"prompt": self.prompt_tokens, "output": self.output_tokens,
                "cold_s": self.cold_s, "hit_s": self.hit_s,
                "cold_predicted_s": self.cold_predicted_s,
                "hit_predicted_s": self.hit_predicted_s, "cold_step_s": self.cold_step_s,
                "hit_step_s": self.hit_step_s, "reused": self.reused,
                "came_whole": self.came_whole, "saved": self.saved,
                "saved_predicted": self.saved_predicted}

    @property
    def saved(self) -> float | None:
        """The share of the whole time that the hit saved."""
        hit = ratio(self.hit_s, self.cold_s)
        return 1 - hit if hit is not None and self.reused and not self.came_whole else None

    @property
    def saved_predicted(self) -> float | None:
        """The share that the rates predicted."""
        hit = ratio(self.hit_predicted_s, self.cold_predicted_s)
        return None if hit is None else 1 - hit


def corners_of(samples: Sequence[Sample]) -> list[Corner]:
    """The shapes of *workload*, the longest prompt first."""
    rates = rates_of(samples)
    of_workload = [s for s in of_experiment(samples, WORKLOAD) if s.counts]
    by_arm: dict[str, Sample] = {s.arm: s for s in of_workload}
    corners = []
    for arm, cold in by_arm.items():
        if not arm.startswith(COLD_SHAPE):
            continue
        hit = by_arm.get(HIT_SHAPE + arm.removeprefix(COLD_SHAPE))
        prompt, output = cold.prompt_tokens, cold.output_tokens
        if not prompt or not output:
            continue
        corners.append(Corner(
            prompt_tokens=prompt, output_tokens=output, cold_s=cold.total_s,
            hit_s=hit.total_s if hit else None,
            cold_predicted_s=rates.seconds(load(prompt, 0, output)) if rates else None,
            hit_predicted_s=rates.seconds(load(prompt, prompt, output)) if rates else None,
            cold_step_s=step_s(cold), hit_step_s=step_s(hit) if hit else None,
            reused=None if hit is None else was_found_again(cold, hit),
            came_whole=hit is not None and came_whole(cold, hit)))
    return sorted(corners, key=lambda c: -c.prompt_tokens)


def workload_finding(samples: Sequence[Sample]) -> Verdict | None:
    """How well the rates predicted whole requests; None where nothing of *workload* was asked."""
    if not of_experiment(samples, WORKLOAD):
        return None
    corners = corners_of(samples)
    evidence: dict[str, Any] = {"corners": [c.to_json() for c in corners]}
    if rates_of(samples) is None:
        return Verdict(experiment=WORKLOAD, arm="prediction", code=NO_RATES, evidence=evidence,
                       text="No rates are known to predict from: that takes length and depth.")
    if not corners:
        return Verdict(experiment=WORKLOAD, arm="prediction", code=ALL_FAILED, evidence=evidence,
                       text="No whole request was answered: there is nothing to predict.")
    missed = [c for c in corners if c.reused is False]
    whole = [c for c in corners if c.came_whole]
    pairs = [(c.cold_s, c.cold_predicted_s) for c in corners] + [
        (c.hit_s, c.hit_predicted_s) for c in corners if c.reused and not c.came_whole]
    errors = [p / m - 1 for m, p in pairs if m and p is not None]
    evidence["errors"] = errors
    lines = []
    code = NO_HIT if len(missed) == len(corners) else AS_PREDICTED
    if whole:
        code = ANSWER_CACHE
        lines.append(f"At {len(whole)} of {len(corners)} shapes the whole answer came in one go "
                     "the second time: from a cache of answers, which is no prefix cache.")
    if missed:
        lines.append(f"At {len(missed)} of {len(corners)} shapes the same request again was no "
                     "hit: there, what a hit would save is a prediction alone.")
    if errors:
        inside = sum(abs(e) <= PREDICTION_BAR for e in errors)
        worst = max(errors, key=abs)
        if inside < len(errors) and code == AS_PREDICTED:
            code = OFF
        lines.append(f"{inside} of {len(errors)} whole requests took what the rates predict, "
                     f"within {percent(PREDICTION_BAR)}; the worst prediction is "
                     f"{percent(abs(worst))} too {'long' if worst > 0 else 'short'}.")
    if code == OFF:
        lines.append("Rates and requests were measured minutes apart: what else the server did "
                     "meanwhile is in the difference.")
    saved = [(c, c.saved) for c in corners if c.saved is not None]
    if len(saved) > 1:
        most, least = max(saved, key=_second), min(saved, key=_second)
        lines.append(" ".join(dict.fromkeys(_saved(c, of_all) for c, of_all in (most, least))))
    return Verdict(experiment=WORKLOAD, arm="prediction", code=code, text="\n".join(lines),
                   evidence=evidence)


def _saved(corner: Corner, of_all: float) -> str:
    """What the hit saved of one corner; less than nothing is noise, and is said as that."""
    shape = f"{corner.prompt_tokens:,} in, {corner.output_tokens:,} out"
    if of_all < 0:
        return f"Of {shape}, the hit took longer than the cold request: noise is all there is."
    return f"A full hit saved {percent(of_all)} of {shape}."


def _second(pair: tuple[Corner, float]) -> float:
    return pair[1]


def shape_finding(rates: Rates, prompt: int, output: int) -> Verdict:
    """What a full hit would save a request of the user's own shape."""
    cold, hit = load(prompt, 0, output), load(prompt, prompt, output)
    whole, rest = rates.seconds(cold), rates.seconds(hit)
    interval = rates.saved_interval_s(cold, hit)
    far = is_far(rates, prompt, output)
    left = ratio(rest, whole) or 0.0
    text = (
        f"Cold {significant(whole)} s, of which prefill {significant(rates.prefill_s(cold))} s and "
        f"decode {significant(rates.decode_s(cold))} s. A full hit leaves {significant(rest)} s: "
        f"it saves {percent(1 - left)}, {significant(whole - rest)} s {between(interval)}."
    )
    if far:
        text += f"\nThat is beyond what was measured ({measured_range(rates)})."
    return Verdict(
        experiment=WORKLOAD, arm=f"{prompt}x{output}", code="predicted", text=text,
        evidence={"cold_s": whole, "hit_s": rest, "saved_s": whole - rest,
                  "saved_s_interval": interval, "extrapolated": far})


def traffic_finding(rates: Rates, traffic: Mapping[str, Any]) -> Verdict:
    """What share of a traffic mix's whole time caching removes, and could remove."""
    cold, warm, full = (Load(**traffic[name]) for name in ("cold", "warm", "full"))
    whole, cached, least = map(rates.seconds, (cold, warm, full))
    tokens = traffic["tokens"]
    removed, removable = (1 - (ratio(time, whole) or 0.0) for time in (cached, least))
    decode = ratio(rates.decode_s(cold), whole) or 0.0
    text = (
        f"{cold.requests:,} requests: {tokens['prompt']:,} tokens in, {tokens['cached']:,} of "
        f"them cached, {tokens['output']:,} out.\n"
        f"Without a cache they take {significant(whole)} s one after the other; with those tokens "
        f"cached {significant(cached)} s: {percent(removed)} of the time is removed.\n"
        f"If every prompt were a full hit, {percent(removable)}: no cache could remove "
        f"more. {percent(decode)} of the time is decode."
    )
    return Verdict(
        experiment=WORKLOAD, arm=str(traffic["file"]), code="predicted", text=text,
        evidence={"cold_s": whole, "cached_s": cached,
                  "full_hit_s": least,
                  "removed_share": removed,
                  "removable_share": removable,
                  "decode_share": decode})


def is_far(rates: Rates, prompt: int, output: int) -> bool:
    """Whether a shape lies beyond what the rates were measured on, by more than a fifth."""
    return (prompt > 1.2 * rates.prefill.longest or prompt < rates.prefill.shortest / 1.2
            or prompt + output / 2 > 1.2 * rates.decode.deepest)


def measured_range(rates: Rates) -> str:
    """On what the rates were measured."""
    return (f"prompts of {rates.prefill.shortest:,} to {rates.prefill.longest:,} tokens, contexts "
            f"up to {rates.decode.deepest:,.0f}")


def asked_findings(samples: Sequence[Sample], settings: Mapping[str, Any]) -> list[Verdict]:
    """Those on the user's own shapes and traffic."""
    shapes, traffic = settings.get("shapes") or (), settings.get("traffic")
    if not shapes and not traffic:
        return []
    rates = rates_of(samples)
    if rates is None:
        return [Verdict(experiment=WORKLOAD, arm="asked", code=NO_RATES,
                        text="No rates are known to answer from: that takes length and depth.")]
    found = [shape_finding(rates, prompt, output) for prompt, output in shapes]
    return [*found, traffic_finding(rates, traffic)] if traffic else found
