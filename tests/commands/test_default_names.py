"""Runs that begin in the same second in the same folder all keep their results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, environment
from request_timing.errors import UserError
from request_timing.recorder.record import Recording
from request_timing.records.run import load_run
from truth_server import truth


@pytest.mark.parametrize("script", ["local_cache.py", "api_timing.py"])
def test_runs_at_the_same_time_each_have_a_file_of_their_own(script: str, tmp_path: Path) -> None:
    with truth(fixed_s=0.01, cache="prefix") as server:
        where = ("--url", server.url) if script == "local_cache.py" else (
            "--base-url", f"{server.url}/v1")
        command = [sys.executable, str(ROOT / script), *where, "--only", "length", "--lengths",
                   "50", "--repeats", "1", "--csv", "--quiet"]
        running = [subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for _ in range(3)]
        said = [one.communicate() for one in running]
    assert [one.returncode for one in running] == [0, 0, 0], said
    records = sorted(tmp_path.glob("*.json"))
    assert len(records) == 3 and all(load_run(path).complete for path in records)
    assert {path.stem for path in tmp_path.glob("*.csv")} == {path.stem for path in records}
    assert len(list(tmp_path.iterdir())) == 6


def test_a_recording_takes_the_next_free_default_name_and_no_other(tmp_path: Path) -> None:
    out = tmp_path / "prompts.jsonl"
    recordings = [Recording(out, may_rename=True) for _ in range(3)]
    assert [one.out.name for one in recordings] == [
        "prompts.jsonl", "prompts-2.jsonl", "prompts-3.jsonl"]
    with pytest.raises(UserError, match="never overwritten"):
        Recording(out)
    for one in recordings:
        one.close()
    assert list(tmp_path.iterdir()) == []
