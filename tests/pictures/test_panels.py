"""What a picture shows, as data: exact points, bars, medians and words, without matplotlib."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ROOT
from drawn_runs import cloud, failed, local, only, outside, replayed, sized, uncounted
from request_timing.findings.measures import line, of_experiment, prefill_s, summarise
from request_timing.pictures.panel_parts import Bar, Bars, Phases, Points, is_wide, trace, usable
from request_timing.pictures.panels import (
    cache_bars,
    caption,
    headline,
    length_points,
    output_points,
    panels,
    phase_rows,
)
from request_timing.records.run import load_run
from request_timing.records.sample import Sample
from request_timing.report.text import render
from request_timing.stats.fits import Curve
from table_samples import NATIVE

CODES = {"append": "HIT", "prepend": "NO HIT"}
CACHE = NATIVE[5:]
SAVED = sorted((ROOT / "sample_output").glob("*.json"))


def test_length_is_prefill_of_a_llama_server_and_ttft_of_a_cloud() -> None:
    assert length_points(NATIVE[:3], native=True) == Points(
        name="length", title="Prefill grows by 550 ms per 1,000 input tokens",
        x_label="input tokens", y_label="prefill", points=((1000, 0.5), (1000, 0.6), (2000, 1.1)),
        line=line(NATIVE[:3], lambda s: s.prompt_tokens, prefill_s), curve=None, is_log=False,
        said=("median slope, 3 requests",))
    slower = replace(NATIVE[0], arrivals_s=(0.7, 0.8))
    assert length_points([slower], native=False).points == ((1000, 0.7),)


def test_output_is_the_total_against_the_tokens_that_came() -> None:
    shown = output_points(NATIVE[3:5])
    assert shown.points == ((50, 0.5), (60, 0.6))  # of the second, 100 were asked for
    assert shown.title == "Total time against output tokens: too few requests for a slope"
    assert (shown.line, shown.said) == (
        None, ("1 of 2 answers stopped before the length asked for",))


def test_a_time_that_does_not_grow_has_no_line() -> None:
    flat = [sized("output", size, tokens=size, seconds=2) for size in (10, 20, 30)]
    shown = output_points(flat)
    assert (shown.line, shown.title) == (None, "Total time against output tokens: no growth shown")


def test_a_bend_that_is_shown_becomes_a_curve_and_says_so() -> None:
    bent = [sized("length", size, tokens=size, seconds=2 * (size / 1000) ** 2 + extra)
            for size in (1000, 2000, 4000, 20_000) for extra in (0.002, 0.004)]
    shown = length_points(bent, native=False)  # TTFT: (size/1000)² and a little
    # By hand: sizes less their mean -5.75 -4.75 -2.75 13.25; 5231.25 / 238.75 is 21.911.
    assert shown.curve is not None and shown.line is not None and shown.is_log
    assert shown.curve.square == pytest.approx(1e-6)
    assert shown.title == ("TTFT grows faster than linearly: by 2,000 ms per 1,000 input tokens "
                           "at 1,000, 40,000 ms at 20,000")
    assert shown.said == (
        "curve a + b·x + c·x²: better than a line, c above 0 (Welch's test, p below 0.0001)",
        "line: 13,500 ms per 1,000 input tokens (median slope, 8 requests)")


def test_one_size_has_points_and_no_line() -> None:
    same = [sized("length", 100, tokens=99 + n, seconds=1 + n) for n in range(4)]
    assert (length_points(same, native=False).line, len(length_points(same, native=False).points)
            ) == (None, 4)


def test_the_turns_of_a_llama_server_are_recomputed_on_top_of_reused() -> None:
    assert cache_bars(CACHE, CODES, native=True) == Bars(
        name="cache", title="append: HIT · prepend: NO HIT", y_label="prompt tokens",
        is_tokens=True, arms=("append", "prepend"), gaps=(), is_labelled=True,
        bars=(Bar(arm="append", turn=1, base=0, height=51_000),
              Bar(arm="prepend", turn=1, base=0, height=51_000),
              Bar(arm="append", turn=2, base=51_004, height=18),
              Bar(arm="prepend", turn=2, base=20, height=51_002)),
        medians={"append": 18, "prepend": 51_002},
        said=("tokens recomputed a turn, median from turn 2: append 18, prepend 51,002",))


def test_the_turns_of_a_cloud_are_ttft() -> None:
    shown = cache_bars([replace(s, server=None) for s in CACHE], CODES, native=False)
    assert not shown.is_tokens
    assert [(b.arm, b.turn, b.base, b.height) for b in shown.bars] == [
        ("append", 1, 0, 14.0), ("prepend", 1, 0, 14.0), ("append", 2, 0, 0.04),
        ("prepend", 2, 0, 14.08)]
    assert shown.said == ("TTFT in ms, median from turn 2: append 40.0, prepend 14,080",)


def test_a_replay_is_bars_of_its_arms_with_their_medians() -> None:
    shown, = panels(replayed(3))
    assert isinstance(shown, Bars)
    assert (shown.name, shown.arms, shown.is_tokens) == ("replay", ("as_sent", "what_if"), True)
    assert shown.bars[2:4] == (Bar(arm="as_sent", turn=2, base=32, height=1028),
                               Bar(arm="what_if", turn=2, base=998, height=62))
    assert shown.medians == {"as_sent": 1043, "what_if": 62}  # of 1,028 and 1,058
    assert shown.title == "A turn of the replay, tokens recomputed: as sent 1,043, mended 62"
    assert shown.said == ("tokens recomputed a turn, median from turn 2: as sent 1,043, mended 62",)
    assert headline(replayed(3), [shown]) == ""


def test_a_replay_seen_from_outside_is_ttft_with_cold() -> None:
    shown, = panels(outside(3))
    assert isinstance(shown, Bars)
    assert (shown.arms, shown.is_tokens) == (("as_sent", "what_if", "cold"), False)
    assert shown.medians == pytest.approx({"as_sent": 10.43, "what_if": 0.62, "cold": 10.75})
    assert shown.title == ("A turn of the replay, ms to the first token: as sent 10,430, mended "
                           "620, cold 10,750")


def test_a_replay_of_which_nothing_came_is_gaps() -> None:
    run = replayed(2)
    run.samples = [failed(s) for s in run.samples]
    shown, = panels(run)
    assert isinstance(shown, Bars) and (shown.bars, len(shown.gaps)) == ((), 4)
    assert shown.title == "The turns of the replay: nothing to compare"


def test_a_turn_without_a_figure_is_a_gap_and_said() -> None:
    asked = [CACHE[0], failed(CACHE[1]), CACHE[2], replace(CACHE[3], cached_tokens=None)]
    shown = cache_bars(asked, CODES, native=True)
    assert [(b.arm, b.turn) for b in shown.bars] == [("append", 1), ("prepend", 1)]
    assert shown.gaps == (("append", 2), ("prepend", 2))
    assert shown.medians == {"append": None, "prepend": None}
    assert shown.said == ("no turn from 2 on is known: no median",
                          "not drawn, of 4 requests: 1 failed, 1 without a known figure")


def test_zero_is_a_bar_and_unknown_is_none() -> None:
    none_reused = cache_bars([replace(CACHE[0], cached_tokens=0)], CODES, native=True)
    assert (none_reused.bars[0].base, none_reused.gaps) == (0, ())


def test_a_sample_left_out_is_counted_as_such() -> None:
    asked = [NATIVE[0], NATIVE[2], replace(NATIVE[1], notes=("not_cold: 900 reused",))]
    assert length_points(asked, native=True).said == (
        "not drawn, of 3 requests: 1 left out (not cold, or cut)",)


def test_the_two_phases_of_both_arms() -> None:
    shown = phase_rows(CACHE)
    assert (shown.name, shown.title, shown.is_log, shown.said) == (
        "phases", "prepend / append: TTFT 352x, inter-token latency 1.00x", True,
        ("a mark a turn from turn 2 on; the bar is the median",))
    assert [(row.figure, row.arm) for row in shown.rows] == [
        ("TTFT", "append"), ("TTFT", "prepend"),
        ("inter-token latency", "append"), ("inter-token latency", "prepend")]
    assert [row.median for row in shown.rows] == pytest.approx([0.04, 14.08, 0.01, 0.01])
    assert [row.values for row in shown.rows] == [(row.median,) for row in shown.rows]


def test_without_usage_it_is_inter_chunk_latency() -> None:
    shown = phase_rows([uncounted(s) for s in CACHE])
    assert {row.figure for row in shown.rows} == {"TTFT", "inter-chunk latency"}
    assert shown.title == "prepend / append: TTFT 352x, inter-chunk latency 1.00x"


def test_a_latency_that_is_not_known_is_said() -> None:
    shown = phase_rows([replace(s, arrivals_s=s.arrivals_s[:1]) for s in CACHE])
    assert shown.title == "prepend / append: TTFT 352x, inter-token latency not known"
    assert shown.said[1] == ("turns with a known figure: append inter-token latency 0 of 1, "
                             "prepend inter-token latency 0 of 1")


def test_one_arm_alone_is_drawn_alone() -> None:
    run = local(3)
    run.samples = [s for s in run.samples if s.arm == "append"]
    bars, phases = panels(run)
    assert isinstance(bars, Bars) and isinstance(phases, Phases)
    assert bars.arms == ("append",) and bars.title.startswith("append: ")
    assert phases.title == "TTFT and inter-token latency of append"


def test_only_the_experiments_there_are_have_panels() -> None:
    names = [[p.name for p in panels(run)] for run in (
        local(3), only(local(3), "length"), only(cloud(3), "output", "cache"))]
    assert names == [["length", "output", "cache", "phases"], ["length"],
                     ["output", "cache", "phases"]]


def test_controls_alone_make_no_panel() -> None:
    run = local(3)
    run.samples = [s for s in run.samples if s.arm == "cold"]
    assert panels(run) == []


@pytest.mark.parametrize(("turns", "labelled"), [(3, True), (12, True), (13, False), (60, False)])
def test_numbers_stand_on_bars_only_where_there_is_room(turns: int, labelled: bool) -> None:
    shown = panels(local(turns))[2]
    assert isinstance(shown, Bars)
    assert (shown.is_labelled, len(shown.bars)) == (labelled, 2 * turns)


def test_the_headline_is_the_medians_in_one_sentence() -> None:
    for run, said in (
            (local(3), "A turn recomputes 18 tokens where new text is appended, 51,050 tokens "
                       "where the time stands in front"),
            (cloud(3), "A turn waits 42.5 ms where new text is appended, 14,003 ms where the time "
                       "stands in front"),
            (only(local(3), "length"), ""),
            (only(local(3), "length", "output"),
             "Prefill grows by 550 ms per 1,000 input tokens; Total time against output tokens: "
             "too few requests for a slope")):
        assert headline(run, panels(run)) == said


def test_the_caption_names_the_run() -> None:
    run = cloud(1)
    run.endpoint = {"model": "m", "url": "https://api.example/v1"}
    assert caption(run) == f"api_timing {run.version}: m at api.example, 2026-01-01 00:00 UTC"
    run.endpoint = {}
    assert ": model unknown, 2026" in caption(run)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -0.001, 1e300])
def test_what_is_no_figure_is_never_drawn(value: float | None) -> None:
    assert usable(value) is None
    if value is None:
        return
    bad = [replace(s, arrivals_s=(value, 2 * value)) for s in CACHE]
    shown = cache_bars(bad, CODES, native=False)
    assert (shown.bars, len(shown.gaps)) == ((), 4)
    assert all(row.median is None and row.values == () for row in phase_rows(bad).rows)
    assert output_points([replace(NATIVE[3], arrivals_s=(value,))]).points == ()


def test_scales_ask_for_a_logarithm_from_ten_times_on() -> None:
    assert [is_wide(v) for v in ([1, 9.9], [1, 10], [0, 10], [5], [])] == [
        False, True, False, False, False]


def test_a_fit_on_a_logarithmic_scale_leaves_out_what_is_not_above_zero() -> None:
    fit = Curve(intercept=-2, slope=1, square=0, p_value=0, n=9)
    assert trace(fit, 1, 100, is_log=True, steps=2) == [(pytest.approx(10), pytest.approx(8)),
                                                        (100, 98)]
    assert trace(fit, 0, 4, is_log=False, steps=2) == [(0, -2), (2, 0), (4, 2)]


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_the_picture_says_what_the_tables_and_the_json_say(path: Path) -> None:
    run = load_run(path)
    text = render(run)
    rows = {(r["experiment"], r["arm"]): r for r in summarise(run.samples)}
    if path.name.startswith("replay"):
        bars, = panels(run)
        assert isinstance(bars, Bars) and bars.is_tokens
        assert bars.medians == {arm: rows["replay", arm]["recomputed_tokens"]["median"]
                                for arm in ("as_sent", "what_if")}
        return
    length, output, bars, phases, *_ = panels(run)
    assert isinstance(length, Points) and isinstance(output, Points)
    for drawn in (length, output):  # the line of the table, where a curve is drawn beside it too
        lines = [said.removeprefix("line: ") for said in drawn.said if said.startswith("line: ")]
        assert (lines or [drawn.title[0].lower() + drawn.title[1:]])[0] in text
    assert isinstance(bars, Bars) and isinstance(phases, Phases)
    for arm, value in bars.medians.items():
        name = "recomputed_tokens" if bars.is_tokens else "ttft_s"
        assert value == rows["cache", arm][name]["median"]
        assert f"{arm}: {bars.title.split(f'{arm}: ')[1].split(' ·')[0]}." in text
    for row in phases.rows:
        name = "ttft_s" if row.figure == "TTFT" else "inter_token_s"
        assert row.median == rows["cache", row.arm][name]["median"]
    points: dict[str, list[Sample]] = {
        n: of_experiment(run.samples, n) for n in ("length", "output")
    }
    assert [len(length.points), len(output.points)] == [len(v) for v in points.values()]


def test_preparing_needs_no_matplotlib() -> None:
    code = (
        "import sys; import request_timing.pictures.panels; sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
