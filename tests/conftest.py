"""What the tests share: the commands as a user runs them, and real servers of tiny models.

Every server is a child that ends with the context that started it. Nothing here, nor in any
test, asserts a wall-clock time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tiny_models
from request_timing.servers import spawn
from request_timing.servers.patience import Patience
from request_timing.servers.urls import Address, address

ROOT = Path(__file__).resolve().parent.parent
TIME_LIMIT_S = 240
SAVED_FILE_COMMANDS = ("plot", "report", "compare", "show", "explain")
# Variables that a developer's shell may hold and that would change what the scripts do.
NOT_INHERITED = ("AI_BUILDER_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "PYTHONPATH", "COLUMNS",
                 "LINES", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy",
                 "all_proxy")


def at(url: str) -> Address:
    """The address of a server that a test started."""
    return address("--base-url", url, example="http://host/v1")


def no_patience() -> Patience:
    """For a run that waits for nothing."""
    return Patience(0.0, print)


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit status, its two streams, and the record if it wrote one."""

    status: int
    out: str
    err: str
    record: dict[str, Any] | None

    def samples(self, experiment: str, arm: str | None = None) -> list[dict[str, Any]]:
        """The record's samples of one experiment, and of one arm."""
        assert self.record is not None, self.err
        return [s for s in self.record["samples"]
                if s["experiment"] == experiment and arm in (None, s["arm"])]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a command: this one's, less what would change its behaviour."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    return kept | extra


def run_script(
    script: str, *flags: str, cwd: Path, env: dict[str, str] | None = None, save: bool = True
) -> Outcome:
    """Run a script of the project as a command in `cwd`; with `save`, give it --out there."""
    out = cwd / "run.json"
    program = [str(ROOT / script)]
    if script in SAVED_FILE_COMMANDS:
        program = ["-m", "request_timing", script]
        env = dict(env or environment())
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    command = [sys.executable, *program, *flags]
    if save:
        command += ["--out", str(out)]
    done = subprocess.run(command, cwd=cwd, env=env or environment(), capture_output=True,
                          text=True, timeout=TIME_LIMIT_S, stdin=subprocess.DEVNULL, check=False)
    record = json.loads(out.read_text()) if out.exists() else None
    return Outcome(done.returncode, done.stdout, done.stderr, record)


def assert_one_line(outcome: Outcome, status: int, *parts: str) -> None:
    """The command ended with `status` and one line on stderr that holds every part."""
    assert outcome.status == status, outcome
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    for part in parts:
        assert part in lines[0], outcome.err


@pytest.fixture(scope="session", autouse=True)
def one_core() -> None:
    """A core for each process of the tests, and servers of one thread on it.

    Two threads that wait for each other stall where a core is busy.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0), reverse=True)
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})


@pytest.fixture(scope="session")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with ordinary attention: a token is a byte."""
    path = tmp_path_factory.mktemp("models") / "tiny-dense.gguf"
    tiny_models.write_dense(path)
    return path


@pytest.fixture(scope="session")
def sliding_window_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with sliding-window attention: a token is a byte."""
    path = tmp_path_factory.mktemp("models") / "tiny-sliding-window.gguf"
    tiny_models.write_sliding_window(path)
    return path


@pytest.fixture(scope="session")
def dense_server(dense_model: Path) -> Iterator[str]:
    """The URL of a real llama-server of the dense model, 32,768 tokens of context."""
    with spawn.serve(str(dense_model), 32_768) as url:
        yield url


@pytest.fixture(scope="session")
def sliding_window_server(sliding_window_model: Path) -> Iterator[str]:
    """The URL of a real llama-server of the sliding-window model, 32,768 tokens of context."""
    with spawn.serve(str(sliding_window_model), 32_768) as url:
        yield url
