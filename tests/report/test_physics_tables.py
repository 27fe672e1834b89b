"""Exact tables, as literals: what a person sees is held to the letter, and to 80 columns."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from physics_samples import deep, sample, sweep, worked
from request_timing.findings.restore import findings
from request_timing.records.run import dumps
from request_timing.records.sample import Failure, Sample
from request_timing.report.savings_tables import blocks, depth_table
from restore_samples import RATED, SHAPES, paused, restored

RATES_TEXT = """\
fit: TTFT of cold prompts = fixed + linear x n + quadratic x n^2
                                  part  value        95 %
--------------------------------------  -----  ----------
                             fixed, ms   20.0  20.0..20.0
           linear, ms per 1,000 tokens    100    100..100
quadratic, ms per 1,000 tokens squared   10.0  10.0..10.0

input  TTFT ms  fitted ms  a cache could remove  n
-----  -------  ---------  --------------------  -
  250     45.6       45.6                 56.2%  3
  500     72.5       72.5                 72.4%  3
1,000      130        130                 84.6%  3
2,000      260        260                 92.3%  3
4,000      580        580                 96.6%  3
least squares of relative errors, 21 cold requests of length and depth
fit, prefill: QUADRATIC. From 100 to 4,000 tokens there is a quadratic term:
  27.6 % of TTFT at 4,000 tokens (95 %: 27.6 % to 27.6 %).
  A cache can't remove the fixed part, 20.0 ms (95 %: 20.0 to 20.0); it could
  remove 33.6 % (33.6 % at least) of TTFT at 100 tokens, 96.6 % (96.6 % at
  least) of TTFT at 4,000 tokens.

depth: writing, and reading one more block, over a cached prefix
prefix  context  reused  block  TTFT ms  tokens/s  ms/token   quartiles  n
------  -------  ------  -----  -------  --------  --------  ----------  -
     0      110       0    100     30.1     3,322      10.1  10.1..10.1  2
   500      678     568    100     31.2     3,201      10.7  10.6..10.7  2
 1,000    1,178   1,068    100     32.2     3,102      11.2  11.1..11.2  2
 2,000    2,178   2,068    100     34.2     2,921      12.2  12.1..12.2  2
 4,000    4,178   4,068    100     38.2     2,615      14.2  14.1..14.2  2
decode: 10.0 ms a token, and 1.00 ms more for each 1,000 tokens of context
  (95 %: 1.00 to 1.00)
block:  29.9 ms, and 2.00 ms more for each 1,000 tokens before it
  (95 %: 2.00 to 2.00)
depth, decode: SLOWER. A longer prefix makes each token slower, cached or not:
  by the line, a token takes 10.1 ms over 110 tokens of context and 14.2 ms
  over 4,178.
  Every prefix was reused, by the server's count.

workload: whole requests, cold and as a full hit
          pred.: predicted by the rates of length and depth
input  output  cold ms  pred.  hit ms  pred.  saved  pred.  ms/tok   hit
-----  ------  -------  -----  ------  -----  -----  -----  ------  ----
4,000      10      706    706     146    146  79.3%  79.3%    14.0  14.0
2,000      40      729    729     489    489  32.9%  32.9%    12.0  12.0
  500     100    1,117  1,117   1,065  1,065   4.7%   4.7%    10.6  10.6
  250     400    4,215  4,215   4,190  4,190   0.6%   0.6%    10.5  10.5
ms/tok, hit: decode, ms a token, of the cold request and of the hit

a full hit saves, of the whole time (predicted)
 input  10 out   100 out   1,000 out   4,000 out
------  -------  --------  ----------  ----------
    62    5.3%*     0.6%*       0.1%*       0.0%*
   250   18.5%      2.4%        0.2%        0.1%
 1,000   48.0%      9.0%        0.9%        0.2%
 4,000   79.3%     28.4%        3.7%        0.9%*
16,000   94.2%*    61.5%*      13.6%*       3.6%*
* beyond what was measured: prompts of 100 to 4,000 tokens, contexts up to 4,178

workload, prediction: AS PREDICTED. 8 of 8 whole requests took what the rates
  predict, within 10 %; the worst prediction is 0 % too short.
  A full hit saved 79.3 % of 4,000 in, 10 out. A full hit saved 0.6 % of 250
  in, 400 out.

what your own shapes would take, by the rates above
workload, 2000x100: PREDICTED. Cold 1.45 s, of which prefill 0.260 s and decode
  1.19 s. A full hit leaves 1.21 s: it saves 16.5 %, 0.240 s (95 %: 0.240 to
  0.240)."""

RESTORE_TEXT = """\
restore: the first token, ms, of a prompt that was seen before
         tokens: recomputed for it; disk: reading the slot back included
