"""The wire adapter of an OpenAI-compatible streaming API, through the openai SDK over httpx.

The SDK builds, authorises and sends the request; its stream is read here byte by byte, so that a
line that is no JSON, or an event without its blank line, costs nothing. The moments that count
are taken at the transport (`transport_clock.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import httpx
import openai

from request_timing.errors import UserError, one_line
from request_timing.servers.backend import ASSISTANT, Prompt
from request_timing.servers.openai_errors import ERRORS, error_text, failure, kind_in_answer
from request_timing.servers.openai_stream import (
    BROKEN_OFF,
    decode,
    error_of,
    finish_reason,
    usage_in_headers,
)
from request_timing.servers.providers import Provider
from request_timing.servers.sanitize import hide, kept_headers, response_cache, secrets
from request_timing.servers.sse import Done, Noise, payloads
from request_timing.servers.timing import (
    Alive,
    Answered,
    Chunk,
    Clock,
    End,
    Event,
    Note,
    RequestFailed,
    Sent,
    Unread,
    Usage,
    clock,
)
from request_timing.servers.transport_clock import (
    AFTER_END_S,
    HeldOpen,
    TimedBytes,
    TimedRequest,
    Wire,
)
from request_timing.servers.urls import Address, is_loopback, proxy_variable

CONNECT_TIMEOUT_S = 15.0
STALL_S = 3600.0
NO_ANSWER = "(no answer)"  # many APIs refuse an empty assistant message
ALTERNATIVES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
STREAM_OPTIONS = {"include_usage": True}
HEAD_BYTES = 2000
OPENAI_HOST = "api.openai.com"
OPENAI_ACCOUNT = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID")


class OpenAIEndpoint:
    """One endpoint, one model, one client: requests go over one connection, kept open."""

    counts_exactly = False
    interleave_arms = True  # a provider keeps many prefixes, and drifts while one measures

    def __init__(
        self, where: Address, *, key: str | None, model: str | None, provider: Provider | None,
        stall_s: float = STALL_S, keeps_models: bool = True,
        transport: httpx.BaseTransport | None = None, now: Clock = clock,
    ) -> None:
        self.head_tokens = 0
        self.tokens_per_char = 0.0  # of filler; set by the calibration
        self.document_tokens_per_char: float | None = None
        self.learnt: list[str] = []  # what the endpoint refused, and what is sent instead
        self.model = model or ""
        self._where = where
        self._keeps_models = keeps_models  # of captured bodies
        self.key = key
        self.secrets = secrets(key, where)
        self.provider = provider or Provider(where.url)
        self._limit = self.provider.limit_parameter
        self._asks_usage = True
        self._now = now
        self._wire = Wire(now)
        try:
            if transport is None and is_loopback(where.host):
                # Keeps the environment's proxies out, and its certificates in.
                transport = httpx.HTTPTransport()
            self._http = httpx.Client(
                timeout=httpx.Timeout(stall_s, connect=CONNECT_TIMEOUT_S),
                transport=transport,
                event_hooks={"request": [self._on_request], "response": [self._on_response]},
            )
        except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:
            variable = ("SSL_CERT_FILE or SSL_CERT_DIR" if isinstance(error, OSError)
                        else proxy_variable(where.scheme, where.host) or "HTTPS_PROXY")
            raise UserError(f"expected a usable value in the variable {variable}, found: "
                          f"{one_line(error)}; correct or unset it") from None
        try:
            httpx.URL(where.url)
        except httpx.InvalidURL as error:
            raise UserError(f"expected a base URL with the name of a host, found one that is none "
                          f"({self.shown(str(error))}); correct it") from None
        self._connect()

    def _connect(self) -> None:
        where = self._where
        host = where.url.split("://", 1)[1]
        user = "" if where.username is None else f"{where.username}:{where.password or ''}@"
        with _no_variables_but(OPENAI_ACCOUNT if where.host == OPENAI_HOST else ()):
            self.client = openai.OpenAI(
                base_url=f"{where.scheme}://{user}{host}", api_key=self.key or "none",
                max_retries=0,
                http_client=cast(Any, self._http),  # newer SDKs name another type, and take this
                # Compression would gather pieces before it lets them go.
                default_headers={"Accept-Encoding": "identity"}, default_query=dict(where.query),
            )

    @property
    def url(self) -> str:
        """Where requests go, as it may be shown."""
        return self._where.url

    def endpoint(self) -> dict[str, Any]:
        """The endpoint's part of the record."""
        return {"url": self.url, "api": "OpenAI chat completions", "model": self.model,
                "head_tokens": self.head_tokens,
                "calibrated_tokens_per_char": self.tokens_per_char,
                "document_tokens_per_char": self.document_tokens_per_char,
                "sent": {"limit_parameter": self._limit,
                         "stream_options": STREAM_OPTIONS if self._asks_usage else None},
                "learnt": self.learnt}

    def count_tokens(self, text: str) -> int:
        """Tokens of a prompt of filler, by the calibration."""
        return round(self.head_tokens + len(text) * self.tokens_per_char)

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        """Send the prompt as chat messages, and yield what happens."""
        messages = [
            {"role": m.role, "content": m.text or NO_ANSWER if m.role == ASSISTANT else m.text}
            for m in prompt
        ]
        yield from self._answered(lambda: self._send(
            {"model": self.model, "messages": messages}, output_tokens))

    def stream_body(self, body: dict[str, Any], output_tokens: int) -> Iterator[Event]:
        """Send a captured chat body as it is, but for the stream and the limit of its output, and
        for one answer."""
        dropped = (*ALTERNATIVES, "stream", "stream_options", "n", *(
            () if self._keeps_models else ("model",)))
        kept = {name: value for name, value in body.items() if name not in dropped}
        yield from self._answered(lambda: self._send(
            kept | {"model": kept.get("model") or self.model}, output_tokens))

    def _answered(self, send: Callable[[], httpx.Response]) -> Iterator[Event]:
        """The events of the answer to a request. Raises RequestFailed."""
        try:
            response = send()
            try:
                yield Sent(at_s=self._wire.sent_at, connection=self._wire.connection)
                headers = kept_headers(response.headers.items(), self.secrets)
                yield Answered(headers=headers)
                if told := response_cache(headers):
                    yield Note(text=f"response_cache: a whole answer, kept from before ({told})")
                counted = usage_in_headers(headers)
                if counted != Usage():
                    yield counted
                self._refuse_other_than_a_stream(response)
                with HeldOpen(response, AFTER_END_S) as watch:
                    yield from self._events(response, watch)
            finally:
                response.close()
        except ERRORS as error:
            raise failure(error, httpx.URL(self.url), self.secrets) from None

    def _events(self, response: httpx.Response, watch: HeldOpen) -> Iterator[Event]:
        """The events of a stream, whose bytes are dated by the transport."""
        reason = None
        chunks = 0
        head = b""

        def dated() -> Iterator[tuple[float, bytes]]:
            nonlocal head
            try:
                for data in response.iter_bytes():
                    head += data[:HEAD_BYTES - len(head)]
                    yield self._wire.bytes_at, data
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.ReadTimeout):
                if reason is None:
                    raise
                # The answer had come to its end; what hung up, or just hung, had no more to say.

        for at_s, data in payloads(dated()):
            if isinstance(data, Done):
                break
            if data is None:
                if reason is None:
                    yield Alive(at_s=at_s)
            elif isinstance(data, Noise):
                yield Unread(text=self.shown(data.text))
            elif isinstance(data, dict):
                if (error := error_of(data)) is not None:
                    text = error_text(error)
                    raise RequestFailed(kind_in_answer(error, text), self.shown(text),
                                        response.status_code)
                chunks += 1
                found = list(decode(data, at_s, self.secrets))
                if any(isinstance(event, Chunk) for event in found):
                    reason = None  # what was named earlier was no end
                    watch.goes_on()
                if (named := finish_reason(data)) is not None:
                    reason = named
                    watch.ended()
                yield from found
        if reason is None:
            if not chunks and head:
                body = self.shown(head.decode("utf-8", "replace"))
                raise RequestFailed("no_json", f"the stream holds no piece of an answer: {body}",
                                    response.status_code)
            raise RequestFailed("incomplete", "the stream ended without a finish_reason")
        if (kind := BROKEN_OFF.get(reason.lower())) is not None:
            raise RequestFailed(kind, "the answer was broken off: it ends with finish_reason "
                                f"{reason.lower()}", response.status_code)
        yield End(finish_reason=self.shown(reason))

    def _send(self, body: dict[str, Any], output_tokens: int) -> httpx.Response:
        """An answer, its head read.

        Not retried, but for one case: the server had closed the kept connection before this
        request came. Nobody read the request then, and it goes out once more, on a clock of its
        own.
        """
        fields = {name: value for name, value in body.items() if name not in ("model", "messages")}
        fields[self._limit] = output_tokens
        if self._asks_usage:
            fields["stream_options"] = STREAM_OPTIONS

        def send() -> httpx.Response:
            self._wire = Wire(self._now)
            stream = self.client.chat.completions.create(
                model=body["model"], messages=body["messages"], stream=True, extra_body=fields,
            )
            return cast(httpx.Response, stream.response)

        try:
            return send()
        except openai.APIConnectionError as error:
            if self._wire.connection.new or not isinstance(
                error.__cause__, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError
            ):
                raise
        return send()

    def adapt(self, failed: RequestFailed) -> bool:
        """Whether something that the endpoint may have refused is now sent otherwise.

        Called between probes, never within a sample. A field is given up where the refusal names
        it, `stream_options` also where the refusal names nothing; each at most once.
        """
        said = str(failed)
        status = failed.failure.http_status
        if failed.failure.kind in ("key", "credit", "rate_limited", "overloaded", "loading",
                                   "context", "unknown_model", "refused"):
            return False
        limit = self._limit
        if limit == self.provider.limit_parameter and re.search(rf"\b{limit}\b", said):
            self._limit = ALTERNATIVES[limit]
            self.learnt.append(f"{limit} was refused: {self._limit} is sent instead")
            return True
        names_it = "stream_options" in said or "include_usage" in said
        if self._asks_usage and (names_it or status in (400, 422)):
            self._asks_usage = False
            self.learnt.append("stream_options was refused: it is not sent, so usage may be "
                               "unknown")
            return True
        has_version = re.search(r"/v\d\w*$", self._where.path)
        if failed.failure.kind in ("no_api", "http") and status in (200, 404, 405) and (
                not has_version):
            self._where = self._where._replace(path=self._where.path + "/v1")
            self._connect()
            self.learnt.append(f"the base URL had no /v1: {self.url} is used")
            return True
        return False

    def _on_request(self, request: httpx.Request) -> None:
        request.extensions["trace"] = self._wire.trace
        request.stream = TimedRequest(request.read(), self._wire)

    def _on_response(self, response: httpx.Response) -> None:
        response.stream = TimedBytes(cast(httpx.SyncByteStream, response.stream), self._wire)

    def _refuse_other_than_a_stream(self, response: httpx.Response) -> None:
        """Raises RequestFailed for an answer in one piece, or a page, under HTTP 200."""
        content_type = response.headers.get("content-type", "")
        if "ndjson" in content_type or not re.search("json|html", content_type):
            return
        body = response.read()
        said = body.decode("utf-8", "replace")
        if "html" in content_type:
            kind, what = "no_api", "an HTML page"
        elif (error := _error_in(body)) is not None:
            said = error_text(error)
            kind, what = kind_in_answer(error, said), "an error"
        else:
            kind, what = "not_streamed", "an answer in one piece"
        raise RequestFailed(kind, f"{what}: {self.shown(said)}", response.status_code)

    def shown(self, text: str) -> str:
        """Foreign text as it may be shown: one line, without the key."""
        return one_line(hide(text, self.secrets))


@contextlib.contextmanager
def _no_variables_but(kept: tuple[str, ...]) -> Iterator[None]:
    """Keeps the SDK from reading headers (a key among them) and accounts from variables that were
    set for another endpoint: it would send them to this one."""
    hidden = {name: os.environ.pop(name) for name in tuple(os.environ)
              if name.startswith("OPENAI_") and name not in kept}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _error_in(body: bytes) -> Any:
    """The error that a body in one piece holds, or None."""
    for _, data in payloads([(0.0, b"data:" + body.replace(b"\r", b" ").replace(b"\n", b" "))]):
        if isinstance(data, dict):
            return error_of(data)
    return None
