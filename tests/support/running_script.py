"""Shared by tests: API, LOCAL, PATIENCE_S, POLL_S, Running, wait_for."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, TIME_LIMIT_S, Outcome, environment

API, LOCAL = "api_timing.py", "local_cache.py"
PATIENCE_S = 60.0
POLL_S = 0.01


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds; fail when it has not for a very long time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(POLL_S)


class Running:
    """A script under way, writing run.json into `cwd`."""

    def __init__(self, script: str, *flags: str, cwd: Path, env: dict[str, str] | None = None):
        self.out = cwd / "run.json"
        self.journal = cwd / "run.json.partial.jsonl"
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / script), *flags, "--out", str(self.out)], cwd=cwd,
            env=env or environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def journalled(self) -> list[str]:
        """The prompts of the samples that are on disk, in order."""
        with contextlib.suppress(OSError):
            whole = self.journal.read_text().split("\n")[1:-1]
            return [json.loads(line)["prompt_hash"] for line in whole]
        return []

    def wait_for_samples(self, n: int = 2) -> list[str]:
        """What is on disk as soon as `n` samples are."""
        wait_for(lambda: len(self.journalled()) >= n or self.process.poll() is not None, "samples")
        assert self.process.poll() is None, self.process.communicate()
        return self.journalled()

    def end(self) -> Outcome:
        """What the command left, once it has ended."""
        out, err = self.process.communicate(timeout=TIME_LIMIT_S)
        record = json.loads(self.out.read_text()) if self.out.exists() else None
        assert "Traceback" not in err and "defect" not in err
        return Outcome(self.process.returncode, out, err, record)
