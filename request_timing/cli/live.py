"""The live line on a terminal: what is under way, how long, how much is left, what it took.

The measuring thread only leaves facts and lines here; from `start` to `stop` a thread of its own
writes them, several times a second, so that a terminal that is slow, stuck or gone holds up no
request, no clock and no end of a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

from request_timing.experiments import basic
from request_timing.experiments.lab import Settings
from request_timing.experiments.plan import Planned
from request_timing.findings.measures import AS_SENT, COLD, WHAT_IF
from request_timing.records.sample import Sample
from request_timing.servers.timing import Clock, Progress, clock

REDRAW_S = 0.2
PATIENCE_S = 2.0  # for the last words; a terminal that takes none for so long is stuck
# A token of output takes about so many times as long as one of input; for the estimate only.
OUTPUT_WEIGHT = 8


def duration(seconds: float) -> str:
    """12 s, 3 min 05 s, 1 h 02 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else (
        f"{minutes // 60} h {minutes % 60:02d} min")


class Live:
    """One line, drawn over itself, and lines that stay; where `is_on` is false only the latter."""

    def __init__(self, *, is_on: bool, now: Clock = clock) -> None:
        self.is_on = is_on
        self._now = now
        self._started = now()
        self._work = self._done = 0.0
        self._asked: Sample | None = None
        self._progress: Progress | None = None
        self._turns: dict[tuple[str, str], str] = {}
        self._tokens = 0
        self._money: Callable[[Sequence[Sample]], str] = lambda samples: ""
        self._spent = ""
        self._drawn = ""
        self._said: deque[str] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, planned: Sequence[Planned], settings: Settings, *, interleave: bool,
              money: Callable[[Sequence[Sample]], str]) -> None:
        """Begin to draw, for a run that is to send so much; money: what samples cost, in words."""
        self._work = float(sum(_work(p.input_tokens, p.output_tokens) for p in planned))
        self._turns = _turns(settings, interleave)
        self._money = money
        self._started = self._now()
        if self.is_on:
            self._thread = threading.Thread(target=self._redraw, daemon=True)
            self._thread.start()

    def request(self, asked: Sample) -> None:
        """A request is about to be sent."""
        self._asked, self._progress = asked, None

    def progress(self, progress: Progress) -> None:
        """The server says how far prefill has come."""
        self._progress = progress

    def answered(self, samples: Sequence[Sample]) -> None:
        """A request came to its end; `samples` are all so far."""
        read, written = samples[-1].prompt_tokens or 0, samples[-1].output_tokens or 0
        self._tokens += read + written
        self._done += _work(read, written)
        self._spent = self._money(samples)

    def text(self) -> str:
        """The line: experiment, arm and turn; prefill; time so far and left; tokens and money."""
        asked, progress = self._asked, self._progress
        if asked is None:
            return ""
        of = self._turns.get((asked.experiment, asked.arm))
        what = f"turn {asked.turn}{of}" if of is not None else f"repeat {asked.repeat}"
        parts = [f"{asked.experiment} {asked.arm} {what}"]
        if progress is not None and progress.processed_tokens < progress.total_tokens:
            parts.append(f"prefill {progress.processed_tokens:,}/{progress.total_tokens:,}")
        elif progress is not None:
            parts.append("writing")
        elapsed = self._now() - self._started
        left = elapsed * (self._work - self._done) / self._done if self._done else None
        parts.append(duration(elapsed) + (
            f", about {duration(left)} left" if left is not None and left > 0 else ""))
        if self._tokens:
            parts.append(f"{self._tokens:,} tokens" + (f", {self._spent}" if self._spent else ""))
        return " | ".join(parts)

    def say(self, line: str) -> None:
        """A line that stays, above the one that is drawn."""
        if self._thread is not None:
            self._said.append(line)
            return
        with contextlib.suppress(OSError):  # nobody reads it; the run goes on
            print(line, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Say what is still to be said, leave an empty line, and draw no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            self._thread = None

    def _redraw(self) -> None:
        while not self._stop.wait(REDRAW_S):
            self._say_all()
            self._draw(self.text())
        self._say_all()
        self._draw("")

    def _say_all(self) -> None:
        while self._said:
            self._draw("")
            _write(self._said.popleft() + "\n")

    def _draw(self, text: str) -> None:
        columns = _columns() - 1
        text = text[:columns]
        if text == self._drawn:
            return
        # Two more columns, for the ^C that a terminal writes behind the line.
        width = min(len(self._drawn) + 2, columns)
        _write("\r" + text.ljust(width) + ("" if text else "\r"))
        self._drawn = text


def _write(text: str) -> None:
    """Write to the terminal itself, and never mind one that is gone.

    Past Python's buffer: a thread that is stuck there holds its lock, and the end of the program
    would wait for it.
    """
    with contextlib.suppress(OSError, ValueError):
        data = text.encode(sys.stderr.encoding, "backslashreplace")
        while data:
            data = data[os.write(sys.stderr.fileno(), data):]


def _columns() -> int:
    """Columns of the terminal that stderr is; stdout may be another, or a pipe."""
    columns = 0
    with contextlib.suppress(OSError, ValueError):
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return columns or shutil.get_terminal_size().columns


def _turns(settings: Settings, interleave: bool) -> dict[tuple[str, str], str]:
    """Of how many turns, by experiment and arm: " of 6"."""
    last: dict[tuple[str, str], int] = {}
    for arm, turn, _ in basic.schedule(settings, interleave, random.Random(0)):
        last["cache", arm] = max(turn, last.get(("cache", arm), 0))
    about = " of at most" if settings.until_sure else " of"
    replayed = dict.fromkeys((AS_SENT, WHAT_IF, COLD), f" of {len(settings.captured)}")
    return {key: f"{about} {turns}" for key, turns in last.items()} | {
        ("replay", arm): of for arm, of in replayed.items()}


def _work(input_tokens: int, output_tokens: int) -> float:
    return input_tokens + OUTPUT_WEIGHT * output_tokens
