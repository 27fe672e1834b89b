"""kill -9 at 50 moments of a run: what was measured is on disk, but for the request in flight.

The server of known truth counts what it has answered. The moments are drawn from a fixed seed: some
while the script starts, the others a little after a number of samples are on disk.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from request_timing.experiments.basic import CACHE_OUTPUT_TOKENS
from request_timing.records.run import load_run
from running_script import API, LOCAL, Running
from truth_server import Truth, truth

# Ten requests of a llama-server, fifteen of an API.
FLAGS = ("--only", "cache", "--context", "300", "--turns", "3", "--quiet")
KILLS = {LOCAL: 44, API: 6}
REQUESTS = {LOCAL: 10, API: 15}
STARTING_SHARE = 0.15
POLL_S = 0.005


@pytest.fixture(scope="module")
def server() -> Iterator[Truth]:
    with truth(fixed_s=0.01, cache="prefix") as started:
        yield started


def wait_for_a_moment(running: Running, rng: random.Random, requests: int) -> None:
    """Return at a random moment of the run, or when it has ended."""
    if rng.random() < STARTING_SHARE:
        time.sleep(rng.uniform(0.0, 0.5))
        return
    samples = rng.randint(0, requests)
    while running.process.poll() is None and not running.out.exists() and (
            not running.journal.exists() or len(running.journalled()) < samples):
        time.sleep(POLL_S)
    time.sleep(rng.uniform(0.0, 0.03))


def kept(running: Running) -> list[int | None] | None:
    """The prompt tokens of the samples on disk; None where there is no file yet."""
    if running.out.exists():
        run = load_run(running.out)
        assert run.complete
    elif running.journal.exists():  # never without its header
        run = load_run(running.journal)
        assert not run.complete
    else:
        return None
    assert [sample.error for sample in run.samples] == [None] * len(run.samples)
    return [sample.prompt_tokens for sample in run.samples]


@pytest.mark.parametrize("script", [LOCAL, API])
def test_a_kill_loses_the_request_in_flight_and_no_other(
    script: str, server: Truth, tmp_path: Path
) -> None:
    url = ("--url", server.url) if script == LOCAL else ("--base-url", f"{server.url}/v1")
    cut_short = 0
    for number in range(KILLS[script]):
        folder = tmp_path / str(number)
        folder.mkdir()
        server.log(clear=True)
        running = Running(script, *url, *FLAGS, cwd=folder)
        wait_for_a_moment(running, random.Random(f"kill/{script}/{number}"), REQUESTS[script])
        running.process.kill()
        said = running.process.communicate()
        assert running.process.returncode in (-signal.SIGKILL, 0), said
        found = kept(running)
        # Warming up and calibrating ask for other numbers of tokens, and are no samples.
        answered = [entry["prompt_tokens"] for entry in server.log()
                    if entry["complete"] and entry["output_tokens"] == CACHE_OUTPUT_TOKENS]
        if found is None:
            assert answered == []
            continue
        assert len(answered) - 1 <= len(found) <= len(answered)
        assert found == answered[:len(found)]
        cut_short += 0 < len(found) < REQUESTS[script]
    assert cut_short  # some moment was of a run under way
