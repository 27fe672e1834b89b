"""OUTCOMES.md is what the cases say now."""

from __future__ import annotations

import re

from outcomes import PAGE, SECTIONS, TITLES, page
from request_timing.servers.failures import ADVICE
from wire_case import Case


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/support/outcomes.py"


def test_every_row_has_as_many_cells_as_its_head() -> None:
    rows = [line for line in page().splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3, 5}


def test_every_case_has_a_section_and_a_source() -> None:
    cases: list[Case] = [case for _, cases in SECTIONS for case in cases]
    assert len(cases) >= 75
    for case in cases:
        assert case.kind in TITLES or case.kind in ADVICE
        assert re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+| \S+)|[\w.-]+\.\w+/\S+", case.source)


def test_every_kind_of_failure_that_a_server_can_cause_has_a_case() -> None:
    cases: list[Case] = [case for _, cases in SECTIONS for case in cases]
    shown = {error.kind for case in cases if (error := case.expected.error) is not None}
    # These come of the way to the server, before it says a word.
    elsewhere = {"refused", "unknown_host", "unreachable", "timeout", "tls", "no_clock"}
    assert shown | elsewhere == set(ADVICE)
