"""Two runs compared: exact tables, what may be said, and the files that are refused."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ROOT, assert_one_line, run_script
from request_timing.errors import UserError
from request_timing.findings.derive import to_text
from request_timing.findings.measures import FIGURES
from request_timing.records.run import Run
from request_timing.records.sample import Failure, Sample
from request_timing.report.compare import Row, differences, render, together
from request_timing.stats.ranks import interval, stratified_interval
from run_samples import run_of
from table_samples import native

NAMES = ("A.json", "B.json")


def lengths(factor: float, *, sizes: tuple[int, ...] = (1000, 2000), n: int = 3) -> list[Sample]:
    """n samples a size: a millisecond a token, a twentieth more each time, all times the factor."""
    return [native("length", str(size), 1, reused=0, computed=size,
                   prompt_ms=factor * size * (1 + i / 20))
            for size in sizes for i in range(n)]


def turns(prompt_ms: float, *, reused: int = 0, computed: int = 1000, n: int = 6) -> list[Sample]:
    return [native("cache", arm, turn, reused=reused if turn > 1 else 0,
                   computed=computed if turn > 1 else computed + reused,
                   prompt_ms=prompt_ms * (1 + turn / 100))
            for arm in ("append", "prepend") for turn in range(1, n + 1)]


def of(*samples: Sample, **known: object) -> Run:
    run = run_of(*samples)
    run.complete = True
    for name, value in known.items():
        setattr(run, name, value)
    return run


# length, all: of 18 ratios the third and the third last, 2 / 1.05 and 2 x 1.05. cache: of 25 the
# third and the third last (4 of 252 ways, 1.6 %, have U <= 2), B/A times 1.03/1.06 and 1.06/1.03.
TABLE = """\
A: A.json, 2026-01-01 00:00:00 UTC
B: B.json, 2026-01-01 00:00:00 UTC, INCOMPLETE

what differs, A against B
  endpoint.url: http://x against http://y
  settings.seed: 0 against none
  settings.context: none against 51000

length: prefill ms by input tokens, B against A
asked   A ms   B ms    B/A  95 % interval     n
-----  -----  -----  -----  -------------  ----  ---------------
1,000  1,050  2,100  2.00x              -  3, 3  too few to tell
2,000  2,100  4,200  2.00x              -  3, 3  too few to tell
  all                2.00x     1.90..2.10  6, 6         B slower

output: ms a token by output tokens, B against A
asked  A ms  B ms    B/A  95 % interval     n
-----  ----  ----  -----  -------------  ----  ---------------
   50  10.0  10.0  1.00x              -  1, 1  too few to tell

cache: prefill ms, turns from 2 on, B against A
    arm   A ms   B ms      B/A   95 % interval     n
-------  -----  -----  -------  --------------  ----  -------------------
 append  1,040   52.0  0.0500x  0.0486..0.0515  5, 5             B faster
prepend  1,040  1,040    1.00x     0.972..1.03  5, 5  no difference shown
append reused: A 0.0 %, B 99.0 %
prepend reused: A 0.0 %, B 0.0 %
append verdict: A UNDECIDED, B HIT
prepend verdict: A UNDECIDED, B NO HIT

