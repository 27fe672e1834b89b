"""What the openai SDK and httpx raise, as a RequestFailed of one line, with a kind and no key."""

from __future__ import annotations

import json
import re
import ssl
from typing import Any, cast

import httpx
import openai

from request_timing.errors import one_line
from request_timing.servers.failures import kind_of, retry_after_s
from request_timing.servers.sanitize import Secrets, hide
from request_timing.servers.timing import RequestFailed
from request_timing.servers.urls import proxy_variable

# All that a request may raise; ValueError is what a decoder raises over bytes that it can't read.
ERRORS = (openai.OpenAIError, httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, ValueError)


def failure(error: Exception, url: httpx.URL, key: Secrets) -> RequestFailed:
    """Any of `ERRORS`, of a request to `url`."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, openai.APIStatusError):
        return refused_with(cast(httpx.Response, error.response), said(error), key)
    kind, message = _kind(error, url)
    return RequestFailed(kind, one_line(hide(message, key)))


def refused_with(response: httpx.Response, text: str, key: Secrets) -> RequestFailed:
    """An answer with an error status; `text` is what it says."""
    status = response.status_code
    html = "html" in response.headers.get("content-type", "")
    kind = kind_of(status, text)
    if 300 <= status < 400:
        moved = response.headers.get("location", "").split("?")[0]
        kind, text = "no_api", f"the address has moved to {moved or 'an address it does not give'}"
    elif kind == "http" and html and status in (404, 405):
        kind = "no_api"
    elif status == 407:
        kind = "proxy"
    asked = retry_after_s({name.lower(): value for name, value in response.headers.items()})
    return RequestFailed(kind, one_line(hide(f"HTTP {status}: {text}", key)), status,
                         retry_after_s=asked)


def said(error: openai.APIError) -> str:
    """What the server says in an error's body, rather than the SDK's rendering of it."""
    if error.body:
        return error_text(error.body)
    response = getattr(error, "response", None)
    return str(getattr(response, "text", "") or error)


def error_text(body: Any) -> str:
    """The words of an error object, in any of its shapes, with the parameter that it names."""
    if isinstance(body, list) and body:
        body = body[0]  # as Gemini has it
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return inner if isinstance(inner, str) else json.dumps(inner)
    text = inner.get("message") or inner.get("detail")
    if not isinstance(text, str):
        return json.dumps(inner)
    named = [f"{name} {inner[name]}" for name in ("param", "code", "type")
             if isinstance(inner.get(name), str) and inner[name] not in text]
    return text + (f" ({', '.join(named)})" if named else "")


def kind_in_answer(error: Any, text: str) -> str:
    """The kind of an error object under HTTP 200 or within a stream: by the status that it names
    as its code, if it does, and by its words."""
    code = str(error.get("code")) if isinstance(error, dict) else ""
    kind = kind_of(int(code) if re.fullmatch("[45][0-9]{2}", code) else None, text)
    return "error_in_answer" if kind == "http" else kind


def _kind(error: Exception, url: httpx.URL) -> tuple[str, str]:
    """The kind and the words of a failure that is no answer."""
    causes = list(_causes(error))
    root = causes[-1]
    words = str(root) or type(root).__name__
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "tls", words
    if any(isinstance(cause, httpx.ProxyError) for cause in causes):
        return "proxy", f"{_proxy(url)}: {words}"
    if any(isinstance(cause, httpx.ConnectTimeout) for cause in causes):
        return "timeout", f"no connection in time{_through(url)}"
    if any(isinstance(cause, httpx.TimeoutException | openai.APITimeoutError) for cause in causes):
        return "stalled", "the server sent nothing for too long"
    if any(isinstance(cause, httpx.ConnectError) for cause in causes):
        kind = ("refused" if isinstance(root, ConnectionRefusedError) or "refused" in words
                else "unknown_host" if _is_unknown_host(root, words) else "unreachable")
        return ("proxy" if _through(url) else kind), words + _through(url)
    if isinstance(root, UnicodeError):
        return "http", f"the request holds a character that cannot be sent: {words}"
    if any(isinstance(cause, httpx.HTTPError | httpx.StreamError | openai.APIConnectionError)
           for cause in causes):
        return "reset", f"the connection broke: {words}"
    if isinstance(error, openai.APIError):
        return kind_of(None, said(error)), said(error)
    return "no_json", f"the answer holds something that is no JSON: {words}"


def _is_unknown_host(root: BaseException, words: str) -> bool:
    return "getaddrinfo" in words or "Name or service" in words or "name resolution" in words or (
        "nodename" in words)


def _proxy(url: httpx.URL) -> str:
    return f"the proxy in {proxy_variable(url.scheme, url.host) or 'the environment'}"


def _through(url: httpx.URL) -> str:
    """Which proxy the way led through, if any: what failed may be that."""
    name = proxy_variable(url.scheme, url.host)
    return f" (through the proxy in {name})" if name else ""


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what led to it, the innermost last: a certificate or a refused port, not
    "Connection error."."""
    found = [error]
    while (inner := found[-1].__cause__ or found[-1].__context__) and inner not in found:
        found.append(inner)
    return found
