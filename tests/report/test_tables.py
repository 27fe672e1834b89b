"""Exact tables, as literals: what a person sees is held to the letter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blank_sample import blank
from request_timing.formats import between, count, ms, percent, percent_cell
from request_timing.records.run import load_run
from request_timing.records.sample import TEXT, Connection, Failure, Sample
from request_timing.report.tables import per_s, times
from request_timing.report.text import render
from run_samples import run_of
from table_samples import NATIVE

ROOT = Path(__file__).resolve().parents[2]


NATIVE_TEXT = """\
local_cache: tiny
http://x, 2026-01-01 00:00:00 UTC

length: time to read the input (prefill), every prompt cold
asked  input  reused  prefill ms  quartiles  tokens/s  TTFT ms  n
-----  -----  ------  ----------  ---------  --------  -------  -
1,000  1,000       0         550   525..575     1,818      550  2
2,000  2,000       0       1,100          -     1,818    1,100  1
prefill grows by 550 ms per 1,000 input tokens (median slope, 3 requests)

output: time to write the output (decode), one short input
asked  written  decode ms  ms/token  tokens/s  total ms  quartiles  n   short
-----  -------  ---------  --------  --------  --------  ---------  -  ------
   50       50        490      10.0       100       500          -  1
  100       60        590      10.0       100       600          -  1  1 of 1
short: answers that stopped before the length asked for

cache: one long context over several turns
       append: new text at the end; prepend: the time now in front of it all;
       controls: repeat, one prompt over and over; cold, a new beginning each
    arm  turn   input  recomputed  reused  prefill ms  decode ms/token
-------  ----  ------  ----------  ------  ----------  ---------------
 append     1  51,000      51,000       0      14,000             10.0
 append     2  51,022          18  51,004        40.0             10.0
prepend     1  51,000      51,000       0      14,000             10.0
prepend     2  51,022      51,002      20      14,080             10.0

     all turns  n  recomputed  of input tokens  prefill ms
--------------  -  ----------  ---------------  ----------
        append  2      51,018          102,022      14,040
       prepend  2     102,002          102,022      28,080
prepend/append          2.00x                        2.00x

verdict
append: HIT. 100 % of the prompt is reused
prepend: NO HIT. 0 % of the prompt is reused"""


def finished(*samples: Sample, tool: str = "local_cache") -> str:
    run = run_of(*samples)
    run.tool, run.complete = tool, True
    return render(run)


def test_the_tables_of_a_llama_server() -> None:
    assert finished(*NATIVE) == NATIVE_TEXT


CLOUD_TEXT = """\
api_timing: tiny
http://x, 2026-01-01 00:00:00 UTC

length: time to read the input (prefill), every prompt cold
asked  input  cached  TTFT ms  quartiles  total ms  n
-----  -----  ------  -------  ---------  --------  -
1,000  1,000       0      550   525..575       590  2
2,000  2,000       0    1,100          -     1,140  1
TTFT grows by 550 ms per 1,000 input tokens (median slope, 3 requests)

output: time to write the output (decode), one short input
asked  written  TTFT ms  ms/token  tokens/s  total ms  quartiles  n   short
-----  -------  -------  --------  --------  --------  ---------  -  ------
   50       50     10.0      10.0       100       500          -  1
  100       60     10.0      10.0       100       600          -  1  1 of 1
short: answers that stopped before the length asked for

cache: one long context over several turns
       append: new text at the end; prepend: the time now in front of it all;
       controls: repeat, one prompt over and over; cold, a new beginning each
    arm  turn   input  cached  TTFT ms  written  total ms  inter-token ms
-------  ----  ------  ------  -------  -------  --------  --------------
 append     1  51,000       0   14,000        5    14,040            10.0
 append     2  51,022  51,004     40.0        5      80.0            10.0
prepend     1  51,000       0   14,000        5    14,040            10.0
prepend     2  51,022      20   14,080        5    14,120            10.0

median from turn 2  n  cached  TTFT ms  quartiles  inter-token ms
------------------  -  ------  -------  ---------  --------------
            append  1  51,004     40.0          -            10.0
           prepend  1      20   14,080          -            10.0
    prepend/append                352x                      1.00x

