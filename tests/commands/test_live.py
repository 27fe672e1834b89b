"""The live line: its exact words, who writes it, and what a terminal may do to it."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import local_cache
from request_timing.cli import live
from request_timing.cli.flags import settings
from request_timing.cli.live import Live, duration
from request_timing.cli.runner import Console
from request_timing.experiments.lab import Settings
from request_timing.experiments.plan import Planned
from request_timing.records.sample import Failure, Sample
from request_timing.servers.timing import Progress
from table_samples import native

PLAN = [Planned(experiment="cache", requests=10, input_tokens=8000, output_tokens=250)]


def sizes(*flags: str) -> Settings:
    """Settings as the flags of local_cache.py give them."""
    return settings(local_cache.parse(list(flags)), local_cache.DEFAULTS, local_cache.DEMO)


class FakeClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def begun(*flags: str, interleave: bool = False, money: str = "") -> tuple[Live, FakeClock]:
    """A line that is never drawn, at second 0 of a run of 8,000 tokens to read and 250 to write."""
    clock = FakeClock()
    line = Live(is_on=False, now=clock)
    line.start(PLAN, sizes(*flags), interleave=interleave, money=lambda samples: money)
    return line, clock


def turn(arm: str = "append", number: int = 3, *, asked: int = 32) -> Sample:
    return native("cache", arm, number, reused=0, computed=1000, prompt_ms=500, asked=asked,
                  written=125)


# --- the words


def test_nothing_is_under_way_before_the_first_request() -> None:
    assert begun()[0].text() == ""


def test_a_turn_its_prefill_its_time_and_its_tokens() -> None:
    line, clock = begun("--turns", "4", money="$0.0123")
    line.request(turn())
    assert line.text() == "cache append turn 3 of 4 | 0 s"
    clock.at_s += 7.4
    line.progress(Progress(at_s=0, processed_tokens=512, total_tokens=1000))
    assert line.text() == "cache append turn 3 of 4 | prefill 512/1,000 | 7 s"
    line.progress(Progress(at_s=0, processed_tokens=1000, total_tokens=1000))
    assert line.text() == "cache append turn 3 of 4 | writing | 7 s"
    # Read 1,000 and wrote 125, each of these as long as 8: 2,000 of 10,000 in 8 s, so 32 s more.
    clock.at_s = 108.0
    line.answered([turn()])
    line.request(turn("prepend", 1))
    assert line.text() == ("cache prepend turn 1 of 4 | 8 s, about 32 s left | 1,125 tokens, "
                           "$0.0123")
    clock.at_s += 72
    line.answered([turn(), turn("prepend", 1)])
    assert line.text().endswith(" | 1 min 20 s, about 2 min 00 s left | 2,250 tokens, $0.0123")


def test_more_than_was_planned_leaves_no_time() -> None:
    line, _ = begun()
    line.request(turn())
    for n in range(1, 7):
        line.answered([turn()] * n)
    assert line.text() == "cache append turn 3 of 6 | 0 s | 6,750 tokens"


def test_a_request_that_told_no_tokens_adds_none() -> None:
    line, _ = begun()
    line.request(turn())
    line.answered([replace(turn(), prompt_tokens=None, output_tokens=None)])
    assert line.text() == "cache append turn 3 of 6 | 0 s"


@pytest.mark.parametrize(("flags", "interleave", "arm", "of"), [
    (("--turns", "5"), False, "append", " of 5"),
    (("--turns", "5"), False, "repeat", " of 2"),  # a control of a server that counts
    (("--turns", "5"), True, "repeat", " of 5"),
    (("--turns", "5", "--until-sure"), True, "cold", " of at most 40"),
])
def test_each_arm_has_its_own_number_of_turns(
    flags: tuple[str, ...], interleave: bool, arm: str, of: str
) -> None:
    line, _ = begun(*flags, interleave=interleave)
    line.request(turn(arm, 2))
    assert line.text() == f"cache {arm} turn 2{of} | 0 s"


def test_sizes_have_repeats_and_a_replay_has_its_own_turns() -> None:
    line, _ = begun()
    line.request(native("length", "1000", 1, reused=0, computed=1, prompt_ms=1))
    assert line.text() == "length 1000 repeat 1 | 0 s"
    of_seven = replace(sizes(), captured=(None,) * 7)  # type: ignore[arg-type]
    line.start(PLAN, of_seven, interleave=False, money=lambda samples: "")
    line.request(replace(turn("as_sent", 7), experiment="replay"))
    assert line.text() == "replay as_sent turn 7 of 7 | 0 s"


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 59.4, 59.6, 185, 3599.6, 3720)] == [
        "0 s", "59 s", "1 min 00 s", "3 min 05 s", "1 h 00 min", "1 h 02 min"]


# --- who writes, and where


class Stderr(io.TextIOWrapper):
    """A stderr that notes which thread writes to it."""

    def __init__(self, end: int, writers: list[int]) -> None:
        super().__init__(os.fdopen(end, "wb", buffering=0), encoding="utf-8", write_through=True)
        self._writers = writers

    def write(self, text: str) -> int:
        self._writers.append(threading.get_ident())
        return super().write(text)

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def piped_stderr() -> Iterator[tuple[int, list[int]]]:
    """This process's stderr as a pipe that says it is a terminal: its other end, and the threads
    that wrote, in order. (No fixture: pytest puts its own stderr in place for each test.)"""
    writers: list[int] = []
    reading, writing = os.pipe()
    stderr = Stderr(writing, writers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        patch.setattr(live, "_write", noting(live._write, writers))
        yield reading, writers
    stderr.close()
    os.close(reading)


def noting(write: Any, writers: list[int]) -> Any:
    def noted(text: str) -> None:
        writers.append(threading.get_ident())
        write(text)

    return noted


def until(reading: int, wanted: str) -> str:
    """What comes, up to and with the text that is waited for."""
    seen = ""
    while wanted not in seen:
        data = os.read(reading, 4096)
        assert data, seen
        seen += data.decode()
    return seen


def test_while_requests_are_under_way_only_the_drawer_writes() -> None:
    with piped_stderr() as (reading_end, writers):
        console = Console(quiet=False)
        console.say("before")
        assert set(writers) == {threading.get_ident()}
        writers.clear()
        console.live.start(PLAN, sizes(), interleave=False, money=lambda samples: "")
        console.live.request(turn())
        until(reading_end, "cache append turn 3 of 6")
        console.say("a warning")
        console.failed(replace(turn(), error=Failure(kind="http", message="HTTP 500")))
        seen = until(reading_end, "HTTP 500")
        assert "a warning\n" in seen
        console.live.stop()
        drawn, = set(writers)
        assert drawn != threading.get_ident()
        console.say("after")
        assert writers[-1] == threading.get_ident()


def test_what_is_said_stands_on_a_line_of_its_own_and_the_end_is_an_empty_line() -> None:
    with piped_stderr() as (reading_end, _):
        line = Live(is_on=True, now=FakeClock())
        line.start(PLAN, sizes(), interleave=False, money=lambda samples: "")
        line.request(turn())
        text = "\rcache append turn 3 of 6 | 0 s"
        until(reading_end, text)
        line.say("said")
        blank = "\r" + " " * (len(text) - 1 + 2) + "\r"  # two more, for a ^C
        assert until(reading_end, text).startswith(f"{blank}said\n{text}")
        line.say("last words")
        line.stop()
        assert until(reading_end, "words\n").startswith(f"{blank}last words\n")
        os.set_blocking(reading_end, False)
        with pytest.raises(BlockingIOError):  # nothing behind it: the line is empty
            os.read(reading_end, 1)


def test_a_stuck_terminal_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped_stderr() as (reading_end, _):
        monkeypatch.setattr(live, "PATIENCE_S", 0.05)
        full = sys.stderr.fileno()
        os.set_blocking(full, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(full, b"x" * 4096)
        os.set_blocking(full, True)
        before = set(threading.enumerate())
        line = Live(is_on=True)
        line.start(PLAN, sizes(), interleave=False, money=lambda samples: "")
        drawer, = set(threading.enumerate()) - before
        for number in range(1, 50):
            line.request(turn(number=number))
            line.say("x" * 1000)
        line.stop()  # returns, though nothing could be written
        assert drawer.is_alive()
        while drawer.is_alive():  # as Ctrl-Q does
            os.read(reading_end, 1 << 16)
        drawer.join()


def test_a_terminal_that_is_gone_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    gone, end = os.pipe()
    os.close(gone)
    monkeypatch.setattr(sys, "stderr", os.fdopen(end, "w"))
    line = Live(is_on=True)
    line.start(PLAN, sizes(), interleave=False, money=lambda samples: "")
    line.request(turn())
    line.say("nobody reads this")
    line.stop()
    line.say("nor this")
    assert raised == []


def test_a_line_is_cut_to_the_terminal_that_stderr_is(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 20))
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("COLUMNS", "200")  # of another terminal, as a shell may have set it
        line = Live(is_on=True)
        line.start(PLAN, sizes(), interleave=False, money=lambda samples: "")
        line.request(turn())
        assert until(master, "turn") == "\rcache append turn 3"
        line.stop()
    os.close(master)
