"""The ways a run ends, and the servers of its own that must end with it.

Whatever ends a run, what was measured stays on disk, stderr has lines and no traceback, and no
server is left behind. Moments are found by watching for a file or a process, with limits far
above what any machine needs; no test asserts how long something took.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT, TIME_LIMIT_S, assert_one_line, environment, run_script
from request_timing.records.journal import Journal
from request_timing.records.run import RecordError, Run, load_run
from request_timing.records.sample import Sample
from request_timing.servers import spawn
from running_script import API, LOCAL, Running, wait_for

SCRIPTS = pytest.mark.parametrize("script", [API, LOCAL])
# So much that a run is far from its end when two samples are there.
LONG = ("--only", "cache", "--context", "8000", "--turns", "20")
SHORT = ("--only", "output", "--outputs", "8", "--repeats", "1")
# As short, on a server whose context is large enough to calibrate an API.
SHORT_API = ("--only", "length", "--lengths", "7000", "--repeats", "1")

# Stands on the PATH as `llama-server`: says that it was called, then does what MODE says.
STAND_IN = """
import http.server, json, os, sys, time
from pathlib import Path

argv = sys.argv[1:]
flags = dict(zip(argv[::2], argv[1::2], strict=True))
host, port = flags["--host"], int(flags["--port"])

def called():
    written = Path({called!r} + ".writing")
    written.write_text(json.dumps({{"flags": flags, "pid": os.getpid()}}))
    written.rename({called!r})

class Loading(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        called()
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b'{{"error": {{"message": "Loading model", "code": 503}}}}')

if {mode!r} == "loading":
    http.server.HTTPServer((host, port), Loading).serve_forever()
if {mode!r} == "serves":
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = flags["-m"]
    params.hostnames, params.port = [host], port
    params.n_ctx, params.n_parallel = int(flags["-c"]), int(flags["-np"])
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads, pool.poll = 2, 0
    server = xllamacpp.Server(params)