B/A below 1: B is faster. no difference shown: the 95 % interval holds 1.
It is of chance within the runs; another hour or load is in the ratio too."""


def test_the_whole_comparison() -> None:
    out = native("output", "50", 1, reused=0, computed=20, prompt_ms=10, asked=50, written=50)
    a = of(*lengths(1), out, *turns(1000))
    fast = [s for s in turns(50, reused=990, computed=10) if s.arm == "append"]
    b = of(*lengths(2), out, *fast, *(s for s in turns(1000) if s.arm == "prepend"),
           complete=False, endpoint={"model": "tiny", "url": "http://y"},
           settings={"context": 51_000})
    assert render(a, b, NAMES) == TABLE


def test_no_line_is_wider_than_a_terminal() -> None:
    saved = sorted((ROOT / "sample_output").glob("*.json"))
    for a, b in itertools.product(saved, repeat=2):
        text = run_script("compare", str(a), str(b), cwd=ROOT, save=False)
        if a.name.startswith("replay") != b.name.startswith("replay"):
            assert_one_line(text, 2, "expected two runs of length, output, cache, replay")
            continue
        assert text.status == 0, text.err
        assert max(map(len, text.out.splitlines())) <= 80


def replayed(prompt_ms: float, *, computed: int, arm: str = "as_sent") -> list[Sample]:
    return [replace(native("cache", arm, turn, reused=1000 - computed, computed=computed,
                           prompt_ms=prompt_ms * (1 + turn / 100)), experiment="replay",
                    shared_tokens=1000 - computed)
            for turn in range(1, 7)]


def test_a_replay_is_compared_arm_by_arm() -> None:
    a = of(*replayed(1000, computed=1000), *replayed(50, computed=10, arm="what_if"))
    b = of(*replayed(50, computed=10), *replayed(50, computed=10, arm="what_if"))
    text = render(a, b, NAMES)
    assert "replay: prefill ms, turns from 2 on, B against A" in text
    assert "as_sent  1,040  52.0  0.0500x  0.0486..0.0515  5, 5             B faster" in text
    assert "what_if   52.0  52.0    1.00x     0.972..1.03  5, 5  no difference shown" in text
    assert "as_sent reused: A 0.0 %, B 99.0 %" in text
    assert "as_sent verdict: A NO HIT, B HIT" in text
    assert "what_if verdict: A HIT, B HIT" in text


def test_a_run_against_itself_shows_no_difference_and_says_nothing_differs() -> None:
    run = of(*lengths(1, n=5))
    text = render(run, run, NAMES)
    assert "tool, endpoint, settings and environment are the same" in text
    assert text.count("no difference shown") == 4  # a size each, all, and the legend
    assert "B faster\n" not in text and "B slower\n" not in text


@pytest.mark.parametrize(("ratio", "interval_", "says"), [
    (2.0, (1.5, 2.5), "B slower"), (0.5, (0.4, 0.6), "B faster"),
    (1.1, (0.9, 1.3), "no difference shown"), (1.1, (1.0, 1.3), "no difference shown"),
    (0.9, (0.8, 1.0), "no difference shown"), (9.0, None, "too few to tell"),
    (None, None, "unknown"),
])
def test_what_an_interval_allows(
    ratio: float | None, interval_: tuple[float, float] | None, says: str
) -> None:
    assert Row(name="x", a_s=1, b_s=1, ratio=ratio, interval=interval_, n=(1, 1)).says == says


def test_a_cloud_run_is_compared_by_ttft_and_unreported_tokens_are_unknown() -> None:
    cloud = [replace(s, server=None, output_tokens=None) for s in
             [*lengths(1), native("output", "50", 1, reused=0, computed=20, prompt_ms=10)]]
    text = render(of(*cloud), of(*cloud), NAMES)
    assert "length: TTFT ms by input tokens" in text
    assert "   50     -     -    -              -  0, 0  unknown" in text


def test_failed_and_warm_samples_are_in_no_ratio() -> None:
    good = lengths(1)
    warm = replace(good[0], notes=("not_cold: 900 reused",), arrivals_s=(0.001, 0.002))
    failed = replace(good[0], error=Failure(kind="http", message="no"), arrivals_s=())
    assert render(of(*good), of(*good, warm, failed), NAMES) == render(
        of(*good), of(*good), NAMES)


def test_other_lengths_of_prompts_are_named() -> None:
    text = render(of(*turns(1000)), of(*turns(1000, computed=2000)), NAMES)
    assert "append: not the same work, A read 1,000 tokens, B 2,000" in text
    assert "not the same work" not in render(
        of(*turns(1000)), of(*turns(1000, computed=1010)), NAMES)


def test_sizes_and_experiments_that_only_one_run_has_are_left_out() -> None:
    text = render(of(*lengths(1), *turns(9)), of(*lengths(1, sizes=(2000, 4000))), NAMES)
    assert "2,000  2,100" in text
    assert "1,000  1," not in text and "4,000" not in text and "cache" not in text
    assert "  all" not in text  # one size is no sum


def test_all_the_differing_facts_are_named_and_passing_ones_are_not() -> None:
    a = of(endpoint={"url": "u", "sent": {"x": 1}, "calibrated_tokens_per_char": 0.1})
    b = of(endpoint={"url": "u", "sent": {"x": 2}, "calibrated_tokens_per_char": 0.2},
           version="9", settings={"seed": 0, "doc": "a\n\x1b[31mb"})
    assert differences(a, b) == [
        f"version: {a.version} against 9", "endpoint.sent.x: 1 against 2",
        "settings.doc: none against a \\x1b[31mb"]


def test_one_stratum_gives_the_interval_of_two_arms() -> None:
    a, b = [0.1, 0.35, 0.2, 0.7], [0.5, 0.9, 0.15, 1.2, 0.8]
    assert stratified_interval([(a, b)]) == interval(a, b, None)


def test_two_strata_by_hand() -> None:
    """Of 400 ways to deal two strata of 3 and 3, 8 have U <= 2 (2 %) and 18 U <= 3 (4.5 %): the
    interval runs from the third of the 18 differences to the third last."""
    a, b = [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]
    assert stratified_interval([(a, b), (a, b)]) == (math.exp(1), math.exp(3))
    steps = sorted(t - c for c in (0.0, 0.4, 0.9) for t in (1.0, 2.0, 3.5)) * 2
    found = stratified_interval([([0.0, 0.4, 0.9], [1.0, 2.0, 3.5])] * 2)
    assert found == (math.exp(sorted(steps)[2]), math.exp(sorted(steps)[-3]))


def test_the_interval_is_right_in_every_way_that_two_strata_can_fall() -> None:
    """Without an effect, all ways to deal ranks are as likely: at most 5 % of them may be wrong."""
    deals = [(set(pick), [v for v in range(6) if v not in pick])
             for pick in itertools.combinations(range(6), 3)]
    missed = 0
    for (a, b), (c, d) in itertools.product(deals, repeat=2):
        # Ranks far apart within a stratum: no two differences are equal but in sign.
        found = stratified_interval([([2.0**v for v in a], [2.0**v for v in b]),
                                     ([3.0**v for v in c], [3.0**v for v in d])])
        assert found is not None
        missed += not found[0] <= 1 <= found[1]
    assert missed == 16  # 2 % each way of 400


def test_the_ratio_over_all_sizes_lies_in_its_interval() -> None:
    a, b = lengths(1, n=4), lengths(3, n=4)
    row = together([(a[:4], b[:4]), (a[4:], b[4:])], FIGURES["ttft_s"])
    assert row.ratio is not None and row.interval is not None
    assert row.ratio == pytest.approx(3)
    assert row.interval[0] <= row.ratio <= row.interval[1]
    assert row.n == (8, 8)
    assert together([([], [])], FIGURES["ttft_s"]).says == "unknown"


GOOD = to_text(of(*lengths(1)))


@pytest.mark.parametrize(("content", "says"), [
    (to_text(of(*turns(9))), "expected two runs of length, output, cache, replay, found length in"),
    (GOOD.replace('"schema_version": 1', '"schema_version": 99'), "schema_version 1, found 99"),
    ("{}", "found something else"), ("[1]", "found something else"), ("", "found something else"),
    (to_text(of()), "expected a run with a valid sample, found none among 0"),
    (to_text(of(replace(lengths(1)[0], error=Failure(kind="http", message="no")))),
     "found none among 1"),
    (to_text(of(*lengths(1, sizes=(7,)))), "expected a size or arm that both runs"),
    (GOOD.replace('"arm": "1000"', '"arm": null'), "values of another kind"),
    (GOOD.replace('"notes": []', '"notes": [7]'), "values of another kind"),
])
def test_a_file_that_cannot_be_compared_is_one_line(
    tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / "bad.json").write_text(content)
    assert_one_line(run_script("compare", "good.json", "bad.json", cwd=tmp_path, save=False),
                    2, says)


def test_missing_files_and_flags_are_one_line(tmp_path: Path) -> None:
    assert_one_line(run_script("compare", "a.json", "b.json", cwd=tmp_path, save=False), 2,
                    "a.json: cannot be read")
    assert_one_line(run_script("compare", "a.json", cwd=tmp_path, save=False), 2, "B.json")


def test_a_killed_run_is_compared_from_its_journal(tmp_path: Path) -> None:
    run = of(*lengths(1))
    (tmp_path / "a.json").write_text(GOOD)
    (tmp_path / "b.json.partial.jsonl").write_text("\n".join(map(json.dumps, [
        run.header() | {"complete": False}, *(s.to_json() for s in run.samples)])))
    done = run_script("compare", "a.json", "b.json.partial.jsonl", cwd=tmp_path, save=False)
    assert done.status == 0 and "INCOMPLETE" in done.out


def test_runs_of_what_is_not_compared_are_refused() -> None:
    """No table, and yet "no difference shown": that would be said of anything."""
    ladder = of(*[replace(s, experiment="ladder", arm="repeat") for s in turns(9)])
    with pytest.raises(UserError, match="expected two runs of length, output, cache, replay"):
        render(ladder, ladder, NAMES)
    first = of(*[s for s in turns(9) if s.turn == 1])
    with pytest.raises(UserError, match="from its second turn on"):
        render(first, first, NAMES)


def test_what_another_version_did_not_record_is_no_difference() -> None:
    a, b = of(*turns(9)), of(*turns(9))
    b.settings |= {"shapes": [], "what_if": False, "mended": None}
    assert differences(a, b) == []
    b.settings["what_if"] = True
    assert differences(a, b) == ["settings.what_if: none against true"]
