"""*minimum* on servers of known truth: the set constants from counts exactly, from time within 5 %.

The clock is the simulated server's own: no time passes, and no wall clock is asserted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from request_timing.experiments.minimum import LEAST_TOKENS, minimum, most_prefix_tokens
from request_timing.findings.measures import spent_tokens
from request_timing.findings.minimum import Prefix, agreed, found, reused, seconds_per_char
from request_timing.findings.reuse import FOUND, NOT_FOUND, in_words, shortest
from request_timing.findings.verdict import ARM_FAILED
from request_timing.records.sample import Failure, Sample
from simulated import Simulated, lab_of

TIMED: dict[str, Any] = {"report_cached": False, "prefill_s_per_token": 1e-4, "fixed_s": 0.005,
                         "decode_s_per_token": 0.001}
CONTEXT = 8000
LONGEST = 4000


def ran(*, native: bool = False, context: int = CONTEXT, max_tokens: int | None = None,
        **server: Any) -> list[Sample]:
    lab = lab_of(Simulated(native=native, **server), context=context, max_tokens=max_tokens)
    return list(minimum(lab))


def answer(samples: list[Sample]) -> Prefix:
    prefix = found(samples)
    assert prefix is not None
    return prefix


# minimum_tokens, block_tokens, and the least multiple of the block that is not below the minimum
CONSTANTS = [(0, 1, LEAST_TOKENS), (0, 16, 16), (0, 64, 64), (512, 16, 512), (1000, 1, 1000),
             (1000, 256, 1024), (1024, 128, 1024), (2048, 512, 2048), (37, 1, 37)]


@pytest.mark.parametrize("native", [True, False], ids=["llama", "openai"])
@pytest.mark.parametrize(("least", "block", "shortest_tokens"), CONSTANTS)
def test_counts_give_the_constants_exactly(
    least: int, block: int, shortest_tokens: int, native: bool
) -> None:
    prefix = answer(ran(native=native, cache="prefix", minimum_tokens=least, block_tokens=block))
    assert prefix.counted
    assert (prefix.shared, prefix.reused, prefix.step) == (shortest_tokens, shortest_tokens, block)
    assert (prefix.missed is None) == (shortest_tokens == LEAST_TOKENS)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("least", "block"), [(1024, 128), (1024, 64), (2048, 256), (0, 512)])
@pytest.mark.parametrize("noise_sigma", [0.02, 0.1])
def test_time_alone_gives_the_constants_within_five_percent(
    least: int, block: int, noise_sigma: float, seed: int
) -> None:
    samples = ran(cache="prefix", minimum_tokens=least, block_tokens=block, seed=seed,
                  noise_sigma=noise_sigma, **TIMED)
    prefix = answer(samples)
    assert not prefix.counted and prefix.reused is None
    assert prefix.shared == pytest.approx(max(least, block), rel=0.05)
    assert prefix.step == pytest.approx(block, rel=0.05)
    assert sum(map(spent_tokens, samples)) <= 620_000


@pytest.mark.parametrize("seed", range(3))
def test_a_step_finer_than_the_clock_has_an_upper_bound_and_no_figure(seed: int) -> None:
    prefix = answer(ran(cache="prefix", minimum_tokens=1024, noise_sigma=0.1, seed=seed, **TIMED))
    assert prefix.shared == pytest.approx(1024, rel=0.05)
    assert prefix.step is None and (prefix.step_most or 0) >= 1
    assert "at most, finer than the clock" in in_words(prefix)


@pytest.mark.parametrize("seed", range(3))
def test_without_a_minimum_time_says_how_short_a_prefix_it_can_see(seed: int) -> None:
    samples = ran(cache="prefix", noise_sigma=0.1, seed=seed, **TIMED)
    prefix = answer(samples)
    assert prefix.missed is None
    assert LEAST_TOKENS <= (prefix.shared or 0) < 200
    assert prefix.step is None and prefix.step_most is None
    assert "cannot be told" in shortest(samples).text


NEVER: list[dict[str, Any]] = [
    {"cache": "off"}, {"cache": "response"}, {"cache": "prefix", "minimum_tokens": 5000}]


@pytest.mark.parametrize("server", NEVER, ids=["off", "whole answers", "a larger minimum"])
@pytest.mark.parametrize("native", [True, False])
def test_not_found_below_the_longest_tried_by_count(native: bool, server: dict[str, Any]) -> None:
    verdict = shortest(ran(native=native, **server))
    assert (verdict.code, verdict.text) == (NOT_FOUND, (
        "not found below 4,000 tokens; this server reuses no prefix so short, stores it later than "
        "the next request, or another machine answered"))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("server", NEVER, ids=["off", "whole answers", "a larger minimum"])
def test_not_found_below_the_longest_tried_by_time(server: dict[str, Any], seed: int) -> None:
    verdict = shortest(ran(**TIMED | server, noise_sigma=0.1, seed=seed))
    assert verdict.code == NOT_FOUND
    assert verdict.text.startswith("not found below 4,000 tokens; no cached tokens are reported")


def test_a_prefill_that_takes_no_time_shows_nothing() -> None:
    flat = TIMED | {"prefill_s_per_token": 0.0}
    assert shortest(ran(cache="prefix", **flat)).code == NOT_FOUND


def test_where_even_cold_prompts_are_reported_reused_no_pair_can_be_used() -> None:
    samples = [replace(s, cached_tokens=s.prompt_tokens, notes=("not_cold: all",) if s.turn == 1
                       else ()) for s in ran(native=True, cache="off")]
    assert found(samples) is None
    assert shortest(samples).code == ARM_FAILED


def test_requests_that_fail_end_it() -> None:
    class Failing(Simulated):
        def stream(self, prompt: Any, output_tokens: int) -> Any:
            from request_timing.servers.timing import RequestFailed

            raise RequestFailed("http", "no")

    samples = list(minimum(lab_of(Failing(native=True))))
    assert 3 <= len(samples) <= 4
    assert all(isinstance(s.error, Failure) for s in samples)
    assert shortest(samples).code == ARM_FAILED


@pytest.mark.parametrize("budget", [20_000, 120_000])
def test_the_budget_ends_it_and_what_is_said_then_is_true(budget: int) -> None:
    samples = ran(cache="prefix", minimum_tokens=1024, block_tokens=128, noise_sigma=0.02,
                  max_tokens=budget, **TIMED)
    assert sum(map(spent_tokens, samples)) <= budget + 2 * (LONGEST + 20)
    prefix = answer(samples)
    assert prefix.shared is None or (prefix.missed or 0) <= 1024 <= prefix.shared + 1
    assert prefix.step is None or prefix.step == pytest.approx(128, rel=0.05)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("replicas", [2, 4])
def test_machines_that_have_not_seen_the_prefix_give_an_upper_bound(replicas: int, seed: int
                                                                    ) -> None:
    samples = ran(cache="prefix", replicas=replicas, routing="random", minimum_tokens=128,
                  block_tokens=64, seed=seed)
    assert max(s.repeat for s in samples) > 1  # a miss is asked again
    prefix = answer(samples)
    if prefix.shared is None:
        assert "another machine answered" in shortest(samples).text
    else:
        assert prefix.shared >= 128 and prefix.is_mixed and prefix.step is None
        text = shortest(samples).text
        assert "several machines" in text and "at the most" in text


@pytest.mark.parametrize(("context", "most"), [(51_000, 8192), (8000, 4000), (1500, 750)])
def test_the_longest_prefix_is_half_the_context_at_most(context: int, most: int) -> None:
    assert most_prefix_tokens(lab_of(Simulated(), context=context).settings) == most
    samples = ran(native=True, context=context, cache="off")
    assert max(s.prompt_tokens or 0 for s in samples) == pytest.approx(most + 14, abs=1)


@pytest.mark.parametrize(("votes", "said"), [
    ("", None), ("yyy", None), ("yyyy", True), ("nnnn", False), ("ynynyn", None),
    ("ynyyyy", True), ("nnnnyyyyyyyyyy", False),
])
def test_a_reading_stands_when_one_side_leads_by_four(votes: str, said: bool | None) -> None:
    assert agreed([vote == "y" for vote in votes]) is said


def test_readings_by_hand() -> None:
    def pair(chars: int, repeat: int, cold_s: float, again_s: float) -> list[Sample]:
        blank = Sample(experiment="minimum", arm=str(chars), turn=1, repeat=repeat, sent_at="",
                       prompt_chars=chars, prompt_hash="", asked_output_tokens=2,
                       prompt_tokens=chars // 4)
        return [replace(blank, arrivals_s=(cold_s,)),
                replace(blank, turn=2, arrivals_s=(again_s,))]

    # A second, and a thousandth of one a character.
    samples = [s for n in range(1, 5) for s in pair(100, n, 1.1, 1.1) + pair(1000, n, 2.0, 1.2)]
    assert seconds_per_char(samples) == pytest.approx(0.001)
    assert reused(samples, 1000) is True  # 0.8 s saved of 1.0 s
    assert reused(samples, 100) is False
    assert seconds_per_char(samples[:2]) is None


def test_the_words() -> None:
    assert shortest(ran(native=True, cache="prefix", minimum_tokens=1024, block_tokens=128)
                    ).text == (
        "the shortest prefix reused has 1,024 tokens; reuse then grows in steps of 128; of one of "
        "4,000 tokens 3,968 are reused (reported counts)")
    verdict = shortest(ran(native=True, cache="prefix"))
    assert verdict.code == FOUND
    assert verdict.text == (
        "a prefix of 8 tokens is reused, the shortest that was tried; reuse then grows in steps of "
        "1; of one of 4,000 tokens 4,000 are reused (reported counts)")
