"""Shared by tests: FakeClock, START_S, UPLOAD_S."""

from __future__ import annotations

START_S = 1000.0
UPLOAD_S = 0.75  # from the first byte of a request to its last: no part of any figure


class FakeClock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
