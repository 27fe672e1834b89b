"""The live line on a terminal: what is under way, how long, how much is left, what it took.

The measuring thread only leaves a text here; a thread of its own writes it, several times a second,
so that a slow terminal holds up no request and no clock.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from collections.abc import Callable, Sequence

from plan import Planned
from sample import Sample
from timing import Clock, Progress, clock

REDRAW_S = 0.2
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
    """One line, drawn over itself; nothing at all where `is_on` is false."""

    def __init__(self, *, is_on: bool, now: Clock = clock) -> None:
        self.is_on = is_on
        self._now = now
        self._started = now()
        self._work = self._done = 0.0
        self._requests = 0
        self._asked: Sample | None = None
        self._progress: Progress | None = None
        self._turns: dict[str, int] = {}
        self._tokens = 0
        self._money: Callable[[Sequence[Sample]], str] = lambda samples: ""
        self._spent = ""
        self._drawn = ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, planned: Sequence[Planned], turns: int,
              money: Callable[[Sequence[Sample]], str]) -> None:
        """Begin to draw, for a run that is to send so much; money: what samples cost, in words."""
        self._work = float(sum(_work(p.input_tokens, p.output_tokens) for p in planned))
        self._turns = {"cache": turns, "replay": turns}
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
        last = samples[-1]
        self._tokens += last.prompt_tokens or 0
        self._done += _work(last.prompt_tokens or 0, last.output_tokens or 0)
        self._spent = self._money(samples)

    def text(self) -> str:
        """The line: experiment, arm and turn; prefill; time so far and left; tokens and money."""
        asked, progress = self._asked, self._progress
        if asked is None:
            return ""
        turns = self._turns.get(asked.experiment)
        what = (f"turn {asked.turn}{f' of {turns}' if turns else ''}" if turns or asked.turn > 1
                else f"repeat {asked.repeat}")
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

    def wipe(self) -> None:
        """Leave an empty line, for what is said next."""
        with self._lock:
            self._draw("")

    def stop(self) -> None:
        """Draw no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * REDRAW_S)  # not for ever: a terminal may be stuck
            self._thread = None
            self.wipe()

    def _redraw(self) -> None:
        while not self._stop.wait(REDRAW_S):
            with self._lock:
                if not self._stop.is_set():
                    self._draw(self.text())

    def _draw(self, text: str) -> None:
        if not self.is_on or text == self._drawn:
            return
        columns = shutil.get_terminal_size().columns - 1
        text = text[:columns]
        # Two more columns, for the ^C that a terminal writes behind the line.
        width = min(len(self._drawn) + 2, columns)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("\r" + text.ljust(width) + ("" if text else "\r"))
            sys.stderr.flush()
        self._drawn = text


def _work(input_tokens: int, output_tokens: int) -> float:
    return input_tokens + OUTPUT_WEIGHT * output_tokens
