"""How right the clock is: both scripts, as commands, against the server of known truth.

A part of `make accuracy`; prints, for each figure, the truth, what was measured, the error and the
bar that it is held to, and exits with 1 where a bar is not held. `rows()` gives the same as data.
The server and the scripts read one clock (CLOCK_MONOTONIC), so a script's TTFT is compared, request
by request, with the time from the server's last byte in to its first token out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accuracy.rows import Row, show
from truth_server import Truth, truth

ROOT = Path(__file__).resolve().parent.parent
LOCAL, API = "local_cache.py", "api_timing.py"
SCRIPTS = (API, LOCAL)

# 200 requests; an odd number of lengths, so that the median lies within one of them.
TTFT_LENGTHS, TTFT_REPEATS = "250,1000,2000,3000,4000", "40"
TTFT_BARS_MS = {API: (1.0, 5.0), LOCAL: (0.6, 3.0)}  # median, 99th percentile
# Seconds a token, its bar, and the output experiment that measures it.
PACES = ((0.010, 0.01, "100,200", "2"), (0.001, 0.02, "500,1000", "3"))
OWN_COST_SHARE, OWN_COST_S = 0.02, 1.0
LONG_PROMPT_TOKENS, MEMORY_BAR_MB = 300_000, 300.0
FIGURE_BAR = 0.01
PREFILL_S_PER_TOKEN, DECODE_S_PER_TOKEN = 20e-6, 0.002
IDLE_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command left: its record, its tables, the server's log, and what it cost."""

    samples: list[dict[str, Any]]
    log: list[dict[str, Any]]  # of the samples' requests, in their order
    out: str
    wall_s: float
    peak_mb: float


def ran(script: str, server: Truth, *flags: str) -> Ran:
    """Run a script against the server; its samples are matched with the server's log in order.

    Requests before the first sample (warm-up, calibration) are left out. Raises RuntimeError
    where the command fails, or a sample and its log entry are not of one request.
    """
    where = ("--url", server.url) if script == LOCAL else ("--base-url", f"{server.url}/v1")
    server.log(clear=True)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as out:
        record = Path(folder, "run.json")
        command = [sys.executable, str(ROOT / script), *where, *flags, "--quiet",
                   "--out", str(record)]
        started = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read()
        if child.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {said}")
        samples = json.loads(record.read_text())["samples"]
    log = server.log(clear=True)[-len(samples):]
    for sample, entry in zip(samples, log, strict=True):
        if (sample["prompt_tokens"], sample["output_tokens"]) != (
                entry["prompt_tokens"], entry["output_tokens"]) or sample["error"]:
            raise RuntimeError(f"expected the sample of request {entry}, found {sample}")
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10  # ru_maxrss: bytes there, else KiB
    return Ran(samples=samples, log=log, out=said, wall_s=wall_s, peak_mb=usage.ru_maxrss / unit)


def row(figure: str, true: float, measured: float, error: float, bar: float) -> Row:
    """A row that is held where error <= bar. The unit of both is in the figure's name, but where
    that says that the error is a share of the truth."""
    return Row(figure=figure, truth=true, measured=measured, error=error, bar=f"<= {bar:,.4g}",
               held=error <= bar)


def share_row(figure: str, true: float, measured: float, bar: float) -> Row:
    """A row whose error is a share of the truth."""
    return row(f"{figure} (error: share)", true, measured, abs(measured / true - 1), bar)


def ttft_rows(script: str) -> Iterator[Row]:
    """TTFT against (first token sent - last byte received), over 200 cold requests."""
    with truth(fixed_s=0.01, prefill_s_per_token=3e-6, decode_s_per_token=0.001) as server:
        done = ran(script, server, "--only", "length", "--lengths", TTFT_LENGTHS,
                   "--repeats", TTFT_REPEATS)
    true = [1000 * (entry["sent_at_s"][0] - entry["received_at_s"]) for entry in done.log]
    measured = [1000 * sample["ttft_s"] for sample in done.samples]
    errors = [abs(m - t) for m, t in zip(measured, true, strict=True)]
    median_bar, p99_bar = TTFT_BARS_MS[script]
    yield row(f"{script}: TTFT, median of {len(errors)}, ms", statistics.median(true),
              statistics.median(measured), statistics.median(errors), median_bar)
    yield row(f"{script}: TTFT, 99th percentile, ms", p99(true), p99(measured), p99(errors),
              p99_bar)


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def pace_rows(script: str) -> Iterator[Row]:
    """Inter-token latency of the worst request, pieces lost, and the server's own pace."""
    for step_s, bar, outputs, repeats in PACES:
        name = f"{1000 * step_s:.0f} ms a token"
        with truth(fixed_s=0.01, decode_s_per_token=step_s) as server:
            done = ran(script, server, "--only", "output", "--outputs", outputs,
                       "--repeats", repeats)
        true = [(entry["sent_at_s"][-1] - entry["sent_at_s"][0]) / (entry["output_tokens"] - 1)
                for entry in done.log]
        measured = [sample["inter_token_s"] for sample in done.samples]
        yield row(f"{script}: inter-token at {name}, ms (error: share, worst request)",
                  1000 * statistics.median(true), 1000 * statistics.median(measured),
                  max(abs(m / t - 1) for m, t in zip(measured, true, strict=True)), bar)
        yield share_row(f"  the server's own pace at {name}, ms", 1000 * step_s,
                        1000 * statistics.median(true), bar)
        sent = sum(entry["output_tokens"] for entry in done.log)
        came = sum(len(sample["arrivals_s"]) for sample in done.samples)
        yield row(f"{script}: pieces at {name}", sent, came, abs(sent - came), 0)


