"""What comes from elsewhere and is kept: made plain, bounded, and without the key.

A record is JSON, and a server may send what JSON can't hold (NaN, half a surrogate pair) or what
must not be kept (the key, echoed).
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from functools import cache
from typing import Any
from urllib.parse import unquote

from request_timing.errors import one_line
from request_timing.servers.urls import Address

MOST_ITEMS, MOST_DEPTH = 64, 6
LEAST_SECRET_CHARS = 6  # what is shorter is a word ("none", "1"), and would mask others
# One secret, several, or none.
Secrets = str | tuple[str, ...] | None
HIDDEN = "***"
# Headers that tell of caches of whole answers, and of no prefix.
RESPONSE_CACHES = (
    "x-openrouter-cache-status", "cf-aig-cache-status", "helicone-cache", "x-portkey-cache-status",
    "x-cache", "x-cache-status", "x-proxy-cache", "x-litellm-cache-hit", "x-kong-cache-status",
    "x-semantic-cache", "cf-cache-status", "cache-status", "x-vercel-cache", "x-nextjs-cache",
    "x-served-from-cache", "x-from-cache", "x-cache-hit", "x-cache-lookup", "x-varnish-cache",
    "x-fastcgi-cache", "x-nginx-cache", "x-response-cache", "cdn-cache",
)
# What they say of a hit, first of all: HIT, Hit from cloudfront, HIT:1, Squid's TCP_MEM_HIT, or
# served though too old; and those that count hits, or seconds in a cache.
_HIT = re.compile(r"(?:(?:tcp|udp)_(?:\w+_)?)?hit\b(?!-for-)|"
                  r"(?:true|yes|stale|updating|revalidated)\b")
_COUNTS = ("x-cache-hits", "age")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def hide(text: str, key: Secrets) -> str:
    """The text without the key, in whatever case and with whichever of its characters escaped."""
    for secret in (key,) if isinstance(key, str) else key or ():
        text = _in_any_form(secret).sub(HIDDEN, text) if secret else text
    return text


@cache
def _in_any_form(secret: str) -> re.Pattern[str]:
    """A secret as it is, or as a URL, HTML or JSON may echo it, each character by itself; a word
    (see LEAST_SECRET_CHARS) in its own case alone."""
    flags = re.IGNORECASE if len(secret) >= LEAST_SECRET_CHARS else 0
    return re.compile("".join(map(_escaped, secret)), flags)


def _escaped(char: str) -> str:
    """A pattern of one character and its escapes: /, %2F, %252F, &#47;, &#x2f;, \\/, \\u002f."""
    data, code = char.encode("utf-8", "surrogatepass"), ord(char)
    units = char.encode("utf-16-be", "surrogatepass").hex()
    forms = {re.escape(char), re.escape(html.escape(char)), f"&#0{{0,6}}{code};",
             f"&#x0{{0,6}}{code:x};", "".join(f"%(?:25){{0,3}}{byte:02x}" for byte in data),
             "".join(rf"\\{{1,7}}u{units[n:n + 4]}" for n in range(0, len(units), 4))}
    if char == " ":
        forms.add(r"\+")
    return rf"\\{{0,7}}(?:{'|'.join(sorted(forms, key=len, reverse=True))})"


def secrets(key: str | None, where: Address) -> tuple[str, ...]:
    """All that must not be kept of a server's words: the key, and what its URL brings (a password,
    the values of its query), as they are and unquoted; the longest first."""
    found = {key} if key else set()
    values = [where.password or "", *(value for _, value in where.query)]
    if where.password:
        values.append(where.basic or "")
    for value in values:
        if len(value) >= LEAST_SECRET_CHARS:
            found |= {value, unquote(value)}
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
    for name in (*RESPONSE_CACHES, *_COUNTS):
        value = headers.get(name, "")
        # Each cache on the way has its word in a list; one hit is enough.
        parts = [part.strip() for part in _QUOTED.sub("", value.lower()).split(",")]
        if any(map(_counts if name in _COUNTS else _is_hit, parts)):
            return f"{name}: {value}"
    return None


def _counts(part: str) -> bool:
    """Whether it is a number above zero."""
    return re.fullmatch("[0-9]+", part) is not None and int(part[-9:]) > 0


def _is_hit(part: str) -> bool:
    """Whether a cache says that the answer was its own: in its first word, or, where its name and
    parameters stand (RFC 9211), as the parameter `hit`; `fwd` says why it was none."""
    _, *parameters = (word.strip() for word in part.split(";"))
    if any(parameter.startswith("fwd") for parameter in parameters):
        return False
    return _HIT.match(part) is not None or not {"hit", "hit=?1"}.isdisjoint(parameters)
