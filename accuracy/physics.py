"""What fit, depth and workload find, held to what the server was set to; part of `make accuracy`.

The server of known truth reports no cached tokens here: all that api_timing sees is when pieces
came. Every constant has to come back within 5 %, from timing alone; and where a term is not there,
none may be found.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accuracy.rows import Row, show
from conftest import ROOT, environment
from truth_server import truth

BAR = 0.05
FIXED_S, LINEAR_S, SQUARED_S = 0.05, 40e-6, 10e-9
STEP_S, CONTEXT_S = 0.003, 0.5e-6
SIZES = ("--lengths", "250,1000,2000,4000", "--context", "4000", "--repeats", "3")
SHAPE = 4000, 200


def measured(*flags: str, **config: Any) -> dict[str, Any]:
    """The record of a run of api_timing against a server of this truth."""
    known: dict[str, Any] = {"cache": "prefix", "minimum_tokens": 16, "report_cached": False}
    with (truth(**known | config) as server,
          tempfile.TemporaryDirectory() as folder):
        out = Path(folder, "run.json")
        subprocess.run(
            [sys.executable, str(ROOT / "api_timing.py"), "--base-url", f"{server.url}/v1", *flags,
             *SIZES, "--quiet", "--out", str(out)],
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment())
        record: dict[str, Any] = json.loads(out.read_text())
        return record


def finding_of(record: dict[str, Any], experiment: str, arm: str) -> dict[str, Any]:
    """One finding of a record."""
    (found,) = (f for f in record["findings"] if (f["experiment"], f["arm"]) == (experiment, arm))
    return dict(found)


def row(figure: str, true: float, found: float | None) -> Row:
    """A figure within 5 % of the truth."""
    return Row(figure=figure, truth=true, measured=found, bar=f"within {BAR:.0%}",
               held=found is not None and abs(found / true - 1) <= BAR)


def code_row(figure: str, expected: str, found: str) -> Row:
    """A code, held to the letter."""
    return Row(figure=f"{figure}: {found}", truth=None, measured=None, bar=expected,
               held=found == expected)


def quadratic_rows() -> Iterator[Row]:
    """All terms are there."""
    record = measured(
        "--only", "depth,workload,fit", "--shape", f"{SHAPE[0]}x{SHAPE[1]}", fixed_s=FIXED_S,
        prefill_s_per_token=LINEAR_S, prefill_s_per_token_squared=SQUARED_S,
        decode_s_per_token=STEP_S, decode_s_per_context_token=CONTEXT_S)
    fit, depth = finding_of(record, "fit", "prefill"), finding_of(record, "depth", "decode")
    yield code_row("fit", "quadratic", fit["code"])
    for name, true in (("fixed_s", FIXED_S), ("s_per_token", LINEAR_S),
                       ("s_per_token_squared", SQUARED_S)):
        yield row(f"fit: {name}", true, fit["evidence"][name])
    yield code_row("depth", "slower", depth["code"])
    yield row("depth: s a step", STEP_S, depth["evidence"]["s_per_step"])
    yield row("depth: s a step and token of context", CONTEXT_S,
              depth["evidence"]["s_per_step_per_token"])
    yield row("depth: quadratic term, from the blocks", SQUARED_S,
              depth["evidence"]["s_per_token_squared"])
    yield code_row("workload", "as_predicted", finding_of(record, "workload", "prediction")["code"])
    for corner in finding_of(record, "workload", "prediction")["evidence"]["corners"]:
        shape = corner["prompt"], corner["output"]
        name = f"workload {shape[0]} x {shape[1]}"
        cold, hit = seconds(*shape, cached=0), seconds(*shape, cached=shape[0] - 1)
        yield row(f"{name}: cold, predicted", cold, corner["cold_predicted_s"])
        yield row(f"{name}: cold, measured", cold, corner["cold_s"])
        yield row(f"{name}: hit, predicted", hit, corner["hit_predicted_s"])
        yield row(f"{name}: share saved, predicted", 1 - hit / cold, corner["saved_predicted"])
    asked = finding_of(record, "workload", f"{SHAPE[0]}x{SHAPE[1]}")["evidence"]
    cold, hit = seconds(*SHAPE, cached=0), seconds(*SHAPE, cached=SHAPE[0] - 1)
    yield row("--shape: cold", cold, asked["cold_s"])
    yield row("--shape: saved", cold - hit, asked["saved_s"])


def seconds(prompt: int, output: int, *, cached: int) -> float:
    """The time of a request by the constants, step by step."""
    prefill = FIXED_S + LINEAR_S * (prompt - cached) + SQUARED_S * (prompt**2 - cached**2)
    return prefill + sum(STEP_S + CONTEXT_S * (prompt + k) for k in range(1, output))


def linear_rows() -> Iterator[Row]:
    """No quadratic term and no slope: none may be found, and noise may not make one."""
    record = measured("--only", "depth,fit", fixed_s=FIXED_S, prefill_s_per_token=4 * LINEAR_S,
                      decode_s_per_token=STEP_S)
    fit, depth = finding_of(record, "fit", "prefill"), finding_of(record, "depth", "decode")
    yield code_row("fit, a line", "linear", fit["code"])
    yield row("fit, a line: fixed_s", FIXED_S, fit["evidence"]["fixed_s"])
    yield row("fit, a line: s_per_token", 4 * LINEAR_S, fit["evidence"]["s_per_token"])
    yield code_row("depth, no slope", "steady", depth["code"])
    yield row("depth, no slope: s a step", STEP_S, depth["evidence"]["s_per_step"])


def no_cache_rows() -> Iterator[Row]:
    """A server that reuses nothing: that is said, and decode stands all the same."""
    record = measured("--only", "depth,workload", fixed_s=FIXED_S, cache="off",
                      prefill_s_per_token=LINEAR_S, decode_s_per_token=STEP_S,
                      decode_s_per_context_token=CONTEXT_S)
    depth = finding_of(record, "depth", "decode")
    yield row("no cache: s a step and token of context", CONTEXT_S,
              depth["evidence"]["s_per_step_per_token"])
    yield code_row("no cache, workload", "no_hit",
                   finding_of(record, "workload", "prediction")["code"])


if __name__ == "__main__":
    sys.exit(show([*quadratic_rows(), *linear_rows(), *no_cache_rows()]))
