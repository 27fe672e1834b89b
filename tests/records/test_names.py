"""Reading a record loads nothing that measures; one rule says whether a prompt was found again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from conftest import ROOT
from physics_samples import sample
from request_timing.findings.found_again import was_found_again

MEASURING = ("request_timing.experiments", "request_timing.servers")
JUDGING = "request_timing.findings"


def test_reading_a_record_loads_nothing_that_measures() -> None:
    loaded = subprocess.run([
        sys.executable, "-c", "import request_timing.records.run, sys; print(*sys.modules)"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "request_timing.records.sample" in loaded
    assert [name for name in loaded if name.startswith((*MEASURING, JUDGING))] == []


@pytest.mark.parametrize(("cached", "factor", "expected"), [
    (1000, 1.0, True), (500, 1.0, True), (499, 0.1, False),  # a count goes before the clock
    (None, 0.49, True), (None, 0.5, False), (None, 0.51, False),
])
def test_a_prompt_is_found_again_by_count_else_by_the_clock(
    cached: int | None, factor: float, expected: bool
) -> None:
    first = sample("workload", "cold/1000x9", 1000, reported=cached is not None)
    again = sample("workload", "hit/1000x9", 1000, turn=2, factor=factor, cached_tokens=cached)
    assert was_found_again(first, again) is expected


def test_nothing_is_known_without_count_and_clock() -> None:
    first = sample("workload", "cold/1000x9", 1000, reported=False)
    again = sample("workload", "hit/1000x9", 1000, reported=False, arrivals_s=(),
                   arrival_kinds=())
    assert was_found_again(first, again) is None
    assert was_found_again(again, first) is None
