"""The way to a server: what a URL says, whether it stays on this machine, which proxy it takes."""

from __future__ import annotations

import base64
import ipaddress
import socket
import urllib.request
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from request_timing.errors import UserError

SUFFIXES = ("/chat/completions", "/completion", "/models", "/props", "/health")
# Whole paths of other interfaces: cutting them off would measure something else than was meant.
OTHER_INTERFACES = ("/completions", "/responses", "/messages", "/embeddings", "/api/chat",
                    "/api/generate")


class Address(NamedTuple):
    """A server's base URL in its parts; credentials and query apart, since they stay unshown."""

    scheme: str
    host: str
    port: int | None
    path: str  # "" or "/v1" or "/prefix/v1", never with a slash at its end
    username: str | None
    password: str | None
    query: tuple[tuple[str, str], ...]

    @property
    def url(self) -> str:
        """What may be shown and kept: without credentials and query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}{self.path}"

    @property
    def basic(self) -> str | None:
        """The credentials as Basic authorization has them (RFC 7617); None without a name."""
        if self.username is None:
            return None
        pair = f"{unquote(self.username)}:{unquote(self.password or '')}"
        return base64.b64encode(pair.encode()).decode()


def with_scheme(url: str) -> str:
    """The URL of a server that is given as host and port alone, as llama.cpp's people write it."""
    return url if "://" in url else f"http://{url}"


def address(source: str, text: str, *, example: str) -> Address:
    """The address in `text`; a path that names an endpoint is cut back to its base.

    Raises UserError, which names `source` and never shows the text, for what is no URL, and for a
    path of another interface.
    """
    parts = _split(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or (
            not parts.hostname.isprintable() or " " in parts.hostname):
        raise UserError(f"{source}: expected a URL such as {example}, found something else; "
                      "begin it with http:// or https://")
    path = parts.path.rstrip("/")
    for suffix in SUFFIXES:
        path = path.removesuffix(suffix)
    for suffix in OTHER_INTERFACES:
        if path.endswith(suffix):
            raise UserError(f"{source}: expected the base URL of an API, such as {example}, found "
                          f"one that ends in {suffix}; cut it there")
    return Address(scheme=parts.scheme, host=parts.hostname, port=parts.port,
                   path=path.rstrip("/"), username=parts.username, password=parts.password,
                   query=tuple(parse_qsl(parts.query, keep_blank_values=True)))


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text.strip())
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, in any spelling that sockets take (127.1, ::1)."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host)
    except ValueError:
        try:
            found = ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return False
    mapped = getattr(found, "ipv4_mapped", None) or found
    return bool(mapped.is_loopback or mapped.is_unspecified)


def proxy_variable(scheme: str, host: str) -> str | None:
    """The environment variable whose proxy a request to that host goes through, if any."""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    name = scheme if scheme in proxies else "all" if "all" in proxies else None
    return name and f"{name.upper()}_PROXY"
