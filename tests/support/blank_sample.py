"""Shared by tests: blank."""

from __future__ import annotations

from typing import Any

from request_timing.records.sample import Sample


def blank(**known: Any) -> Sample:
    """What is known of a request before it is sent."""
    asked: dict[str, Any] = {
        "experiment": "length", "arm": "10", "turn": 1, "repeat": 1,
        "sent_at": "2026-01-01T00:00:00+00:00", "prompt_chars": 3, "prompt_hash": "abc",
        "asked_output_tokens": 4}
    return Sample(**asked | known)
