"""Panels of the shapes of reuse and of the physics, as data: exact, without matplotlib."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from drawn_more import SHAPES, everything, shaped, six, timed, unknown_to_all, ways
from drawn_runs import failed, local
from panel_samples import LADDER, NAMES, pair
from physics_samples import deep, sweep, worked
from request_timing.findings.measures import of_experiment
from request_timing.findings.reuse import verdicts
from request_timing.pictures.panel_parts import Chart, Lane, Lanes, Series, written
from request_timing.pictures.panels import headline, panels
from request_timing.pictures.reuse_panels import ladder_lanes, minimum_chart, position_lanes
from request_timing.pictures.savings_panels import (
    block_chart,
    depth_chart,
    pause_lanes,
    restore_chart,
    workload_lanes,
)
from request_timing.records.names import NO_DISK
from request_timing.report.reuse_tables import ladder_text, position_text
from request_timing.report.text import render
from restore_samples import paused, restored


def test_ladder_is_the_share_reused_what_is_shared_and_the_verdict() -> None:
    kind = "reused, as reported"
    assert ladder_lanes(LADDER) == Lanes(
        name="ladder", unit="share", kinds=(kind,), mark_label="shared, so predicted",
        title="Of 4 shapes of reuse: 1 reused · 1 reused in part · 1 shared, but computed again "
              "· 1 shares nothing, so computed",
        x_label="share of the prompt", is_log=False, lanes=(
            Lane(label="identical repeat", kind=kind, value=0.999, mark=1.0, note="hit"),
            Lane(label="head changed", kind=kind, value=0.0, mark=0.004, note="no hit"),
            Lane(label="tail cut off", kind=kind, value=0.512, mark=0.8, note="partial"),
            Lane(label="back after 4", kind=kind, value=0.0, mark=0.9, note="missed")),
        said=("back after n: n others came in between",))


def test_ladder_without_counts_is_the_clock() -> None:
    silent = [replace(s, cached_tokens=None) for s in LADDER]
    shown = ladder_lanes(silent)
    assert shown.kinds == ("TTFT / cold",)
    assert [(lane.value, lane.mark) for lane in shown.lanes] == [
        (0.25, None), (1.0, None), (0.25, None), (1.0, None)]
    assert shown.said[1] == "no cached tokens are reported: judged by the clock"


def test_a_row_that_failed_has_no_bar_and_is_said() -> None:
    shown = ladder_lanes([failed(s) if s.arm == "tail_cut" else s for s in LADDER])
    assert shown.lanes[2] == Lane(label="tail cut off", kind="reused, as reported", value=None,
                                  mark=None, note="arm failed")
    assert shown.said[1:] == ("no figure: 1 of 4 rows", "not drawn, of 8 requests: 2 failed")


def test_a_verdict_on_the_whole_server_is_the_title() -> None:
    never = [replace(s, cached_tokens=0) for s in LADDER]
    assert ladder_lanes(never).title == (
        "NO REUSE HERE: nothing is reported reused of any prompt that shares its beginning with "
        "an earlier one")


def test_position_is_the_tokens_recomputed_by_place_and_by_stamp() -> None:
    samples = [*pair("position", "0", shared=10, reused=0),
               *pair("position", "100", shared=990, reused=976),
               *pair("position", "second", shared=10, reused=0),
               *pair("position", "second", 2, shared=990, reused=980),
               *pair("position", "day", shared=990, reused=980)]
    shown = position_lanes(samples)
    changed, stamp = shown.kinds
    assert (shown.unit, shown.x_label, changed, stamp) == (
        "tokens", "tokens recomputed", "one token changed", "time in front")
    assert shown.title == "A change at 0 % recomputes 1,000 tokens, one at 100 % 24 tokens"
    assert shown.lanes == (
        Lane(label="changed at 0 %", kind=changed, value=1000, mark=990, note="no hit"),
        Lane(label="changed at 100 %", kind=changed, value=24, mark=10, note="hit"),
        Lane(label="stamp by second", kind=stamp, value=510, mark=None, note="new in 1 of 2"),
        Lane(label="stamp by day", kind=stamp, value=20, mark=None, note="new in 0 of 1"))


def test_position_without_counts_is_ttft() -> None:
    shown = position_lanes([*pair("position", "0", shared=10, reused=None, seconds=4.0),
                            *pair("position", "75", shared=750, reused=None, seconds=1.5)])
    assert (shown.unit, [lane.value for lane in shown.lanes]) == ("ms", [4.0, 1.5])
    assert shown.title == "A change at 0 % waits 4,000 ms, one at 75 % 1,500 ms"


MINIMUM = [*pair("minimum", "400", 1, shared=100, reused=0),
           *pair("minimum", "1024", 2, shared=256, reused=256),
           *pair("minimum", "2000", 3, shared=500, reused=448)]


def test_minimum_is_the_pairs_and_the_prefix_found() -> None:
    assert minimum_chart(MINIMUM) == Chart(
        name="minimum", title="FOUND: the shortest prefix reused has 100 to 256 tokens",
        x_label="tokens of the shared prefix", y_label="tokens reused", unit="tokens", fit=None,
        at=("shortest reused: 256", 256), is_log=False, series=(
            Series(label="reused", style=0, points=((256, 256), (500, 448))),
            Series(label="not reused", style=1, points=((100, 0),))),
        said=("reuse then grows in steps of 192; of one of 500 tokens 448 are reused (reported "
              "counts)", "3 pairs of prompts that share a prefix and nothing else"))


def test_minimum_that_was_not_found_has_no_line() -> None:
    shown = minimum_chart([replace(s, cached_tokens=0) for s in MINIMUM])
    assert (shown.at, shown.title) == (None, "NOT FOUND: not found below 500 tokens")
    assert [(one.label, len(one.points)) for one in shown.series] == [("not reused", 3)]


def test_minimum_without_counts_is_the_time_saved() -> None:
    slower = [replace(s, cached_tokens=None,
                      arrivals_s=(5.0, 5.1) if s.repeat == 1 and s.turn == 2 else s.arrivals_s)
              for s in MINIMUM]
    shown = minimum_chart([*slower, *map(failed, pair("minimum", "8", shared=2, reused=None))])
    assert (shown.unit, shown.y_label) == ("ms", "TTFT saved")
    assert sorted(p for one in shown.series for p in one.points) == [(100, 0), (256, 3), (500, 3)]
    assert shown.said[-2:] == ("1 pairs whose second prompt was slower stand at 0",
                               "not drawn, of 8 requests: 2 failed")


def test_depth_is_each_request_and_the_fitted_line() -> None:
    shown = depth_chart(deep(0, 1000, 4000, repeats=1, native=True))
    # By hand: a step takes 10 ms and 1 ns for each token of its context.
    (one,) = shown.series
    assert [x for x, _ in one.points] == [110, 1118, 4118]
    assert [y for _, y in one.points] == pytest.approx(
        [0.01 + 1e-6 * x for x in (110, 1118, 4118)], rel=1e-3)
    assert shown.fit is not None
    assert shown.fit[1][0] == pytest.approx((110, 0.01011), rel=1e-3)
    assert shown.title.startswith("SLOWER: A longer prefix makes each token slower")
    assert shown.said[0].startswith("line: 1.00 ms more for each 1,000 tokens of context (95 %: ")


def test_one_depth_has_no_line() -> None:
    shown = depth_chart(deep(0, native=True))
    assert (shown.fit, shown.title) == (
        None, "UNDECIDED: One depth alone fits this server: nothing to compare")


def test_one_more_block_grows_with_the_prompt_before_it() -> None:
    shown = block_chart(deep(0, 1000, 4000, repeats=1))
    # By hand: 20 ms, 100 tokens of 0.1 ms, and 10 ns (n² - (n - 100)²), which is 2 µs·n - 0.1 ms.
    assert shown.title == ("One more block of 100 tokens takes 30.1 ms at 100 tokens and 38.1 ms "
                           "at 4,108 tokens of prompt")
    assert shown.said[0].startswith("line: 2.00 ms more for each 1,000 tokens before it (95 %: ")
    assert [x for x, _ in shown.series[0].points] == [100, 1108, 4108]
    assert [y for _, y in shown.series[0].points] == pytest.approx([0.0301, 0.032116, 0.038116])


def test_a_slope_within_its_error_of_none_is_not_claimed() -> None:
    noisy = [replace(s, arrivals_s=(0.1 if s.turn == 2 else 0.03, 0.2))
             for s in deep(0, 1000, 4000, 16_000, repeats=1)]
    noisy[-1] = replace(noisy[-1], arrivals_s=(0.03, 0.2))
    shown = block_chart(noisy)
    assert shown.title == ("One more block of 100 tokens: no growth with the prompt before it is "
                           "shown")
    assert "(95 %: -" in shown.said[0]


def test_a_prefix_that_was_not_reused_stands_apart() -> None:
    shown = block_chart(deep(0, 1000, 4000, warm=False, repeats=1))
    assert [(one.label, len(one.points)) for one in shown.series] == [
        ("one request", 1), ("prefix not reused: not in the line", 2)]
    assert (shown.fit, shown.said) == (None, ())


RATED = [*sweep(1000, 8000, 40_000), *deep(0, 1000, 16_000, 48_000)]


def test_workload_is_predicted_beside_measured() -> None:
    shown = workload_lanes([*RATED, *worked((2000, 100))])
    assert shown.title.startswith("AS PREDICTED: 2 of 2 whole requests")
    assert (shown.unit, shown.kinds, shown.is_log) == ("ms", ("cold", "hit"), False)
    assert [(lane.label, lane.kind, lane.note) for lane in shown.lanes] == [
        ("2,000 in, 100 out: cold", "cold", "+0 %"), ("2,000 in, 100 out: hit", "hit", "+0 %")]
    # TTFT 0.02 + 0.2 + 0.04; 99 steps of 10 ms and 1 µs for each of 2,001 to 2,099 tokens.
    assert [lane.value for lane in shown.lanes] == pytest.approx([1.45295, 1.21309], abs=2e-4)
    assert [lane.mark for lane in shown.lanes] == pytest.approx([1.45295, 1.21309], abs=2e-4)


def test_a_wrong_prediction_and_a_hit_that_was_none_are_said() -> None:
    wrong = [replace(s, arrivals_s=tuple(2 * a for a in s.arrivals_s))
             for s in worked((2000, 100), reused=False)]
    shown = workload_lanes([*RATED, *wrong])
    assert [lane.note for lane in shown.lanes] == ["-50 %", "no hit"]
    assert shown.title.startswith("NO HIT: At 1 of 1 shapes the same request again was no hit")


def test_workload_without_rates_has_bars_and_no_mark() -> None:
    shown = workload_lanes(worked(*SHAPES))
    assert shown.title.startswith("NO RATES: ")
    assert {(lane.mark, lane.note) for lane in shown.lanes} == {(None, "unknown")}
    assert None not in [lane.value for lane in shown.lanes]


def test_restore_is_a_series_a_way_of_the_same_style_in_every_picture() -> None:
    shown = restore_chart([*restored(100, 50, 2, 30), *restored(1000, 500, 2, 40)])
    assert shown.series == (
        Series(label="recomputed", style=0, points=((100, 0.05), (1000, 0.5)),
               path=((100, 0.05), (1000, 0.5))),
        Series(label="slot", style=1, points=((100, 0.002), (1000, 0.002)),
               path=((100, 0.002), (1000, 0.002))),
        Series(label="host memory", style=2, points=((100, 0.03), (1000, 0.04)),
               path=((100, 0.03), (1000, 0.04))))
    assert (shown.title, shown.is_log) == ("slot: RESTORED · host: RESTORED", True)
    assert shown.said[0] == ("slot: 2 of 2 came back, surely sooner than recomputed from 100 "
                             "tokens on")
    disk = restore_chart([s for s in ways() if not s.arm.startswith(("slot", "host"))])
    assert [one.style for one in disk.series] == [0, 3]


def test_a_server_without_a_disk_is_said() -> None:
    samples = restored(1000, 300, 4, 300, found_host=False)
    shown = restore_chart([replace(samples[0], notes=(f"{NO_DISK} (501)",)), *samples[1:]])
    assert shown.title == "slot: RESTORED · host: NOT RESTORED · disk: NOT OFFERED"
    assert "This server saves no slot: start it with --slot-save-path DIR." in shown.said


def test_pauses_are_lanes() -> None:
    shown = pause_lanes(paused(0, 60, 300, until=60))
    assert [(lane.label, lane.note) for lane in shown.lanes] == [
        ("after 0 s", "found"), ("after 60 s", "found"), ("after 300 s", "gone")]
    assert [lane.value for lane in shown.lanes] == pytest.approx([0.02018, 0.02018, 0.58], 1e-3)
    assert {lane.mark for lane in shown.lanes} == {0.58}
    assert shown.title == "GONE: A prefix lived through 60 s and was gone after 300 s"


def test_each_experiment_has_its_panel_in_the_order_of_the_tables() -> None:
    assert [p.name for p in panels(six())] == NAMES
    assert [p.name for p in panels(everything())] == ["length", "output", "cache", "phases", *NAMES]
    assert panels(local(3))[-1].name == "phases"
    for name in ("ladder", "minimum", "depth"):
        run = six()
        run.samples = of_experiment(run.samples, name)
        assert [p.name for p in panels(run)] == NAMES[slice(
            NAMES.index(name), NAMES.index(name) + 1 + (name == "depth"))]


def test_many_panels_have_no_headline_of_all_their_titles() -> None:
    assert headline(six(), panels(six())) == ""
    assert headline(everything(), panels(everything())).startswith("A turn recomputes")


SERVERS: list[dict[str, Any]] = [
    {}, {"cache": "off"}, {"cache": "response"}, {"minimum_tokens": 512, "block_tokens": 128},
    {"keep_prompts": 1}, {"native": False, "report_cached": False, "noise_sigma": 0.1}]


@pytest.mark.parametrize("server", SERVERS)
def test_the_verdicts_are_those_of_the_tables_and_the_json(server: dict[str, Any]) -> None:
    samples = shaped(**server)
    codes = {(v.experiment, v.arm): v.code.replace("_", " ") for v in verdicts(samples)}
    ladder, position = (of_experiment(samples, name) for name in ("ladder", "position"))
    for shown, text in ((ladder_lanes(ladder), ladder_text(ladder)),
                        (position_lanes(position), position_text(position, native=True))):
        notes = [lane.note for lane in shown.lanes if not lane.label.startswith("stamp")]
        assert notes == [code for (name, arm), code in codes.items()
                         if name == shown.name and code != "stamp"]
        for lane, note in zip(shown.lanes, notes, strict=False):
            row = next(line for line in text.splitlines()
                       if line.strip().startswith(lane.label.removeprefix("changed at ") + "  "))
            assert row.endswith(f"  {note}")
    title = minimum_chart(of_experiment(samples, "minimum")).title
    assert title.startswith(f"{codes['minimum', 'minimum'].upper()}: ")


def test_the_titles_of_the_physics_are_in_the_tables() -> None:
    run = local(3)
    run.samples = timed(native=True)
    text = " ".join(render(run).split())
    for shown in panels(run):
        if shown.name in ("depth", "workload", "pauses"):
            assert shown.title.replace(": ", ". ", 1) in text
    for way in ("slot", "host", "disk"):
        assert f"restore, {way}: RESTORED." in text


def test_what_failed_is_never_drawn() -> None:
    run = six()
    run.samples = [failed(s) for s in run.samples]
    for shown in panels(run):
        values = ([lane.value for lane in shown.lanes] if isinstance(shown, Lanes)
                  else [p for one in shown.series for p in one.points]
                  if isinstance(shown, Chart) else [0])
        assert set(values) <= {None}, shown.name
    assert panels(unknown_to_all())


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_what_is_no_figure_is_never_drawn(value: float) -> None:
    bad = [replace(s, arrivals_s=(value, 2 * value), server=None) for s in ways()]
    assert restore_chart(bad).series == ()
    lanes = position_lanes([replace(s, cached_tokens=None, arrivals_s=(value, value))
                            for s in pair("position", "0", shared=10, reused=None)]).lanes
    assert [lane.value for lane in lanes] == [None]


def test_values_are_written_as_in_the_tables() -> None:
    assert [written(*v) for v in ((0.5123, "share"), (14.2101, "ms"), (51_222, "tokens"),
                                  (None, "ms"))] == ["51.2 %", "14,210", "51,222", "-"]
