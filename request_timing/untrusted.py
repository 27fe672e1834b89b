"""Shape checks for JSON that comes from elsewhere: another shape is an empty one, or unknown."""

from __future__ import annotations

from typing import Any

MOST_TOKENS = 1 << 53  # a larger "count" is none, and no float holds it


def mapping(value: Any) -> dict[str, Any]:
    """The value, or where it is of another shape, an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value, or where it is of another shape, an empty list."""
    return value if isinstance(value, list) else []


def token_count(value: Any) -> int | None:
    """A count of tokens, or None where something else was sent."""
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS
    return value if valid else None