called()
time.sleep(3600)
"""


def holding(word: str) -> list[str]:
    """The command lines of the processes that have `word` in theirs; one that ended has none."""
    if Path("/proc/self/cmdline").exists():
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    else:
        command = ["ps", "-A", "-o", "args="]
        lines = subprocess.run(command, capture_output=True, text=True, check=True
                               ).stdout.splitlines()
    return [line for line in lines if word in line]


@pytest.fixture
def model(dense_model: Path, tmp_path: Path) -> Iterator[Path]:
    """The dense model under a path of its own, by which its server is known among processes."""
    path = tmp_path / f"model-of-{tmp_path.name}.gguf"
    path.symlink_to(dense_model)
    yield path
    wait_for(lambda: holding(str(path)) == [], "a server was left behind")


def put_on_path(folder: Path, mode: str) -> tuple[dict[str, str], Path]:
    """An environment with a `llama-server` on its PATH, and the file that says it was called."""
    bin_folder, called = folder / "bin", folder / "called.json"
    bin_folder.mkdir()
    program, command = bin_folder / "stand_in.py", bin_folder / "llama-server"
    program.write_text(STAND_IN.format(called=str(called), mode=mode))
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} '
                       f'{shlex.quote(str(program))} "$@"\n')
    command.chmod(0o755)
    return environment(PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}"), called


# --- Stopped --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("script", "number"), [
    (LOCAL, signal.SIGINT), (LOCAL, signal.SIGTERM), (LOCAL, signal.SIGHUP), (API, signal.SIGINT)])
def test_a_run_that_is_stopped_keeps_what_it_measured(
    script: str, number: signal.Signals, model: Path, tmp_path: Path
) -> None:
    running = Running(script, "--serve", str(model), *LONG, "--quiet", cwd=tmp_path)
    before = running.wait_for_samples()
    running.process.send_signal(number)
    outcome = running.end()
    assert outcome.status == 130
    assert outcome.err == ""
    assert outcome.record is not None and outcome.record["complete"] is False
    kept = [s["prompt_hash"] for s in outcome.samples("cache")]
    assert kept[:len(before)] == before
    assert [s for s in outcome.samples("cache") if s["error"]] == []
    assert "INCOMPLETE" in outcome.out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([model.name, "run.json"])
    assert holding(str(model)) == []  # gone when the script is, not some time later


@pytest.mark.parametrize("mode", ["xllamacpp", "serves"])
def test_a_run_that_is_killed_leaves_a_journal_and_no_server(
    mode: str, model: Path, tmp_path: Path
) -> None:
    env, _ = put_on_path(tmp_path, mode) if mode == "serves" else (None, None)
    running = Running(LOCAL, "--serve", str(model), *LONG, cwd=tmp_path, env=env)
    before = running.wait_for_samples()
    running.process.kill()
    assert running.process.wait() == -signal.SIGKILL
    running.process.communicate()
    wait_for(lambda: holding(str(model)) == [], "the server of a killed run ends by itself")

    assert not running.out.exists()
    saved = load_run(running.journal)
    assert saved.complete is False
    assert [s.prompt_hash for s in saved.samples][:len(before)] == before

    shown = run_script(LOCAL, "--show", str(running.journal), cwd=tmp_path, save=False)
    assert (shown.status, shown.err) == (0, "")
    assert "INCOMPLETE" in shown.out and "cache:" in shown.out

    again = run_script(LOCAL, "--serve", str(model), *SHORT, "--quiet", cwd=tmp_path, env=env)
    assert_one_line(again, 2, "run.json.partial.jsonl exists", "--show", "--out")
    assert load_run(running.journal) == saved


def test_a_journal_cut_at_any_byte_still_loads(tmp_path: Path) -> None:
    run = Run(tool="local_cache", command=["local_cache.py"], created_at="2026-01-02T03:04:05Z",
              environment={}, endpoint={}, settings={})
    journal = Journal(tmp_path / "run.json", run)
    for turn in (1, 2):
        journal.add(Sample(experiment="cache", arm="append", turn=turn, repeat=1, sent_at="",
                           prompt_chars=5, prompt_hash="é☕", asked_output_tokens=2,
                           arrivals_s=(0.25, 0.5), arrival_kinds=("text", "text")))
    whole = journal.path.read_bytes()
    header, one, two = (len(line) for line in whole.splitlines(keepends=True))
    cut = tmp_path / "cut.jsonl"
    for size in range(header, len(whole) + 1):
        cut.write_bytes(whole[:size])
        # A line is whole with or without its line end.
        complete = (size >= header + one - 1) + (size >= header + one + two - 1)
        assert load_run(cut).samples == run.samples[:complete], f"cut after {size} bytes"
    for size in (0, 1, header // 2, header - 2):
        cut.write_bytes(whole[:size])
        with pytest.raises(RecordError):
            load_run(cut)


# --- While a server starts ------------------------------------------------------------------------

@pytest.mark.parametrize(("script", "mode"), [
    (LOCAL, "silent"), (LOCAL, "loading"), (API, "silent")])
def test_stopped_while_its_server_starts(
    script: str, mode: str, model: Path, tmp_path: Path
) -> None:
    env, called = put_on_path(tmp_path, mode)
    running = Running(script, "--serve", str(model), *LONG, "--quiet", cwd=tmp_path, env=env)
    wait_for(called.exists, "the server is started")
    running.process.send_signal(signal.SIGINT)
    outcome = running.end()
    assert_one_line(outcome, 130, "interrupted")
    assert outcome.record is None and not running.journal.exists()
    assert holding(str(model)) == []


def test_stopped_while_xllamacpp_starts(model: Path, tmp_path: Path) -> None:
    running = Running(LOCAL, "--serve", str(model), *LONG, "--quiet", cwd=tmp_path)
    server = f"{spawn.CHILD.name} xllamacpp {model}"
    wait_for(lambda: holding(server) != [], "the server is started")
    running.process.send_signal(signal.SIGINT)
    outcome = running.end()
    assert_one_line(outcome, 130, "interrupted")
    assert outcome.record is None and not running.journal.exists()
    assert holding(str(model)) == []


# --- The server of its own ------------------------------------------------------------------------

@SCRIPTS
def test_the_llama_server_on_the_path_is_preferred_and_stopped(
    script: str, model: Path, tmp_path: Path
) -> None:
    env, called = put_on_path(tmp_path, "serves")
    sizes = SHORT if script == LOCAL else SHORT_API
    outcome = run_script(script, "--serve", str(model), *sizes, cwd=tmp_path, env=env)
    assert outcome.status == 0, outcome.err
    flags = json.loads(called.read_text())["flags"]
    assert flags.keys() == {"-m", "-c", "-np", "--host", "--port", "--slot-save-path"}
    assert (flags["-m"], flags["-np"], flags["--host"]) == (str(model), "1", "127.0.0.1")
    assert outcome.record is not None
    assert f"127.0.0.1:{flags['--port']}" in outcome.record["endpoint"]["url"]
    if script == LOCAL:
        assert outcome.record["endpoint"]["context_tokens"] == int(flags["-c"])
        assert outcome.record["endpoint"]["slots"] == 1
    assert holding(str(model)) == []


@SCRIPTS
def test_without_one_xllamacpp_serves_and_is_stopped(
    script: str, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    env = environment(PATH=str(tmp_path / "empty"))
    sizes = SHORT if script == LOCAL else SHORT_API
    outcome = run_script(script, "--serve", str(model), *sizes, cwd=tmp_path, env=env)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    assert [s["error"] for s in outcome.record["samples"]] == [None]
    assert holding(str(model)) == []


def test_a_server_of_its_own_has_room_for_the_calibration(model: Path, tmp_path: Path) -> None:
    outcome = run_script(API, "--serve", str(model), *SHORT, "--quiet", cwd=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")


# --- The server of others, and the reader ---------------------------------------------------------

@pytest.mark.parametrize(("script", "sizes"), [
    (LOCAL, ("--only", "length", "--lengths", "3000,4000,5000,6000,7000,8000,9000")),
    (LOCAL, ("--only", "cache", "--context", "8000", "--turns", "20")),
    (API, ("--only", "length", "--lengths", "3000,4000,5000,6000,7000,8000,9000")),
])
def test_a_server_that_dies_in_mid_run(
    script: str, sizes: tuple[str, ...], model: Path, tmp_path: Path
) -> None:
    with spawn.serve(str(model), 32_768) as url:
        where = ("--url", url) if script == LOCAL else ("--base-url", f"{url}/v1")
        running = Running(script, *where, *sizes, "--repeats", "1", "--quiet",
                          "--max-wait", "0", cwd=tmp_path)
        before = running.wait_for_samples()
    outcome = running.end()
    assert outcome.status == 1
    assert outcome.record is not None
    samples = outcome.record["samples"]
    assert [s["prompt_hash"] for s in samples][:len(before)] == before
    assert [s for s in samples[:len(before)] if s["error"]] == []
    failed = [s for s in samples if s["error"]]
    ended = outcome.record["notes"]
    assert failed or ended
    # A line for each request that failed, for each experiment that ended, and for not waiting.
    said = [line for line in outcome.err.splitlines() if not line.startswith("not waiting")]
    assert len(said) == len(failed) + len(ended)
    assert all("ended early" in note for note in ended)
    assert not running.journal.exists()


def test_an_arm_that_only_worked_with_nothing_to_reuse_was_not_measured(
    model: Path, tmp_path: Path
) -> None:
    # With its frame and answer, turn 1 of either arm fits 8,192 tokens; no turn 2 does.
    (tmp_path / "notes.txt").write_text("x" * 8018)
    with spawn.serve(str(model), 8192) as url:
        outcome = run_script(API, "--base-url", f"{url}/v1", "--only", "cache", "--turns", "2",
                             "--doc", "notes.txt", "--quiet", cwd=tmp_path)
    for arm in ("append", "prepend"):
        assert [(s["turn"], s["error"] is None) for s in outcome.samples("cache", arm)] == [
            (1, True), (2, False)]
    assert outcome.record is not None
    rows = {row["arm"]: row["n"] for row in outcome.record["summaries"]}
    assert (rows["append"], rows["prepend"]) == (0, 0)  # of the turns from the second on
    assert outcome.status == 1


@pytest.mark.parametrize("how", ["| head -1", "| true", "2>&1 | true", ">&-", "2>&-"])
def test_a_reader_that_leaves_early_costs_no_sample(
    how: str, dense_server: str, tmp_path: Path
) -> None:
    # `true` is gone before the first word, and ">&-" closes the stream before Python starts.
    command = [sys.executable, str(ROOT / LOCAL), "--url", dense_server, "--lengths", "50,60,70",
               "--only", "length", "--repeats", "2", "--out", "run.json"]
    shell = f"({shlex.join(command)}; echo $? > status) {how}"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=environment(), check=False,
                          capture_output=True, text=True, timeout=TIME_LIMIT_S)
    said = done.stdout + done.stderr
    assert "Traceback" not in said and "Exception ignored" not in said and "defect" not in said
    record = load_run(tmp_path / "run.json")
    assert record.complete
    assert len(record.samples) == 6
    assert (tmp_path / "status").read_text() == "0\n"
