"""What is said of samples whose truth is known; a test a kind of server, and a kind of fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from physics_samples import (
    CONTEXT_S,
    FIXED_S,
    SQUARED_S,
    STEP_S,
    deep,
    request_s,
    sample,
    sweep,
    worked,
)
from request_timing.findings.depth import depth_finding, fit_finding, is_warm
from request_timing.findings.rates import load
from request_timing.findings.restore import (
    beats_from,
    findings,
    found,
    pause_rows,
    restore_findings,
)
from request_timing.findings.verdict import Verdict
from request_timing.findings.workload import asked_findings, corners_of, workload_finding
from request_timing.records.sample import Failure, Sample
from restore_samples import DEPTHS, RATED, SHAPES, SIZES, paused, restored, way


def one(finding: Verdict | None) -> Verdict:
    assert finding is not None
    return finding


# --- fit -----------------------------------------------------------------------------------------

def test_fit_says_what_a_cache_could_remove() -> None:
    told = one(fit_finding(sweep(*SIZES)))
    assert told.code == "quadratic"
    assert told.evidence["fixed_s"] == pytest.approx(FIXED_S, rel=1e-6)
    assert told.evidence["removable_share"]["4000"] == pytest.approx(
        1 - FIXED_S / request_s(4000, 0), rel=1e-6)
    assert "From 250 to 4,000 tokens there is a quadratic term: 27.6 % of TTFT" in told.text
    assert "96.6 % (96.6 % at least) of TTFT at 4,000 tokens" in told.text


@pytest.mark.parametrize(("samples", "code", "words"), [
    (sweep(*SIZES, squared_s=0.0), "linear", "grows in proportion"),
    (sweep(*SIZES, squared_s=-8e-9), "sublinear", "read faster a token"),
    (sweep(250, 500, repeats=3), "undecided", "no curve can be told from a line"),
    (sweep(250, repeats=3), "undecided", "two sizes are needed")])
def test_fit_of_other_servers(samples: list[Sample], code: str, words: str) -> None:
    told = one(fit_finding(samples))
    assert told.code == code and words in told.text.replace("\n", " ")


def test_without_the_sweep_fit_says_nothing() -> None:
    assert fit_finding(deep(*DEPTHS)) is None and found([]) == []


# --- depth ---------------------------------------------------------------------------------------

def test_depth_finds_the_slope_and_the_quadratic_term_of_the_blocks() -> None:
    told = one(depth_finding(deep(*DEPTHS)))
    assert told.code == "slower"
    assert told.evidence["s_per_step"] == pytest.approx(STEP_S, rel=1e-6)
    assert told.evidence["s_per_step_per_token"] == pytest.approx(CONTEXT_S, rel=1e-6)
    assert told.evidence["block_tokens"] == 100
    assert told.evidence["s_per_token_squared"] == pytest.approx(SQUARED_S, rel=1e-3)
    assert "Every prefix was reused, by the server's count." in told.text


def test_depth_counts_the_block_without_reported_reuse() -> None:
    told = one(depth_finding(deep(*DEPTHS, reported=False)))
    assert told.evidence["block_tokens"] == 100
    assert told.evidence["s_per_token_squared"] == pytest.approx(SQUARED_S, rel=1e-3)
    # In each of 4 depths both later requests were sooner than the cold one: (1/3)^4.
    assert "warm by the clock" in told.text and "(p 0.012)" in told.text


def test_depth_on_a_server_that_reuses_nothing_says_so_and_keeps_decode() -> None:
    for reported in (True, False):
        samples = deep(*DEPTHS, warm=False, reported=reported)
        told = one(depth_finding(samples))
        assert told.code == "slower"
        assert "Not proved warm: the prefix of 500, 1,000, 2,000, 4,000 tokens" in told.text
        assert told.evidence["warm"] == {str(n): False for n in DEPTHS if n}
        assert told.evidence["block_s"] is None  # one depth is left, the one with no prefix
        assert is_warm(samples, 0) is None


def test_no_slope_is_steady() -> None:
    told = one(depth_finding(deep(*DEPTHS, context_s=0.0)))
    assert told.code == "steady" and "10.0 ms over 110 tokens" in told.text


@pytest.mark.parametrize(("samples", "code", "words"), [
    (deep(0, 4000), "undecided", "within its error"),  # a line through two points
    (deep(0), "undecided", "One depth alone"),
    ([replace(s, arrivals_s=(1.0,) * len(s.arrivals_s)) for s in deep(0, 500)], "no_rate",
     "token by token")])
def test_depth_that_cannot_be_told(samples: list[Sample], code: str, words: str) -> None:
    told = one(depth_finding(samples))
    assert told.code == code and words in told.text


# --- workload ------------------------------------------------------------------------------------

def test_workload_predicts_what_was_measured() -> None:
    samples = [*RATED, *worked(*SHAPES)]
    told = one(workload_finding(samples))
    assert told.code == "as_predicted"
    assert told.evidence["errors"] == pytest.approx([0.0] * 8, abs=1e-6)
    corner = corners_of(samples)[0]
    made = worked((4000, 10))
    assert corner.saved == pytest.approx(1 - (made[1].total_s or 0) / (made[0].total_s or 1))
    assert corner.saved_predicted == pytest.approx(corner.saved, rel=1e-6)
    assert "of 4,000 in, 10 out" in told.text and "of 250 in, 400 out" in told.text


def test_workload_says_where_it_was_wrong() -> None:
    told = one(workload_finding([*RATED, *worked(*SHAPES, factor=2.0)]))
    assert told.code == "off"
    assert "too short" in told.text and "minutes apart" in told.text


def test_workload_without_a_hit_is_a_prediction_alone() -> None:
    for reported in (True, False):
        told = one(workload_finding([*RATED, *worked(*SHAPES, reused=False, reported=reported)]))
        assert told.code == "no_hit" and "At 4 of 4 shapes" in told.text
        assert [c["saved"] for c in told.evidence["corners"]] == [None] * 4


def test_workload_without_rates_says_what_it_takes() -> None:
    assert one(workload_finding(worked(*SHAPES))).code == "no_rates"
    (told,) = asked_findings(worked(*SHAPES), {"shapes": [[10, 10]]})
    assert told.code == "no_rates"


def test_workload_without_one_answered_request_says_so() -> None:
    broken = Failure(kind="http", message="HTTP 500", http_status=500)
    failed = [replace(s, error=broken) for s in worked(*SHAPES)]
    told = one(workload_finding([*RATED, *failed]))
    assert told.code == "all_failed" and "No whole request was answered" in told.text


@pytest.mark.parametrize("reported", [True, False])
def test_whole_answers_from_a_cache_are_no_hits(reported: bool) -> None:
    """The second time all pieces come at once: no prefix was reused, whatever is reported."""
    samples = [replace(s, arrivals_s=(0.01,) * len(s.arrivals_s)) if n % 2 else s
               for n, s in enumerate(worked(*SHAPES, reported=reported))]
    told = one(workload_finding([*RATED, *samples]))
    assert told.code == "answer_cache" and "At 4 of 4 shapes the whole answer came" in told.text
    assert "A full hit saved" not in told.text
    assert [c["saved"] for c in told.evidence["corners"]] == [None] * 4


def test_lengths_of_restore_are_those_that_the_server_counts() -> None:
    samples = [replace(s, prompt_tokens=s.prompt_tokens + 11, cached_tokens=s.cached_tokens and
                       s.cached_tokens + 11)
               for s in [*restored(16, 10, 2, 30), *restored(250, 70, 3, 35)]
               if s.prompt_tokens is not None]
    slot = restore_findings(samples)[0]
    assert "At 261 tokens" in slot.text and "at most 27 tokens on" in slot.text
    assert slot.evidence["faster_from_tokens"] == 27


def test_shapes_of_the_user() -> None:
    inside, beyond = asked_findings(RATED, {"shapes": [[2000, 100], [40_000, 200]]})
    made = worked((2000, 100))
    assert inside.evidence["cold_s"] == pytest.approx(made[0].total_s, rel=1e-6)
    assert inside.evidence["hit_s"] == pytest.approx(made[1].total_s, rel=1e-6)
    assert inside.evidence["extrapolated"] is False and "beyond" not in inside.text
    assert beyond.evidence["extrapolated"] is True and "beyond what was measured" in beyond.text


def test_traffic_of_the_user() -> None:
    from dataclasses import asdict

    cold, warm = load(2000, 0, 100) + load(100, 0, 10), load(2000, 1500, 100) + load(100, 0, 10)
    traffic = {"file": "mix.csv", "requests": 2, "cold": asdict(cold), "warm": asdict(warm),
               "full": asdict(load(2000, 2000, 100) + load(100, 100, 10)),
               "tokens": {"prompt": 2100, "cached": 1500, "output": 110}}
    (told,) = asked_findings(RATED, {"traffic": traffic})
    whole = sum(s.total_s or 0 for s in (worked((2000, 100))[0], worked((100, 10))[0]))
    kept = sample("x", "1", 2000, 100, cached=1500).total_s or 0
    kept += worked((100, 10))[0].total_s or 0
    assert told.evidence["removed_share"] == pytest.approx(1 - kept / whole, rel=1e-6)
    assert told.evidence["removable_share"] > told.evidence["removed_share"]


# --- restore -------------------------------------------------------------------------------------

def test_restoring_beats_recomputing_from_a_length_on() -> None:
    samples = [*restored(32, 10, 2, 30, 50), *restored(250, 70, 3, 35, 80),
               *restored(1000, 300, 4, 40, 90)]
    assert [beats_from(samples, w) for w in ("slot/", "host/", "disk/")] == [32, 250, 1000]
    slot, host, disk = restore_findings(samples)
    assert [f.code for f in (slot, host, disk)] == ["restored"] * 3
    assert "sooner from at most 32 tokens on" in slot.text
    assert "sooner from 250 tokens on" in host.text
    assert disk.evidence["waited_s"]["1000"] == pytest.approx(0.09)


def test_a_length_at_which_it_was_once_slower_ends_the_claim() -> None:
    samples = [*restored(250, 70, 3, 35), *restored(1000, 300, 4, 40),
               way("host", 1000, 400.0, cached=999)]
    assert beats_from(samples, "host/") is None
    assert "At no length" in restore_findings(samples)[1].text


def test_a_server_without_a_host_cache_and_without_a_disk() -> None:
    samples = restored(1000, 300, 4, 300, found_host=False)
    noted = replace(samples[0], notes=("no_disk: the server saves no slot (501)",))
    _, host, disk = restore_findings([noted, *samples[1:]])
    assert (host.code, disk.code) == ("not_restored", "not_offered")
    assert "--cache-ram" in host.text and "--slot-save-path" in disk.text
    assert len(restore_findings(samples)) == 2  # nothing is said of a disk that was not tried


def test_a_slot_that_was_not_taken_proves_nothing_of_host_memory() -> None:
    samples = restored(1000, 300, 4, 4)
    void = replace(samples[2], notes=("void: no other prompt took the slot",))
    assert [f.arm for f in restore_findings([*samples[:2], void])] == ["slot"]


@pytest.mark.parametrize("reported", [True, False])
def test_how_long_a_prefix_lives(reported: bool) -> None:
    (told,) = restore_findings(paused(0, 10, 60, 300, until=60, reported=reported))
    assert told.code == "gone"
    assert "lived through 60 s and was gone after 300 s" in told.text
    assert ("by the clock alone" in told.text) is not reported
    rows = pause_rows(paused(0, 10, 60, 300, until=60))
    assert [row.lived for row in rows] == [True, True, True, False]
    assert [row.really_s for row in rows] == pytest.approx([0, 10, 60, 300], abs=0.002)


@pytest.mark.parametrize(("samples", "code", "words"), [
    (paused(0, 10, 60, until=60), "lives", "every pause, 60 s the longest"),
    (paused(0, 10, until=-1), "gone", "at once was not found again"),
    ([*paused(0, 10, until=0), *paused(60, until=60)], "mixed", "no lifetime does that"),
    (paused(0, until=0)[1:], "not_known", "a first and a second")])
def test_other_lifetimes(samples: list[Sample], code: str, words: str) -> None:
    (told,) = restore_findings(samples)
    assert told.code == code and words in told.text


def test_the_findings_of_the_json_are_plain_values() -> None:
    from request_timing.records.run import dumps

    samples = [*RATED, *worked(*SHAPES), *restored(1000, 300, 4, 40, 90), *paused(0, 9, until=9)]
    told = findings(samples, {"shapes": [[10, 10]]})
    assert [(f["experiment"], f["arm"]) for f in told] == [
        ("fit", "prefill"), ("depth", "decode"), ("workload", "prediction"), ("workload", "10x10"),
        ("restore", "slot"), ("restore", "host"), ("restore", "disk"), ("restore", "pause")]
    assert dumps(told)