def whole_run_rows(script: str) -> Iterator[Row]:
    """All three experiments at their default sizes: own cost, and a llama-server's figures."""
    with truth(prefill_s_per_token=PREFILL_S_PER_TOKEN, decode_s_per_token=DECODE_S_PER_TOKEN,
               cache="prefix") as server:
        done = ran(script, server)
    requests_s = sum(sample["total_s"] for sample in done.samples)
    yield row(f"{script}: wall time of a whole run against its requests' sum, s", requests_s,
              done.wall_s, done.wall_s - requests_s, OWN_COST_SHARE * requests_s + OWN_COST_S)
    if script == LOCAL:
        yield from table_rows(done)


def table_rows(done: Ran) -> Iterator[Row]:
    """The lines and columns of local_cache.py's tables against what the server was set to do, or,
    where that depends on how punctually it could do it, against what it did."""
    def did(arm: str, figure: str, *, turn: int = 1) -> float:
        return statistics.median(
            float(entry["decode_s"] / (entry["output_tokens"] - 1) if figure == "step_s"
                  else entry[figure])
            for sample, entry in zip(done.samples, done.log, strict=True)
            if (sample["arm"], sample["turn"]) == (arm, turn))

    number = r"([\d.,]+)"
    for name, pattern, true in (
        ("prefill, ms per 1,000 input tokens",
         rf"prefill grows by {number} ms per 1,000 input", 1e6 * PREFILL_S_PER_TOKEN),
        ("total time, ms per output token",
         rf"total time grows by {number} ms per output token", 1e3 * DECODE_S_PER_TOKEN),
        ("17,000 tokens: prefill, ms",
         rf"(?m)^ *17,000 +[\d,]+ +0 +{number} ", 1e3 * did("17000", "prefill_s")),
        ("17,000 tokens: prefill, tokens/s",
         rf"(?m)^ *17,000 +[\d,]+ +0 +\S+ +\S+ +{number} ",
         did("17000", "prompt_tokens") / did("17000", "prefill_s")),
        ("400 tokens: decode, ms/token",
         rf"(?m)^ *400 +400 +\S+ +{number} ", 1e3 * did("400", "step_s")),
        ("append turn 6: decode, ms/token",
         rf"(?m)^ *append +6 .* {number} *$", 1e3 * did("append", "step_s", turn=6)),
    ):
        found = re.search(pattern, done.out)
        if found is None:
            raise RuntimeError(f"expected {pattern!r} in the tables, found: {done.out}")
        yield share_row(f"{LOCAL}: table, {name}", true, float(found[1].replace(",", "")),
                        FIGURE_BAR)
    for arm in ("append", "prepend"):
        of_arm = [(s, e) for s, e in zip(done.samples, done.log, strict=True) if s["arm"] == arm]
        computed = sum(e["prompt_tokens"] - e["cached_tokens"] for _, e in of_arm)
        found = re.search(rf"(?ms)all turns .*?^ *{arm} +{len(of_arm)} +{number} ", done.out)
        if found is None:
            raise RuntimeError(f"expected a total of {arm} in the tables, found: {done.out}")
        told = int(found[1].replace(",", ""))
        yield row(f"{LOCAL}: table, {arm}, recomputed tokens of all turns", computed, told,
                  abs(computed - told), 0)


def memory_rows(script: str) -> Iterator[Row]:
    """The peak of a command that sends one very long prompt."""
    with truth() as server:
        done = ran(script, server, "--only", "length", "--lengths", str(LONG_PROMPT_TOKENS),
                   "--repeats", "1")
    sent = done.log[0]["prompt_tokens"]
    yield share_row(f"{script}: tokens of the long prompt", LONG_PROMPT_TOKENS, sent, FIGURE_BAR)
    yield row(f"{script}: peak memory with a long prompt, MB", 0, done.peak_mb, done.peak_mb,
              MEMORY_BAR_MB)


def rows() -> list[Row]:
    """Every figure of both scripts."""
    return [row for part in (ttft_rows, pace_rows, whole_run_rows, memory_rows)
            for script in SCRIPTS for row in part(script)]


def busy_share(seconds: float = 1.0) -> float | None:
    """The share of all processors' time that others use; None where Linux's /proc is missing."""
    def ticks() -> tuple[int, int]:
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)  # less idle and iowait

    with contextlib.suppress(OSError):
        before = ticks()
        time.sleep(seconds)
        after = ticks()
        return (after[0] - before[0]) / max(1, after[1] - before[1])
    return None


def idle_line(when: str) -> str:
    """Whether the machine has nothing else to do, in words."""
    busy = busy_share()
    if busy is None:
        return f"{when}: unknown whether the machine was idle"
    return f"{when}: machine {'idle' if busy <= IDLE_SHARE else 'NOT idle'}, {busy:.0%} busy"


def main() -> int:
    """Measure, print, and return 1 where a bar is not held."""
    print(idle_line("before"), flush=True)
    status = show(rows())
    print(idle_line("after"))
    return status


if __name__ == "__main__":
    sys.exit(main())
