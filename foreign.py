"""What comes from elsewhere and is kept: made plain, bounded, and without the key.

A record is JSON, and a server may send what JSON can't hold (NaN, half a surrogate pair) or what
must not be kept (the key, echoed).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from network import Address
from trouble import one_line

MOST_ITEMS, MOST_DEPTH = 64, 6
MOST_TOKENS = 1 << 53  # a larger "count" is none, and no float holds it
LEAST_SECRET_CHARS = 6  # what is shorter is a word ("none", "1"), and would mask others
# One secret, several, or none.
Secrets = str | tuple[str, ...] | None
HIDDEN = "***"
# Header values that say that a whole answer, and no prefix, came from a cache.
RESPONSE_CACHES = (
    "x-openrouter-cache-status", "cf-aig-cache-status", "helicone-cache", "x-portkey-cache-status",
    "x-cache", "x-cache-status", "x-proxy-cache", "x-litellm-cache-hit", "x-kong-cache-status",
    "x-semantic-cache", "cf-cache-status",
)


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


def hide(text: str, key: Secrets) -> str:
    """The text without the key."""
    for secret in (key,) if isinstance(key, str) else key or ():
        text = text.replace(secret, HIDDEN) if secret else text
    return text


def secrets(key: str | None, where: Address) -> tuple[str, ...]:
    """All that must not be kept of a server's words: the key, and what its URL brings (a password,
    the values of its query), as they are and as they are sent; the longest first."""
    found = {key} if key else set()
    values = [where.password or "", *(value for _, value in where.query)]
    if where.password:
        user = f"{unquote(where.username or '')}:{unquote(where.password)}"
        values.append(base64.b64encode(user.encode()).decode())
    for value in values:
        if len(value) >= LEAST_SECRET_CHARS:
            found |= {value, unquote(value), quote(value, safe=""), quote_plus(value)}
    return tuple(sorted(found, key=len, reverse=True))


def plain_json(value: Any, key: Secrets = None, depth: int = 0) -> Any:
    """A JSON value as a record can hold it: finite numbers, short printable strings, not too much
    of anything, and no key."""
    if isinstance(value, dict):
        if depth >= MOST_DEPTH:
            return "..."
        return {one_line(hide(str(name), key), limit=100): plain_json(item, key, depth + 1)
                for name, item in list(value.items())[:MOST_ITEMS]}
    if isinstance(value, list):
        if depth >= MOST_DEPTH:
            return "..."
        return [plain_json(item, key, depth + 1) for item in value[:MOST_ITEMS]]
    if isinstance(value, str):
        return one_line(hide(value, key))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return one_line(f"{value:.6g}" if abs(value) < 1 << 1000 else "a number of many digits")
    return value


def kept_headers(headers: Iterable[tuple[str, str]], key: Secrets = None) -> dict[str, str]:
    """The headers of an answer that tell of caches, of what is in between, or of limits."""
    kept: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if name != "cache-control" and "cookie" not in name and (
            "cache" in name or name in ("age", "via", "server", "retry-after", "x-request-id")
            or name.startswith("fireworks-")
        ):
            kept[one_line(name, limit=100)] = one_line(hide(value, key))
    return dict(list(kept.items())[:MOST_ITEMS])


def response_cache(headers: dict[str, str]) -> str | None:
    """The header that says that the whole answer came from a cache, or None."""
    for name in RESPONSE_CACHES:
        value = headers.get(name, "")
        # Each cache on the way has its word in a list; one hit is enough.
        words = [part.strip().split(" ")[0] for part in value.lower().split(",")]
        if not {"hit", "true", "stale"}.isdisjoint(words):
            return f"{name}: {value}"
    return None