verdict
append: HIT. 100 % of the prompt is reused
prepend: NO HIT. 0 % of the prompt is reused"""


def test_the_tables_of_a_cloud_api() -> None:
    assert finished(*(replace(s, server=None) for s in NATIVE), tool="api_timing") == CLOUD_TEXT


def test_no_table_is_wider_than_a_terminal() -> None:
    for text in (NATIVE_TEXT, CLOUD_TEXT):
        assert max(map(len, text.splitlines())) <= 80


def test_an_unfinished_run_says_so_and_a_failure_has_its_line() -> None:
    failed = replace(NATIVE[0], arrivals_s=(), arrival_kinds=(), server=None,
                     error=Failure(kind="http", message="HTTP 500: no", http_status=500))
    text = render(run_of(NATIVE[0], failed, failed))
    assert "INCOMPLETE" in text
    assert "length 1000: failed: HTTP 500: no (2 times)" in text
    assert "1,000  1,000       0         500" in text  # the failures are in no average


def test_what_the_clock_could_not_separate_is_said() -> None:
    held = blank(experiment="length", arm="10", arrivals_s=(2.0,) * 30, arrival_kinds=(TEXT,) * 30,
                 output_tokens=130, reasoning_tokens=100,
                 connection=Connection(new=True, connect_s=0.03, tls_s=0.05))
    text = finished(held, tool="api_timing")
    assert "1 of 1 streams came in bursts" in text
    assert "1 of 1 answers hold thinking that was not streamed (median 100" in text
    assert "1 of 1 requests opened a connection (80.0 ms, before the clock starts)" in text


def test_unknown_is_a_dash_and_zero_is_a_zero() -> None:
    unknown = blank(experiment="cache", arm="append", turn=2, arrivals_s=(0.5, 0.6),
                    arrival_kinds=(TEXT, TEXT))
    text = finished(unknown, tool="api_timing")
    assert "append     2      -       -      500        -       600               -" in text
    assert "no output tokens were reported: inter-chunk latency 100 ms" in text
    assert count(0) == "0"


@pytest.mark.parametrize(("seconds", "shown"), [
    (14.2104, "14,210"), (0.183, "183"), (0.00546, "5.46"), (0, "0"), (None, "-"), (0.0999, "99.9"),
    (0.018, "18.0"), (0.09996, "100"), (0.00013, "0.130"),
])
def test_milliseconds(seconds: float | None, shown: str) -> None:
    assert ms(seconds) == shown


def test_other_cells() -> None:
    assert (count(51222), count(None)) == ("51,222", "-")
    assert (per_s(1703.4), per_s(9.81), per_s(None)) == ("1,703", "9.81", "-")
    assert (times(6.0), times(22.63), times(None)) == ("6.00x", "22.6x", "-")


SAVED = sorted((ROOT / "sample_output").glob("*.json"))


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_every_saved_run_loads_and_renders_to_the_text_beside_it(path: Path) -> None:
    assert path.with_suffix(".txt").read_text() == render(load_run(path)) + "\n"


def test_there_are_saved_runs() -> None:
    assert len(SAVED) >= 3


def test_shares_and_intervals_as_people_read_them() -> None:
    assert [percent(share) for share in (0.9873, 0.98, 0, -0.005)] == ["98.7 %", "98 %", "0 %",
                                                                       "-0.5 %"]
    assert percent(0.98, fixed=True) == "98.0 %"
    assert [percent_cell(share) for share in (0.98, None)] == ["98.0%", "-"]
    assert between((0.0012, 0.0034), 1000) == "(95 %: 1.20 to 3.40)"
    assert between(None) == "(too few points for an interval)"


def test_a_strangers_file_cannot_write_to_the_terminal_past_its_line() -> None:
    run = run_of(*NATIVE)
    run.endpoint = {"model": "\x1b[2Jtiny\r\nverdict", "url": "http://x\x9b31m"}
    text = render(run)
    assert not any((ord(c) < 32 and c != "\n") or 0x7f <= ord(c) < 0xa0 for c in text)
    assert text.splitlines()[0] == "local_cache: \\x1b[2Jtiny verdict"
