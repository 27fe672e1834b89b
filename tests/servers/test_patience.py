"""Waiting on a fake sleep: for whom, how long, when no more, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from request_timing.servers.patience import Patience
from request_timing.servers.timing import RequestFailed


@dataclass
class Server:
    """Answers from a list of failures, None being a success; and what patience did meanwhile."""

    answers: list[RequestFailed | None]
    slept_s: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    asked: int = 0

    def patience(self, max_wait_s: float) -> Patience:
        return Patience(max_wait_s, self.said.append, sleep=self.slept_s.append)

    def ask(self) -> str:
        self.asked += 1
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        return "answer"


def failed(kind: str, after_s: float | None = None) -> RequestFailed:
    return RequestFailed(kind, f"it is {kind}", 503, retry_after_s=after_s)


REFUSED, LOADING = failed("refused"), failed("loading")
LIMITED, OVERLOADED = failed("rate_limited"), failed("overloaded")


def in_vain(server: Server, patience: Patience) -> str:
    """The kind of failure that patience ends with."""
    with pytest.raises(RequestFailed) as raised:
        patience.call(server.ask)
    return raised.value.failure.kind


def test_an_answer_is_not_waited_for() -> None:
    server = Server([None])
    patience = server.patience(60)
    assert patience.call(server.ask) == "answer"
    assert (server.slept_s, server.said, patience.waited_s) == ([], [], 0.0)


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "loading"])
def test_what_a_server_asks_for_is_waited_for_to_the_second(kind: str) -> None:
    server = Server([failed(kind, 7.0), failed(kind, 2.5), None])
    patience = server.patience(60)
    assert patience.call(server.ask) == "answer"
    assert server.slept_s == [7.0, 2.5]
    assert patience.waited_s == 9.5
    assert server.said == [f"waiting 7 s: it is {kind}", f"waiting 2.5 s: it is {kind}"]


def test_without_a_word_the_pauses_grow() -> None:
    server = Server([LIMITED] * 8 + [None])
    server.patience(300).call(server.ask)
    # Each as long as all before it, up to half a minute.
    assert server.slept_s == [1, 1, 2, 4, 8, 16, 30, 30]


def test_zero_seconds_again_and_again_is_asked_less_and_less_often() -> None:
    server = Server([failed("rate_limited", 0.0)] * 40)
    assert in_vain(server, server.patience(10)) == "rate_limited"
    assert server.slept_s[:3] == [0.1, 0.1, 0.1]
    assert server.slept_s == sorted(server.slept_s)
    assert sum(server.slept_s) <= 10
    assert server.asked < 30


@pytest.mark.parametrize("failure", [
    failed("key"), failed("credit", 1.0), failed("context"), failed("reset"), failed("stalled"),
    failed("http"), OVERLOADED, REFUSED,
], ids=lambda failure: failure.failure.kind)
def test_what_waiting_would_not_mend_is_not_waited_for(failure: RequestFailed) -> None:
    server = Server([failure])
    assert in_vain(server, server.patience(60)) == failure.failure.kind
    assert (server.slept_s, server.said, server.asked) == ([], [], 1)


@pytest.mark.parametrize(("max_wait_s", "after_s", "slept_s"), [
    (10.0, 10.0, [10.0]), (10.0, 10.5, []), (0.0, 1.0, []), (0.0, 0.0, []), (25.0, 10.0, [10, 10]),
])
def test_the_limit_holds_for_all_waits_of_a_request(
    max_wait_s: float, after_s: float, slept_s: list[float]
) -> None:
    server = Server([failed("rate_limited", after_s)] * 9)
    assert in_vain(server, server.patience(max_wait_s)) == "rate_limited"
    assert server.slept_s == slept_s
    assert server.said[-1].startswith("not waiting")
    assert "--max-wait" in server.said[-1] and f"{max_wait_s:g} s" in server.said[-1]


def test_waited_in_vain_once_the_next_request_is_not_waited_for_until_one_is_answered() -> None:
    server = Server([*[LIMITED] * 4, LIMITED, None, LIMITED, None])
    patience = server.patience(5)
    assert in_vain(server, patience) == "rate_limited"
    assert server.slept_s == [1, 1, 2]
    assert in_vain(server, patience) == "rate_limited"
    assert (server.slept_s, patience.waited_s) == ([1, 1, 2], 0.0)
    assert patience.call(server.ask) == "answer"
    assert patience.call(server.ask) == "answer"
    assert server.slept_s == [1, 1, 2, 1]


def test_a_server_that_says_when_is_waited_for_again_even_then() -> None:
    server = Server([LIMITED, LIMITED, failed("rate_limited", 1.0), None])
    patience = server.patience(1)
    assert in_vain(server, patience) == "rate_limited"
    assert patience.call(server.ask) == "answer"
    assert server.slept_s == [1, 1.0]


def test_a_server_that_is_away_and_comes_back() -> None:
    server = Server([None, REFUSED, REFUSED, LOADING, None, None, REFUSED, None])
    patience = server.patience(60)
    for times_away in (0, 1, 1, 2):
        assert patience.call(server.ask) == "answer"
        # Once for each time, however often it was asked meanwhile.
        assert patience.times_away == times_away
    assert server.slept_s == [1, 1, 2, 1]


def test_a_server_that_was_never_there_is_not_away() -> None:
    server = Server([REFUSED, LOADING, None])
    patience = server.patience(60)
    assert in_vain(server, patience) == "refused"
    assert patience.call(server.ask) == "answer"
    assert patience.times_away == 0


def test_a_server_that_stays_away_ends_the_waiting() -> None:
    server = Server([None, *[REFUSED] * 20])
    patience = server.patience(20)
    patience.call(server.ask)
    assert in_vain(server, patience) == "refused"
    assert sum(server.slept_s) <= 20
    asked = server.asked
    assert in_vain(server, patience) == "refused"  # at once
    assert server.asked == asked + 1


def test_another_failure_meanwhile_is_the_last_word() -> None:
    server = Server([LIMITED, failed("key")])
    assert in_vain(server, server.patience(60)) == "key"
    assert server.slept_s == [1]


def test_an_error_of_another_sort_passes() -> None:
    def broken() -> None:
        raise ValueError("not a failure of a request")

    call: Callable[[Callable[[], None]], None] = Server([]).patience(60).call
    with pytest.raises(ValueError, match="not a failure"):
        call(broken)


def test_a_broken_connection_is_asked_again_where_no_sample_hangs_on_it() -> None:
    slept: list[float] = []
    patience = Patience(60.0, lambda text: None, sleep=slept.append)
    patience.call(lambda: None)
    answers = iter([RequestFailed("reset", "gone"), RequestFailed("refused", "gone"), None])

    def attempt() -> str:
        if (failed := next(answers)) is not None:
            raise failed
        return "counted"

    assert patience.call(attempt, is_sample=False) == "counted"
    assert slept == [1.0, 1.0] and patience.times_away == 1
    with pytest.raises(RequestFailed, match="gone"):
        patience.call(lambda: (_ for _ in ()).throw(RequestFailed("reset", "gone")))
