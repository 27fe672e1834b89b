"""Addresses: what is understood, what is refused by name, what stays on this machine."""

from __future__ import annotations

import pytest

from request_timing.errors import UserError
from request_timing.servers.urls import address, is_loopback, proxy_variable

EXAMPLE = "http://127.0.0.1:8080/v1"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.mark.parametrize(("text", "url"), [
    ("http://host", "http://host"),
    ("http://host/", "http://host"),
    ("  http://host:8080/v1/ ", "http://host:8080/v1"),
    ("https://host/v1", "https://host/v1"),
    ("HTTPS://Host/v1", "https://host/v1"),
    ("https://host/v1/chat/completions", "https://host/v1"),
    ("https://host/v1/chat/completions/", "https://host/v1"),
    ("https://host/v1/models", "https://host/v1"),
    ("http://host:8080/completion", "http://host:8080"),
    ("http://host:8080/health", "http://host:8080"),
    ("http://host:8080/props", "http://host:8080"),
    ("https://gateway/openai/deployments/d", "https://gateway/openai/deployments/d"),
    ("https://gateway/a/b/v1/", "https://gateway/a/b/v1"),
    ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
    ("http://[fe80::1]/v1", "http://[fe80::1]/v1"),
    ("https://user:hunter2@host/v1?api-version=1", "https://host/v1"),
])
def test_a_base_url_in_many_spellings(text: str, url: str) -> None:
    assert address("--base-url", text, example=EXAMPLE).url == url


def test_credentials_and_query_are_kept_apart() -> None:
    where = address("--base-url", "https://me:a%40b@host:1/v1?api-version=2&x=", example=EXAMPLE)
    assert (where.username, where.password, where.port) == ("me", "a%40b", 1)
    assert where.query == (("api-version", "2"), ("x", ""))


@pytest.mark.parametrize("text", [
    "", "host", "host:8080", "ftp://host", "http://", "http:///v1", "http://host:port",
    "http://host:99999", "http://host:0", "http://[::1", "file:///etc/passwd", "//host/v1",
])
def test_what_is_no_url_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UserError, match="--base-url: expected a URL such as") as raised:
        address("--base-url", text, example=EXAMPLE)
    assert EXAMPLE in str(raised.value)


@pytest.mark.parametrize("path", ["/completions", "/responses", "/messages", "/embeddings",
                                  "/api/chat", "/api/generate"])
def test_another_interface_is_refused_by_name(path: str) -> None:
    with pytest.raises(UserError, match=f"ends in {path}") as raised:
        address("--base-url", f"https://host/v1{path}?key=secret", example=EXAMPLE)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("host", [
    "localhost", "LOCALHOST", "localhost.", "api.localhost", "127.0.0.1", "127.0.0.53", "127.1",
    "127.255.255.254", "0x7f000001", "2130706433", "0177.0.0.1", "::1", "[::1]",
    "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "0.0.0.0", "::",
])
def test_loopback_in_many_spellings(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [
    "example.com", "localhost.example.com", "notlocalhost", "128.0.0.1", "10.0.0.1", "192.168.1.5",
    "fe80::1", "::ffff:10.0.0.1", "127.0.0.1.example.com", "127.0.0.1x", "", "2606:4700::1111",
])
def test_what_is_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No proxy in the environment, in either case of letters."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(("environ", "scheme", "host", "variable"), [
    ({}, "https", "api.example.com", None),
    ({"HTTPS_PROXY": "http://p:1"}, "https", "api.example.com", "HTTPS_PROXY"),
    ({"https_proxy": "http://p:1"}, "https", "api.example.com", "HTTPS_PROXY"),
    ({"HTTPS_PROXY": "http://p:1"}, "http", "api.example.com", None),
    ({"ALL_PROXY": "http://p:1"}, "http", "api.example.com", "ALL_PROXY"),
    ({"HTTP_PROXY": "http://p:1", "ALL_PROXY": "http://q:1"}, "http", "host", "HTTP_PROXY"),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "host"}, "http", "host", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, "http", "a.example.com", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, "http", "host", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "other"}, "http", "host", "HTTP_PROXY"),
    # Loopback never goes through a proxy, whatever the environment says.
    ({"HTTP_PROXY": "http://p:1", "ALL_PROXY": "http://q:1"}, "http", "127.0.0.1", None),
    ({"HTTP_PROXY": "http://p:1"}, "http", "localhost", None),
    ({"HTTP_PROXY": "http://p:1"}, "http", "::1", None),
])
def test_which_variable_names_the_proxy(
    clean: pytest.MonkeyPatch, environ: dict[str, str], scheme: str, host: str,
    variable: str | None
) -> None:
    for name, value in environ.items():
        clean.setenv(name, value)
    assert proxy_variable(scheme, host) == variable
