"""What comes from elsewhere and is kept: plain, bounded, without the key."""

from __future__ import annotations

import html
import json
import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from request_timing.errors import FOREIGN_CHARS
from request_timing.servers.sanitize import (
    HIDDEN,
    MOST_DEPTH,
    MOST_ITEMS,
    hide,
    kept_headers,
    plain_json,
    response_cache,
)

KEY = "sk-stub-0123456789"


@pytest.mark.parametrize(("value", "plain"), [
    (None, None), (True, True), (0, 0), (-1, -1), (1.5, 1.5), ("text", "text"), ([], []), ({}, {}),
    ({"prompt_tokens": 10, "details": {"cached_tokens": [8, None]}},
     {"prompt_tokens": 10, "details": {"cached_tokens": [8, None]}}),
    (float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf"),
    ((1 << 63) - 1, (1 << 63) - 1), (1 << 63, "9.22337e+18"), (-(1 << 63), "-9.22337e+18"),
    (10 ** 400, "a number of many digits"),
    ("two\nlines\tand \x1b[31mred", "two lines and \\x1b[31mred"),
    ("\ud83d", "\\xd83d"), ("a\x00b", "a\\x00b"),
    ({"a\nb": 1}, {"a b": 1}),
])
def test_a_value_is_made_plain(value: Any, plain: Any) -> None:
    assert plain_json(value) == plain
    json.dumps(plain_json(value), allow_nan=False).encode()


def test_nothing_is_kept_without_end() -> None:
    assert len(plain_json("x" * 10_000)) == FOREIGN_CHARS
    assert len(plain_json(list(range(1000)))) == MOST_ITEMS
    assert len(plain_json({str(n): n for n in range(1000)})) == MOST_ITEMS
    deep: Any = "bottom"
    for _ in range(500):
        deep = {"d": [deep]}
    text = json.dumps(plain_json(deep))
    assert text.count("d") == MOST_DEPTH / 2
    assert "..." in text and "bottom" not in text


@pytest.mark.parametrize("value", [
    KEY, f"Bearer {KEY}", [KEY], {"a": {"b": [f"x{KEY}x"]}}, {KEY: 1}, {f"{KEY}-name": KEY},
    "x" * (FOREIGN_CHARS - 10) + KEY, {"x" * 90 + KEY: 1},
], ids=range(8))
def test_the_key_is_nowhere(value: Any) -> None:
    kept = json.dumps(plain_json(value, KEY))
    assert KEY[:-2] not in kept
    assert HIDDEN in kept or "..." in kept


def test_without_a_key_nothing_is_hidden() -> None:
    assert hide("text", None) == hide("text", "") == "text"
    assert hide(f"{KEY}{KEY}", KEY) == HIDDEN * 2


ODD = "sk-aB/9+x=&'\"\u00e9 \\z<"


@pytest.mark.parametrize("echoed", [
    ODD, ODD.upper(), ODD.lower(), quote(ODD), quote(ODD, safe=""), quote_plus(ODD),
    quote(quote(ODD, safe=""), safe=""), quote(ODD).lower(), html.escape(ODD),
    html.escape(ODD).replace("&#x27;", "&#39;"), ODD.replace("/", "&#x2F;").replace("+", "&#43;"),
    json.dumps(ODD)[1:-1], json.dumps(json.dumps(ODD))[3:-3],
    json.dumps(ODD, ensure_ascii=False)[1:-1].replace("/", r"\/"),
    ODD.replace("/", r"\u002f"), ODD.replace("/", "%2F"),
], ids=range(16))
def test_the_key_is_hidden_however_it_is_echoed(echoed: str) -> None:
    assert hide(f"a {echoed} b {echoed}", ODD) == f"a {HIDDEN} b {HIDDEN}"
    assert hide(f"a {echoed}", ("other", ODD)) == f"a {HIDDEN}"


def test_a_word_is_hidden_in_its_own_case_alone() -> None:
    assert hide("none None", "none") == f"{HIDDEN} None"


def test_hiding_takes_no_time_to_speak_of() -> None:
    started = time.perf_counter()
    for run in ("\\" * 100_000, "%25" * 50_000, "&#0" * 50_000, "sk-" * 50_000):
        assert hide(run, KEY) == run
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(("name", "is_kept"), [
    ("X-Cache", True), ("cf-cache-status", True), ("X-LiteLLM-Cache-Hit", True), ("Age", True),
    ("Via", True), ("Server", True), ("Retry-After", True), ("x-request-id", True),
    ("fireworks-cached-prompt-tokens", True), ("x-kong-cache-key", True),
    ("Cache-Control", False), ("Set-Cookie", False), ("x-cache-cookie", False), ("Date", False),
    ("Authorization", False), ("Content-Type", False), ("x-ratelimit-remaining", False),
])
def test_which_headers_are_kept(name: str, is_kept: bool) -> None:
    assert kept_headers([(name, "v")]) == ({name.lower(): "v"} if is_kept else {})


def test_headers_are_made_plain_too() -> None:
    kept = kept_headers([("X-Cache", f"{KEY} \x1b" + "y" * 999)] + [
        (f"x-cache-{n}", "v") for n in range(999)], KEY)
    assert len(kept) == MOST_ITEMS
    assert kept["x-cache"].startswith(f"{HIDDEN} \\x1byyy")
    assert len(kept["x-cache"]) == FOREIGN_CHARS


@pytest.mark.parametrize(("headers", "told"), [
    ({"x-cache": "HIT"}, "x-cache: HIT"),
    ({"x-cache": "Hit from cloudfront"}, "x-cache: Hit from cloudfront"),
    ({"x-cache": "HIT, MISS"}, "x-cache: HIT, MISS"),
    ({"x-cache": "MISS, HIT"}, "x-cache: MISS, HIT"),
    ({"x-litellm-cache-hit": "True"}, "x-litellm-cache-hit: True"),
    ({"cf-cache-status": "STALE"}, "cf-cache-status: STALE"),
    ({"x-openrouter-cache-status": "HIT"}, "x-openrouter-cache-status: HIT"),
    ({"x-cache": "TCP_HIT from a.deploy (AkamaiGHost/11.3; 1-2)"},
     "x-cache: TCP_HIT from a.deploy (AkamaiGHost/11.3; 1-2)"),
    ({"x-cache": "TCP_MEM_HIT from a"}, "x-cache: TCP_MEM_HIT from a"),
    ({"x-cache": "HIT:1"}, "x-cache: HIT:1"), ({"x-cache-hits": "3"}, "x-cache-hits: 3"),
    ({"x-cache-hits": "0, 1"}, "x-cache-hits: 0, 1"), ({"age": "120"}, "age: 120"),
    ({"x-vercel-cache": "HIT"}, "x-vercel-cache: HIT"),
    ({"x-served-from-cache": "true"}, "x-served-from-cache: true"),
    ({"cache-status": "Origin; hit; ttl=10"}, "cache-status: Origin; hit; ttl=10"),
    ({"cache-status": "Edge; fwd=uri-miss, Origin;hit"},
     "cache-status: Edge; fwd=uri-miss, Origin;hit"),
    ({"cache-status": "HIT"}, "cache-status: HIT"),
    ({"cache-status": "Origin; fwd=uri-miss; stored"}, None),
    ({"cache-status": 'Edge; fwd=bypass; detail="no, a; hit"'}, None),
    ({"cache-status": "Hit-machine; fwd=miss"}, None), ({"cache-status": "MISS"}, None),
    ({"x-cache": "TCP_MISS from a"}, None), ({"x-cache": "HIT-FOR-MISS"}, None),
    ({"x-cache": "Miss from cloudfront, not a hit"}, None), ({"x-cache": "MISS:0"}, None),
    ({"x-cache-hits": "0"}, None), ({"x-cache-hits": "0, 0"}, None), ({"age": "0"}, None),
    ({"age": "-1"}, None), ({"age": "old"}, None), ({"x-vercel-cache": "MISS"}, None),
    ({"x-served-from-cache": "false"}, None),
    ({"x-cache": "MISS"}, None), ({"x-cache": "Miss from cloudfront"}, None),
    ({"cf-cache-status": "DYNAMIC"}, None), ({"x-cache": "MISS, MISS"}, None),
    ({"x-cache-key": "hit"}, None), ({"x-litellm-cache-hit": "False"}, None), ({}, None),
])
def test_a_whole_answer_from_a_cache(headers: dict[str, str], told: str | None) -> None:
    assert response_cache(headers) == told
