"""Every wire case through the real clients: on a fake clock to the microsecond, and on a socket.

On a socket, a server plays the case, and the Sample is the same but for its times.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from request_timing.records.sample import Connection
from request_timing.servers.failures import ADVICE
from wire_case import Case
from wire_cases_llama import LLAMA
from wire_players import (
    API,
    llama_on_a_socket,
    llama_on_the_fake_clock,
    on_a_socket,
    on_the_fake_clock,
    without_times,
)


def ids(case: Case) -> str:
    return f"{case.kind}-{case.name}"


@pytest.mark.parametrize("case", API, ids=ids)
def test_on_the_fake_clock(case: Case) -> None:
    sample, says = on_the_fake_clock(case)
    # An answer that was refused by its status has no more than its failure.
    opened = Connection(new=True, connect_s=0.0) if sample.response_headers is not None else None
    assert sample == replace(case.expected, connection=opened)
    assert says == case.says


@pytest.mark.parametrize("case", API, ids=ids)
def test_on_a_socket(case: Case) -> None:
    sample, says = on_a_socket(case)
    assert without_times(sample) == without_times(case.expected)
    assert says == case.says
    if sample.response_headers is not None:
        assert sample.connection is not None and sample.connection.new
    assert list(sample.arrivals_s) == sorted(sample.arrivals_s)


@pytest.mark.parametrize("case", LLAMA, ids=ids)
def test_a_llama_server_on_the_fake_clock(case: Case) -> None:
    sample, says = llama_on_the_fake_clock(case)
    assert sample == case.expected
    assert says == case.says


@pytest.mark.parametrize("case", LLAMA, ids=ids)
def test_a_llama_server_on_a_socket(case: Case) -> None:
    sample, says = llama_on_a_socket(case)
    assert without_times(sample) == without_times(case.expected)
    assert says == case.says
    assert list(sample.arrivals_s) == sorted(sample.arrivals_s)


def test_the_tables() -> None:
    for cases in (API, LLAMA):
        names = [case.name for case in cases]
        assert len(set(names)) == len(names)
        for case in cases:
            error = case.expected.error
            assert error is None or error.kind in ADVICE
            assert [at_s for at_s, _ in case.script] == sorted(at_s for at_s, _ in case.script)