input  recomputed  slot  tokens  host memory  tokens  disk  tokens  n
-----  ----------  ----  ------  -----------  ------  ----  ------  -
   32        10.0  2.00       1         30.0       1  50.0       1  1
  250        70.0  3.00       1         35.0       1  80.0       1  1
1,000         300  4.00       1         40.0       1  90.0       1  1
restore: the same prompt again after a pause
pause s  really  input  cached  TTFT ms  first ms  found
-------  ------  -----  ------  -------  --------  -----
      0       0  4,000   3,999     20.2       580    yes
     10    10.0  4,000   3,999     20.2       580    yes
     60    60.0  4,000       0      580       580     no
restore, slot: RESTORED. 3 of 3 prompts came back in the slot. At 1,000 tokens
  the first token took 4.00 ms, recomputed 300 ms. It is sooner from at most 32
  tokens on.
restore, host: RESTORED. 3 of 3 prompts came back from host memory. At 1,000
  tokens the first token took 40.0 ms, recomputed 300 ms. It is sooner from 250
  tokens on.
restore, disk: RESTORED. 3 of 3 prompts came back from disk. At 1,000 tokens
  the first token took 90.0 ms, recomputed 300 ms. It is sooner from 1,000
  tokens on.
restore, pause: GONE. A prefix lived through 10 s and was gone after 60 s.
  One request a pause: another machine behind the address would look the same."""


def drawn(samples: list[Sample], *names: str, **known: Any) -> str:
    return "\n\n".join(blocks(samples, {"experiments": list(names)} | known))


def test_fit_depth_workload_and_a_shape() -> None:
    assert drawn([*RATED, *worked(*SHAPES)], "length", "depth", "workload", "fit",
                 shapes=[[2000, 100]]) == RATES_TEXT


def test_restore_and_its_pauses() -> None:
    samples = [*restored(32, 10, 2, 30, 50), *restored(250, 70, 3, 35, 80),
               *restored(1000, 300, 4, 40, 90), *paused(0, 10, 60, until=10)]
    assert drawn(samples, "restore") == RESTORE_TEXT


def test_the_tables_fit_a_terminal() -> None:
    assert max(map(len, f"{RATES_TEXT}\n{RESTORE_TEXT}".splitlines())) <= 80


def test_fit_is_printed_where_it_was_asked_for_alone() -> None:
    assert drawn(RATED[:15], "length") == ""
    assert drawn(RATED[:15], "length", "fit").startswith("fit: TTFT of cold prompts")


@pytest.mark.parametrize("samples", [
    sweep(250, repeats=2), deep(0, 500), deep(0), worked((100, 10)),
    worked((100, 10), reused=False), restored(10, 1, 1, 1), paused(0, until=0)[:1],
    paused(0, until=0)[1:],
    [replace(s, error=Failure(kind="http", message="no"), arrivals_s=(), prompt_tokens=None,
             output_tokens=None, cached_tokens=None)
     for s in [*sweep(250), *deep(0, 500), *worked((100, 10)), *restored(10, 1, 1, 1)]],
    [replace(s, prompt_tokens=None, output_tokens=None, cached_tokens=None, server=None)
     for s in [*sweep(250, 500), *deep(0, 500), *worked((100, 10)), *restored(10, 1, 1, 1)]],
    [replace(s, arrivals_s=tuple(0.0 for _ in s.arrivals_s)) for s in [*RATED, *worked((100, 10))]],
    [sample("length", str(10**n), 10**n, factor=10.0**(2 * n)) for n in (2, 4, 6)],
])
def test_whatever_the_samples_hold_there_is_a_table(samples: list[Sample]) -> None:
    text = drawn(samples, "length", "depth", "workload", "restore", "fit", shapes=[[10, 10]])
    assert text and max(map(len, text.splitlines())) <= 80
    assert not re.search(r"\b(nan|inf)\b", text)
    dumps(findings(samples, {"shapes": [[10, 10]]}))



def test_a_line_that_noise_begins_below_zero_claims_no_negative_time() -> None:
    """The block takes next to nothing, and four times as much further on: the line's own beginning
    is a negative time, which is none."""
    points = [replace(s, server=replace(s.server, prompt_ms=0.01 * s.prompt_tokens**2 / 1000))
              for s in deep(1000, 2000, 4000, native=True)
              if s.server is not None and s.prompt_tokens is not None]
    text = depth_table(points, native=True)
    assert "block:  nothing that shows, and" in text and "block:  -" not in text
