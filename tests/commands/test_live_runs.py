"""The live line in whole runs: it moves no arrival, and no terminal keeps a run from its record."""

from __future__ import annotations

import json
import math
import os
import pty
import statistics
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, environment
from request_timing.records.run import Run, load_run
from truth_server import Truth, truth

SIGMA = 0.1  # of the truth server's times, and what a live line may not add
LOCAL, API = "local_cache.py", "api_timing.py"
CACHE = ("--only", "cache", "--context", "600", "--turns", "3", "--out", "run.json")
REQUESTS = {LOCAL: 2 + 2 + 3 + 3, API: 5 * 3}


def command(script: str, server: Truth, *flags: str) -> list[str]:
    where = ("--url", server.url) if script == LOCAL else ("--base-url", f"{server.url}/v1")
    return [sys.executable, str(ROOT / script), *where, *CACHE, *flags]


class Terminal:
    """A command whose stderr is a terminal and whose stdout is a file."""

    def __init__(self, words: list[str], cwd: Path) -> None:
        self.master, self._slave = pty.openpty()
        termios.tcsetwinsize(self._slave, (24, 100))
        self.seen = ""
        with (cwd / "stdout.txt").open("wb") as out:
            self.running = subprocess.Popen(words, cwd=cwd, env=environment(), stdout=out,
                                            stdin=subprocess.DEVNULL, stderr=self._slave)

    def read(self, wanted: str) -> None:
        """Read until the terminal was sent this."""
        while wanted not in self.seen:
            self.seen += os.read(self.master, 4096).decode()

    def stop_output(self, stopped: bool) -> None:
        """Ctrl-S, or Ctrl-Q."""
        termios.tcflow(self._slave, termios.TCOOFF if stopped else termios.TCOON)

    def close(self) -> None:
        """The window is closed."""
        os.close(self.master)
        os.close(self._slave)

    def read_to_the_end(self) -> int:
        """Everything until the command ends; its exit status."""
        os.close(self._slave)
        try:
            while data := os.read(self.master, 4096):
                self.seen += data.decode()
        except OSError:  # its last writer is gone
            pass
        os.close(self.master)
        return self.running.wait()


def paced(**more: Any) -> dict[str, Any]:
    """A server of known pace: 60 ms, and 5 ms a token."""
    return {"fixed_s": 0.06, "decode_s_per_token": 0.005, "cache": "prefix", **more}


def excess(run: Run, log: list[dict[str, Any]]) -> tuple[float, float]:
    """TTFT and total time over what the server really took, medians of the requests of a run."""
    took = [(e["prefill_s"], e["prefill_s"] + e["decode_s"]) for e in log][-len(run.samples):]
    seen = [(s.ttft_s or math.nan, s.total_s or math.nan) for s in run.samples]
    first, whole = (statistics.median(mine[n] / truly[n] for mine, truly
                                      in zip(seen, took, strict=True)) for n in (0, 1))
    return first, whole


@pytest.mark.parametrize("script", [LOCAL, API])
def test_a_live_line_moves_no_arrival(tmp_path: Path, script: str) -> None:
    found = []
    with truth(**paced(noise_sigma=SIGMA)) as server:
        for name in ("pipe", "terminal"):
            (cwd := tmp_path / name).mkdir()
            server.log(clear=True)
            if name == "pipe":
                done = subprocess.run(command(script, server), cwd=cwd, env=environment(),
                                      capture_output=True, text=True, check=False)
                assert (done.returncode, "\r" in done.stderr) == (0, False), done.stderr
            else:
                terminal = Terminal(command(script, server), cwd)
                assert terminal.read_to_the_end() == 0, terminal.seen
                assert terminal.seen.count("\rcache ") >= 3  # it was drawn
                assert " of 3 | " in terminal.seen
            run = load_run(cwd / "run.json")
            assert len(run.samples) == REQUESTS[script]
            found.append(excess(run, server.log()))
    for piped, drawn in zip(*found, strict=True):
        assert abs(math.log(drawn / piped)) < SIGMA


def test_a_run_on_a_terminal_that_was_stopped_is_saved_whole(tmp_path: Path) -> None:
    with truth(**paced()) as server:
        terminal = Terminal(command(LOCAL, server), tmp_path)
        terminal.read("\rcache ")
        terminal.stop_output(True)
        while not (tmp_path / "run.json").exists():
            assert terminal.running.poll() is None
        terminal.stop_output(False)
        assert terminal.read_to_the_end() == 0, terminal.seen
    assert load_run(tmp_path / "run.json").complete
    assert "append: HIT" in (tmp_path / "stdout.txt").read_text()
    assert "Traceback" not in terminal.seen and "raw data: run.json" in terminal.seen


def test_a_run_whose_terminal_was_closed_is_saved_whole(tmp_path: Path) -> None:
    with truth(**paced()) as server:
        terminal = Terminal(command(LOCAL, server), tmp_path)
        terminal.read("\rcache ")
        terminal.close()
        assert terminal.running.wait() == 0
    assert load_run(tmp_path / "run.json").complete
    assert "append: HIT" in (tmp_path / "stdout.txt").read_text()


def test_quiet_draws_nothing_on_a_terminal(tmp_path: Path) -> None:
    with truth(cache="prefix") as server:
        terminal = Terminal(command(LOCAL, server, "--quiet"), tmp_path)
        assert terminal.read_to_the_end() == 0
    assert terminal.seen == ""
    assert json.loads((tmp_path / "run.json").read_text())["complete"]
