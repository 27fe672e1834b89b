"""The wire adapter of an OpenAI-compatible streaming API, through the openai SDK over httpx.

The SDK sends, parses and types; the two moments that count are taken below it, at the transport:
when the request's last byte is written and when bytes come in, before they are parsed. Both are
wrappers around httpx's byte streams; what a connection cost comes from its trace extension.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx
import openai

from common import filler, nonces
from experiments import ASSISTANT, USER, Message, Prompt
from openai_stream import decode, finish_reason
from plan import CALIBRATION_OUTPUT_TOKENS
from providers import Provider
from sample import Connection
from timing import Clock, End, Event, FirstByte, RequestFailed, Sent, Usage, clock, merged
from trouble import Trouble, one_line

CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 3600.0  # between two pieces; the first may wait for a long prefill
DRAIN_TIMEOUT_S = 1.0
HEAD_BYTES = 500
TOKENS_PER_CHAR = 0.1, 1.5  # of filler, for any tokenizer from words to bytes
# Filler's characters a token where no usage is reported: of SmolLM2's tokenizer, measured.
FILLER_CHARS_PER_TOKEN = 2.5
NO_ANSWER = "(no answer)"  # many APIs refuse an empty assistant message


class Wire:
    """What the transport saw of one request."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self.sent_at: float | None = None
        self.first_byte_at: float | None = None
        self.bytes_at: float | None = None
        self.head = b""  # of the body, to show where it is no stream
        self._started: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def trace(self, name: str, info: Any) -> None:
        """httpcore's trace callback: `http11.send_request_body.complete` and the like."""
        if name.endswith(".started"):
            self._started[name.removesuffix(".started")] = self._now()
        elif name.endswith(".complete"):
            step = name.removesuffix(".complete")
            self._took[step] = self._now() - self._started.get(step, self._now())

    def sends_last_byte(self) -> None:
        """The request's last byte is about to be written."""
        self.sent_at = self._now()

    def saw_bytes(self, data: bytes) -> None:
        """Bytes of the body are here."""
        self.bytes_at = self._now()
        if self.first_byte_at is None:
            self.first_byte_at = self.bytes_at
        self.head += data[:HEAD_BYTES - len(self.head)]

    @property
    def connection(self) -> Connection:
        """Whether the request opened a connection, and what that cost."""
        connect_s = self._took.get("connection.connect_tcp")
        return Connection(new=connect_s is not None, connect_s=connect_s,
                          tls_s=self._took.get("connection.start_tls"))


class TimedRequest(httpx.SyncByteStream):
    """A request's body, whose last byte goes by itself and is dated just before it is written.

    Before, not after: the server may answer, on a busy machine, before this process runs again,
    and it cannot have begun before the last byte.
    """

    def __init__(self, body: bytes, wire: Wire) -> None:
        self._body = body
        self._wire = wire

    def __iter__(self) -> Iterator[bytes]:
        yield self._body[:-1]
        self._wire.sends_last_byte()
        yield self._body[-1:]


class TimedBytes(httpx.SyncByteStream):
    """A response's bytes, dated as they pass, and read to their end when closed.

    The SDK closes the stream at [DONE], one step before its end; left at that, httpcore drops
    the connection, and the next request pays for a new one.
    """

    def __init__(self, inner: httpx.SyncByteStream, wire: Wire) -> None:
        self._inner = inner
        self._bytes = iter(inner)
        self._wire = wire

    def __iter__(self) -> Iterator[bytes]:
        for data in self._bytes:
            self._wire.saw_bytes(data)
            yield data

    def close(self) -> None:
        """Read what is left, but not from a server that holds the stream open; then close."""
        drain = threading.Thread(target=self._drain, daemon=True)
        drain.start()
        drain.join(DRAIN_TIMEOUT_S)
        self._inner.close()

    def _drain(self) -> None:
        try:
            for _ in self._bytes:
                pass
        except (httpx.HTTPError, httpx.StreamError, ValueError):
            pass  # the answer is complete; the next request opens a new connection


