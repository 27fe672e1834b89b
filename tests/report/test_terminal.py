"""What a person's terminal does to the scripts: narrow, without colour, without characters."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest

from conftest import ROOT, environment
from request_timing.records.run import load_run

LOCAL, API = "local_cache.py", "api_timing.py"
SMALL = ("--lengths", "300,600", "--outputs", "8,16", "--context", "600", "--turns", "3",
         "--repeats", "1", "--out", "run.json")
ESCAPE = b"\x1b"


def in_terminal(columns: int, cwd: Path, script: str, *flags: str, **env: str) -> tuple[int, bytes]:
    """Exit status and everything that a terminal of so many columns was sent."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    running = subprocess.Popen(
        [sys.executable, str(ROOT / script), *flags], cwd=cwd, env=environment(**env),
        stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    while running.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.05)[0]:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # the terminal is gone with the last process
                break
            if not data:
                break
            seen += data
    os.close(master)
    return running.wait(), seen


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_of_so_many_columns(dense_server: str, tmp_path: Path, columns: int) -> None:
    status, seen = in_terminal(columns, tmp_path, LOCAL, "--url", dense_server, *SMALL,
                               NO_COLOR="1", TERM="xterm")
    assert status == 0, seen
    assert ESCAPE not in seen
    text = seen.decode().replace("\r\n", "\n")
    verdict = text[text.index("\nverdict\n"):text.index("raw data")]
    assert max(len(part) for line in verdict.split("\n") for part in line.split("\r")) <= columns
    # The live line is drawn over itself and never wraps.
    live = [part for line in text.split("\n") for part in line.split("\r")[:-1] if part.strip()]
    assert live and all(len(part) < columns for part in live)
    assert "append: HIT" in text and "prepend: NO HIT" in text
    assert load_run(tmp_path / "run.json").complete


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
@pytest.mark.parametrize("script", [LOCAL, API])
def test_a_console_that_cannot_print_a_character(
    dense_server: str, tmp_path: Path, script: str, encoding: str
) -> None:
    where = ("--url", dense_server) if script == LOCAL else ("--base-url", f"{dense_server}/v1")
    (tmp_path / "本.txt").write_text("古池や蛙飛び込む水の音。" * 40, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *where, "--only", "cache", "--turns", "2", "--doc",
         "本.txt", "--out", "結果.json"], cwd=tmp_path, capture_output=True, check=False,
        env=environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0"))
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert load_run(tmp_path / "結果.json").complete


def test_a_dumb_terminal_and_none(dense_server: str, tmp_path: Path) -> None:
    flags = ("--url", dense_server, "--only", "output", "--outputs", "8", "--repeats", "1")
    status, seen = in_terminal(80, tmp_path, LOCAL, *flags, "--out", "a.json", TERM="dumb")
    assert status == 0 and ESCAPE not in seen
    piped = subprocess.run([sys.executable, str(ROOT / LOCAL), *flags, "--out", "b.json"],
                           cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert piped.returncode == 0
    assert b"\r" not in piped.stderr  # no live line where nobody looks


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_behind_stdout_loses_nothing_that_was_measured(
    dense_server: str, tmp_path: Path
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(ROOT / LOCAL), "--url", dense_server, *SMALL], cwd=tmp_path,
            env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "warning: stdout cannot be written" in done.stderr
    assert "raw data: run.json" in done.stderr and "Traceback" not in done.stderr
    assert load_run(tmp_path / "run.json").complete
