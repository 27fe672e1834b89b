"""Waiting, outside every clock, for a server that asks for it or is away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from request_timing.records.sample import Failure
from request_timing.servers.timing import RequestFailed

T = TypeVar("T")

LEAST_PAUSE_S, MOST_PAUSE_S = 0.1, 30.0
FIRST_PAUSE_S = 1.0  # where the server does not say how long
AWAY = ("refused", "loading")  # after which nothing is left of what the server had cached


class Patience:
    """How long a run waits for one request, and what it learnt of the server while waiting.

    Waited for: a rate limit; an overloaded server that says for how long; a model being loaded; a
    server that has answered before and is away now. `max_wait_s` bounds the waiting for one
    request; where it was in vain, the next request is not waited for again until one succeeds.
    """

    def __init__(self, max_wait_s: float, say: Callable[[str], None], *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._max_wait_s = max_wait_s
        self._say = say
        self._sleep = sleep
        self._has_answered = False
        self._gave_up = False
        self.waited_s = 0.0  # for the last request
        self.times_away = 0

    def call(self, attempt: Callable[[], T], *, is_sample: bool = True) -> T:
        """What `attempt` returns; asked again after each failure that waiting may mend.

        What is no sample (a count of tokens) is also asked again where the connection broke: no
        figure hangs on it. Raises the last RequestFailed where waiting is no use, or took too long.
        """
        self.waited_s = 0.0
        was_away = False
        while True:
            try:
                result = attempt()
            except RequestFailed as failed:
                if failed.failure.kind in AWAY and self._has_answered and not was_away:
                    was_away = True
                    self.times_away += 1
                if (pause_s := self._pause_s(failed.failure, is_sample)) is None:
                    raise
                self._sleep(pause_s)
                self.waited_s += pause_s
            else:
                self._has_answered, self._gave_up = True, False
                return result

    def _pause_s(self, failure: Failure, is_sample: bool) -> float | None:
        """How long to wait before asking again; None to give up."""
        asked_s = failure.retry_after_s
        grown_s = min(max(FIRST_PAUSE_S, self.waited_s), MOST_PAUSE_S)
        if failure.kind == "overloaded" and asked_s is None:
            return None
        if failure.kind in ("refused", "reset") and not self._has_answered:
            return None
        waited_for = ("rate_limited", "overloaded", *AWAY, *(() if is_sample else ("reset",)))
        if failure.kind not in waited_for:
            return None
        # A server that says "0 seconds" again and again is asked less and less often.
        pause_s = grown_s if asked_s is None else max(asked_s, LEAST_PAUSE_S, self.waited_s / 4)
        if self._gave_up and asked_s is None:
            return None
        if self.waited_s + pause_s > self._max_wait_s:
            self._gave_up = True
            self._say(f"not waiting {pause_s:.3g} s more ({failure.message}): --max-wait allows "
                      f"{self._max_wait_s:g} s for a request")
            return None
        self._say(f"waiting {pause_s:.3g} s: {failure.message}")
        return pause_s
