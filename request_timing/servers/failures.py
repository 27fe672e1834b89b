"""Why a request fails: the kinds, how they are told apart, and what a person can do about each.

Servers agree on a status at most, and say the rest in words. Both adapters come here with what
they got; a kind is what programs compare, the advice is for people.
"""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

# Every kind that a sample's error may have, and what to do; "" where the message says it all.
ADVICE = {
    "refused": "check that the server runs and that the URL has its port",
    "unknown_host": "check the host name in the URL",
    "unreachable": "check the network, and whether a proxy is needed",
    "reset": "look at the server's log, and at time-outs of anything in between",
    "stalled": "look at the server's log, or allow more with --stall-timeout",
    "timeout": "check the host and port in the URL",
    "tls": "name your certificate authority's file in the variable SSL_CERT_FILE",
    "proxy": "correct the proxy's variable, or add the host to NO_PROXY",
    "key": "check the key, and the variable it is read from (--api-key-env)",
    "credit": "the account is out of credit or quota: top it up",
    "rate_limited": "wait, or allow longer waits with --max-wait",
    "overloaded": "try again later, or allow longer waits with --max-wait",
    "loading": "wait until the model is loaded, or allow longer waits with --max-wait",
    "unknown_model": "choose a model that is there (--model)",
    "not_streamed": "choose a model that streams (--model): without a stream there is no TTFT",
    "context": "give smaller sizes, or the server more context",
    "too_large": "give smaller sizes, or raise the body limit of what is in between",
    "no_api": "check the base URL: it should end where /chat/completions begins",
    "no_json": "check the base URL",
    "error_in_answer": "",
    "incomplete": "",
    "empty": "",
    "no_clock": "",
    "http": "",
}

_CONTEXT = re.compile(
    r"exceed_context_size|context_length_exceeded|context.{0,12}(length|size|window|limit)|"
    r"maximum (allowed )?(context|prompt|input)|prompt.{0,9}too (long|large)|"
    r"too many (input )?tokens|input.{0,9}too long|reduce the length|range of input length|"
    r"exceeds the available context|token count.{0,40}exceeds|exceeded model token limit|"
    r"length of all messages", re.IGNORECASE)
_CREDIT = re.compile(r"insufficient.{0,3}(quota|balance|credit|fund)|exceeded your current quota|"
                     r"billing|payment required|out of credit|add credits|"
                     r"balance.{0,12}(insufficient|too low|exhausted)", re.IGNORECASE)
_LIMITED = re.compile(r"rate.?limit|too many requests|resource.?exhausted", re.IGNORECASE)
_OVERLOADED = re.compile(r"overloaded", re.IGNORECASE)
_MODEL = re.compile(r"model.{0,80}(not found|does not exist|not exist|unknown|no such)|"
                    r"(unknown|invalid|no such|unsupported) model|model_not_found",
                    re.IGNORECASE | re.DOTALL)
_MODEL_REFUSED = re.compile(r"model.{0,80}not (supported|available)", re.IGNORECASE | re.DOTALL)
_PARAMETER = re.compile(r"parameter|argument|field|stream_options|max_(completion_)?tokens",
                        re.IGNORECASE)
_LOADING = re.compile(r"loading model|model.{0,20}loading", re.IGNORECASE)
_STREAM = re.compile(r"\bstream(ing|ed)?\b(?!_)", re.IGNORECASE)
_REFUSES = re.compile(r"not support|unsupported|not allowed|not available|cannot|can't|must be "
                      r"false|disabled", re.IGNORECASE)


def kind_of(status: int | None, said: str) -> str:
    """The kind of an error that a server answered with: by its words, then by its status.

    status: of HTTP, or None for an error object under HTTP 200 or within a stream.
    """
    if status == 401 or (status == 403 and not _CREDIT.search(said)):
        return "key"
    if status == 402 or _CREDIT.search(said):
        return "credit"  # also of 429: waiting would not help
    if _CONTEXT.search(said) and status in (None, 400, 413, 422, 500):
        return "context"
    if status in (413, 429):
        return "too_large" if status == 413 else "rate_limited"
    if status in (503, 529):
        return "loading" if _LOADING.search(said) else "overloaded"
    if status is None and _LIMITED.search(said):
        return "rate_limited"
    if status is None and _OVERLOADED.search(said):
        return "overloaded"
    if _STREAM.search(said) and _REFUSES.search(said) and status in (None, 400, 404, 405, 422, 501):
        return "not_streamed"
    if status in (None, 400, 404, 422) and (_MODEL.search(said) or (
            _MODEL_REFUSED.search(said) and not _PARAMETER.search(said))):
        return "unknown_model"
    return "http" if status is not None else "error_in_answer"


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that an answer asks to wait: Retry-After in seconds or as an HTTP date (RFC 9110,
    10.2.3; counted from the answer's own Date), or retry-after-ms; None where it asks for none.

    `headers` has its names in lower case.
    """
    for name, divisor in (("retry-after-ms", 1000), ("retry-after", 1)):
        if (seconds := _number(headers.get(name), divisor)) is not None:
            return seconds
    until = _date(headers.get("retry-after"))
    if until is None:
        return None
    start = _date(headers.get("date")) or now or datetime.now(UTC)
    return max(0.0, (until - start).total_seconds())


def _number(text: str | None, divisor: int) -> float | None:
    try:
        value = float(text or "") / divisor
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _date(text: str | None) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