class OpenAIEndpoint:
    """One endpoint, one model, one client: requests go over one connection, kept open."""

    counts_exactly = False
    interleave_arms = True  # a provider keeps many prefixes, and drifts while one measures

    def __init__(
        self, base_url: str, *, key: str | None, model: str | None, provider: Provider | None,
        transport: httpx.BaseTransport | None = None, now: Clock = clock,
    ) -> None:
        self.head_tokens = 0
        self._tokens_per_char = 1 / FILLER_CHARS_PER_TOKEN
        self._key = key
        self._provider = provider or Provider(base_url)
        self._now = now
        self._wire = Wire(now)
        # Proxies of the environment are for hosts elsewhere, never for this machine.
        url = httpx.URL(base_url)
        self.url = str(url.copy_with(username=None, password=None, query=None))
        self._http = httpx.Client(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=not _is_loopback(url.host), follow_redirects=True, transport=transport,
            event_hooks={"request": [self._on_request], "response": [self._on_response]},
        )
        self._client = openai.OpenAI(
            base_url=base_url, api_key=key or "none", max_retries=0,
            http_client=cast(Any, self._http),  # newer SDKs name another type, and take this one
            # Compression would gather pieces before it lets them go.
            default_headers={"Accept-Encoding": "identity"},
        )
        self.model = model or ""
        self.model = model or self._only_model()

    def endpoint(self) -> dict[str, Any]:
        """The endpoint's part of the record."""
        return {"url": self.url, "api": "OpenAI chat completions", "model": self.model,
                "head_tokens": self.head_tokens,
                "calibrated_tokens_per_char": self._tokens_per_char,
                "sent": {"limit_parameter": self._provider.limit_parameter,
                         "stream_options": {"include_usage": True}}}

    def calibrate(self, words: tuple[int, int]) -> str | None:
        """Two requests of so many words, not counted: to warm up, and to learn tokens a character.

        Returns a note where no usage was reported. Raises Trouble where the endpoint does not
        answer: nothing could be measured.
        """
        points: list[tuple[int, int]] = []
        nonce = nonces()
        for size in words:
            text = f"{next(nonce)}.\n{filler(size, size)}"
            usage = Usage()
            try:
                for event in self.stream((Message(USER, text),), CALIBRATION_OUTPUT_TOKENS):
                    if isinstance(event, Usage):
                        usage = merged(usage, event)
            except RequestFailed as failed:
                raise Trouble(f"{self.url}, model {self.model}: expected a streamed answer, "
                              f"found: {failed}; {self._advice(failed)}") from None
            if not usage.prompt_tokens:
                return ("the endpoint reports no usage: sizes are estimated at "
                        f"{FILLER_CHARS_PER_TOKEN} characters a token")
            points.append((len(text), usage.prompt_tokens))
        (short_chars, short), (long_chars, long) = points
        per_char = (long - short) / (long_chars - short_chars)
        if not TOKENS_PER_CHAR[0] <= per_char <= TOKENS_PER_CHAR[1]:
            return ("the endpoint's usage does not grow with the prompt as tokens do: sizes are "
                    f"estimated at {FILLER_CHARS_PER_TOKEN} characters a token")
        self._tokens_per_char = per_char
        self.head_tokens = max(0, round(short - short_chars * per_char))
        return None

    def count_tokens(self, text: str) -> int:
        """Tokens of a prompt of filler, by the calibration."""
        return round(self.head_tokens + len(text) * self._tokens_per_char)

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        """Send the prompt as chat messages, and yield what happens."""
        messages = [
            {"role": m.role, "content": m.text or NO_ANSWER if m.role == ASSISTANT else m.text}
            for m in prompt
        ]
        reason = None
        had_chunk = False
        try:
            chunks = self._send(messages, output_tokens)
            yield Sent(at_s=_known(self._wire.sent_at), connection=self._wire.connection)
            self._refuse_other_than_a_stream(chunks.response)
            for number, chunk in enumerate(chunks):
                if number == 0:
                    yield FirstByte(at_s=_known(self._wire.first_byte_at))
                # `data: null` and the like are no chunks, and the SDK passes them on as they are.
                data = chunk.to_dict(warnings=False) if hasattr(chunk, "to_dict") else {}
                had_chunk = True
                reason = finish_reason(data) or reason
                yield from decode(data, _known(self._wire.bytes_at))
        except (openai.OpenAIError, httpx.HTTPError, httpx.StreamError, ValueError) as error:
            raise self._failure(error) from None
        if reason is None:
            message = "the stream ended without a finish_reason"
            if not had_chunk:
                body = self._wire.head.decode("utf-8", "replace")
                message += f", and holds no chunk: {self._without_key(body)}"
            raise RequestFailed("incomplete", one_line(message))
        yield End(finish_reason=self._without_key(reason))

    def _send(self, messages: list[dict[str, str]], output_tokens: int) -> Any:
        """The stream of an answer, its headers read.

        Not retried, but for one case: the server had closed the kept connection before this
        request came. Nobody read the request then, and it goes out once more, on a clock of its
        own.
        """

        def send() -> Any:
            self._wire = Wire(self._now)
            return self._client.chat.completions.create(
                model=self.model, messages=cast(Any, messages), stream=True,
                stream_options={"include_usage": True},
                extra_body={self._provider.limit_parameter: output_tokens},
            )

        try:
            return send()
        except openai.APIConnectionError as error:
            if self._wire.connection.new or not isinstance(
                error.__cause__, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError
            ):
                raise
        return send()

    def _on_request(self, request: httpx.Request) -> None:
        request.extensions["trace"] = self._wire.trace
        request.stream = TimedRequest(request.read(), self._wire)

    def _on_response(self, response: httpx.Response) -> None:
        response.stream = TimedBytes(cast(httpx.SyncByteStream, response.stream), self._wire)

    def _refuse_other_than_a_stream(self, response: Any) -> None:
        """Raises RequestFailed for an answer in one piece, or a page, under HTTP 200."""
        content_type = response.headers.get("content-type", "")
        if "json" in content_type or "html" in content_type:
            body = one_line(self._without_key(response.read().decode("utf-8", "replace")))
            kind, what = (("no_api", "an HTML page") if "html" in content_type
                          else ("error", "an error") if '"error"' in body
                          else ("not_streamed", "an answer in one piece"))
            raise RequestFailed(kind, f"{what}: {body}", response.status_code)

    def _failure(self, error: Exception) -> RequestFailed:
        """Any error of the SDK or of httpx, in one line, without the key."""
        status = error.status_code if isinstance(error, openai.APIStatusError) else None
        if status is not None:
            kind, message = "http", f"HTTP {status}: {_said(error)}"
        elif isinstance(error, openai.APITimeoutError | httpx.TimeoutException):
            kind, message = "timeout", "no answer in time"
        elif isinstance(error, openai.APIConnectionError | httpx.HTTPError):
            kind, message = "connection", _root_cause(error)
        elif isinstance(error, openai.APIError):
            kind, message = "error_in_stream", _said(error)
        else:
            kind, message = "no_json", f"the stream holds something that is no JSON: {error}"
        return RequestFailed(kind, one_line(self._without_key(message)), status)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def _advice(self, failed: RequestFailed) -> str:
        """What to do about a first request that failed."""
        kind, status = failed.failure.kind, failed.failure.http_status
        works = " and ".join(self._provider.streaming_models)
        if status in (401, 403):
            variable = self._provider.key_variable
            return (f"check the key in {variable}" if variable else
                    "name the variable that holds its key with --api-key-env")
        refused = kind == "http" and status != 429 and (
            self.model.startswith(self._provider.not_streaming)
            or re.search(r"\bstream(ing|ed)?\b", str(failed), re.IGNORECASE))
        if kind == "not_streamed" or refused:
            return (f"the model {self.model} does not stream here, and without a stream there is "
                    f"no TTFT; choose one that does{f': {works}' if works else ''} (--model)")
        if kind == "connection":
            return "check that the server runs and the base URL is right, or try --demo"
        return ("check the model (--model) and the base URL"
                + (f"; the models that stream here: {works}" if works and status == 404 else ""))

    def _only_model(self) -> str:
        """The one model that the endpoint lists; Trouble where there are several, or no list."""
        try:
            names = [str(model.id) for model in self._client.models.list()]
        except (AttributeError, TypeError):  # what the SDK makes of a page or a bare list
            raise Trouble(f"expected an OpenAI-compatible API at {self.url}, found one that lists "
                          "no models; check the base URL, or name the model with --model"
                          ) from None
        except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
            failed = self._failure(error)
            raise Trouble(f"expected an OpenAI-compatible API at {self.url}, found: {failed}; "
                          f"{self._advice(failed)}, or name the model with --model") from None
        if len(names) == 1:
            return names[0]
        shown = self._without_key(", ".join(names[:10])) + (" ..." if len(names) > 10 else "")
        raise Trouble(f"--model: expected a model's name, found none; {self.url} lists "
                      f"{len(names)}: {shown or 'no model'}")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _known(moment: float | None) -> float:
    """A moment that the transport must have seen by now."""
    if moment is None:
        raise RequestFailed("no_clock", "the transport saw no bytes of this request")
    return moment


def _said(error: Exception) -> str:
    """What the server says in an error's body, rather than the SDK's rendering of it."""
    body = getattr(error, "body", None)
    if isinstance(body, str) and body:
        return body
    if isinstance(body, dict):
        inner = body.get("error", body)
        text = inner.get("message") if isinstance(inner, dict) else inner
        return str(text or json.dumps(body))
    response = getattr(error, "response", None)
    return str(getattr(response, "text", "") or error)


def _root_cause(error: BaseException) -> str:
    """The innermost cause: a certificate or a refused port, not "Connection error."."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error) or type(error).__name__
