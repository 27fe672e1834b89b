"""The journal: readable from the moment it is there, and a name of its own for every run."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from request_timing.findings.derive import to_text
from request_timing.records import journal
from request_timing.records.journal import Journal, check_writable, free_name, journal_path
from request_timing.records.run import RecordError, load_run
from run_samples import FULL, run_of


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


STEPS = ("mkstemp", "chmod", "open", "link", "unlink")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_step_leaves_no_unreadable_journal(
    step: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if when == "after":
                real(*args, **named)
            raise Killed
        return call

    out = tmp_path / "run.json"
    if step == "open":
        monkeypatch.setattr(journal, "open", killing(open), raising=False)
    else:
        module: Any = tempfile if step == "mkstemp" else os
        monkeypatch.setattr(module, step, killing(getattr(module, step)))
    with pytest.raises(Killed):
        Journal(out, run_of())
    monkeypatch.undo()
    if journal_path(out).exists():
        assert load_run(journal_path(out)).samples == []
    else:
        Journal(out, run_of()).discard()  # the name is still free


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links_has_whole_journals_too(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_link)
    out = tmp_path / "run.json"
    first = Journal(out, run_of())
    with pytest.raises(RecordError, match="another run"):
        Journal(out, run_of())
    first.add(FULL)
    assert load_run(first.path).samples == [FULL]
    assert first.finish(to_text, complete=True) == out
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    second = Journal(tmp_path / "other.json", run_of())
    second.out.write_text("taken meanwhile")
    assert second.finish(to_text, complete=True) == tmp_path / "other-2.json"
    assert second.out.read_text() == "taken meanwhile"


def test_a_reader_that_polls_finds_a_journal_whole_or_not_at_all(tmp_path: Path) -> None:
    done = threading.Event()
    unreadable: list[str] = []

    def poll() -> None:
        while not done.is_set():
            for path in tmp_path.glob("*.partial.jsonl"):
                try:
                    load_run(path)
                except RecordError as error:
                    if path.exists():
                        unreadable.append(str(error))

    reader = threading.Thread(target=poll)
    reader.start()
    for number in range(200):
        started = Journal(tmp_path / f"{number}.json", run_of())
        started.add(FULL)
        started.discard()
    done.set()
    reader.join()
    assert unreadable == []


def test_runs_that_start_at_once_under_a_default_name_each_get_one(tmp_path: Path) -> None:
    out, count = tmp_path / "local_cache-20260101T000000Z.json", 8
    start = threading.Barrier(count)
    written: list[Path] = []

    def run() -> None:
        start.wait()
        started = Journal(out, run_of(), may_rename=True)
        started.add(FULL)
        written.append(started.finish(to_text, complete=True))

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(written) == sorted(tmp_path.iterdir()) and len(set(written)) == count
    assert all(load_run(path).samples == [FULL] for path in written)


def test_a_default_name_gives_way_to_the_next_free_one(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    assert free_name(out) == out
    out.touch()
    (tmp_path / "run-2.json.partial.jsonl").touch()
    (tmp_path / "run-3.png").touch()
    assert free_name(out) == tmp_path / "run-3.json"
    assert free_name(out, [".png"]) == tmp_path / "run-4.json"
    assert Journal(out, run_of(), may_rename=True).out == tmp_path / "run-3.json"


@pytest.mark.parametrize("taken", ["run.json", "run.json.partial.jsonl"])
def test_a_name_that_the_user_gave_is_refused(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).touch()
    for refusing in (check_writable, lambda out: Journal(out, run_of())):
        with pytest.raises(RecordError, match="--out another name"):
            refusing(tmp_path / "run.json")
    assert [path.name for path in tmp_path.iterdir()] == [taken]


def test_a_journal_is_for_the_same_readers_as_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    started = Journal(tmp_path / "run.json", run_of())
    assert started.path.stat().st_mode == (tmp_path / "other").stat().st_mode
