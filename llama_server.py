"""The wire adapter of a llama-server: its native /completion stream, on the standard library.

Why /completion and not /v1: it takes the prompt as it is, with no chat template in between, and
its last event carries `timings`: cache_n (reused), prompt_n (recomputed), prompt_ms,
predicted_n, predicted_ms. (`tokens_cached`, beside them, is the slot's size after generation and
no reuse.)
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from common import nonces
from experiments import Prompt
from sample import TEXT, Connection, ServerTimings
from timing import (
    End,
    Event,
    FirstByte,
    Note,
    Piece,
    Progress,
    RequestFailed,
    Sent,
    Usage,
    clock,
)
from trouble import Trouble, one_line

CONNECT_TIMEOUT_S = 10.0
# A long prompt on a slow machine takes hours, and a client that hangs up throws the work away.
ANSWER_TIMEOUT_S = 24 * 3600.0
LOADING_POLL_S = 0.5
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What /props says of the server."""

    model: str
    context_tokens: int  # of one slot: the server's -c is shared by its slots
    slots: int
    build: str

    def describe(self) -> str:
        """One line for people."""
        build = "" if "unknown" in self.build else f", build {self.build}"
        return (f"{self.model}: {self.context_tokens:,} tokens of context a slot, "
                f"{self.slots} slot{'s' if self.slots != 1 else ''}{build}")


def sse_payloads(chunks: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The `data:` payloads of a server-sent-event stream, each with its bytes' arrival time.

    Lines are cut in bytes, so no character is ever decoded in halves. Comments, other fields
    and [DONE] are no payloads. A line is dated by the chunk that completed it.
    """
    pending = b""
    for at_s, chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data" and value.strip() not in (b"", b"[DONE]"):
                yield at_s, value.strip()


def events(payloads: Iterator[tuple[float, bytes]]) -> Iterator[Event]:
    """The events of a /completion stream.

    Raises RequestFailed where the server reports an error in the stream.
    """
    for at_s, payload in payloads:
        try:
            data = json.loads(payload)
        except ValueError:
            yield Note(text=f"no_json: a line of the stream is no JSON: {one_line(payload)}")
            continue
        if not isinstance(data, dict):
            continue
        if data.get("error"):
            raise _failure(data, None)
        if "prompt_progress" in data:
            progress = _mapping(data["prompt_progress"])
            done, total = _count(progress.get("processed")), _count(progress.get("total"))
            if done is not None and total is not None:
                yield Progress(processed_tokens=done, total_tokens=total)
        elif data.get("stop"):
            yield from _last(at_s, data)
        else:
            yield _piece(at_s, data)


def _last(at_s: float, data: dict[str, Any]) -> Iterator[Event]:
    """The final event: perhaps a last piece, the counts, the reason it ended."""
    yield _piece(at_s, data)
    timings = _mapping(data.get("timings"))
    prompt_n, evaluated = _count(timings.get("prompt_n")), _count(data.get("tokens_evaluated"))
    reused = _count(timings.get("cache_n"))
    if reused is None and evaluated is not None and prompt_n is not None:
        reused = evaluated - prompt_n  # builds before September 2025 have no cache_n
    if evaluated is None and reused is not None and prompt_n is not None:
        evaluated = reused + prompt_n
    predicted = _count(timings.get("predicted_n", data.get("tokens_predicted")))
    yield Usage(
        prompt_tokens=evaluated, cached_tokens=reused, output_tokens=predicted,
        server=ServerTimings(
            cache_n=reused, prompt_n=prompt_n, prompt_ms=_duration(timings.get("prompt_ms")),
            predicted_n=predicted, predicted_ms=_duration(timings.get("predicted_ms")),
            id_slot=_count(data.get("id_slot")),
        ),
    )
    if data.get("truncated"):
        yield Note(text="truncated: the server cut the prompt or the answer to its context")
    yield End(finish_reason=data.get("stop_type"))


def _piece(at_s: float, data: dict[str, Any]) -> Piece:
    content = data.get("content")
    return Piece(at_s=at_s, kind=TEXT, text=content if isinstance(content, str) else "",
                 tokens_so_far=_count(data.get("tokens_predicted")))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    """A count of tokens, or None where the server sent something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _duration(value: Any) -> float | None:
    """Milliseconds, or None where the server sent something else."""
    valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if valid else None


def _failure(data: Any, status: int | None) -> RequestFailed:
    """What a llama-server's error object says, in one line."""
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return RequestFailed("http", one_line(error), status)
    kind = "context" if error.get("type") == "exceed_context_size_error" else "http"
    return RequestFailed(kind, one_line(error.get("message", error)), status or error.get("code"))


class LlamaServer:
    """One llama-server: what it says of itself, and the requests sent to it.

    `progress` asks the server to report the progress of prefill within the stream.
    Raises Trouble where the URL is none.
    """

    counts_exactly = True
    interleave_arms = False  # one slot holds one prefix, so arms run as blocks

    def __init__(self, url: str, *, progress: bool = False) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host_name, port = parts.hostname, parts.port
        except ValueError:
            host_name = None
        if not host_name or parts.scheme not in ("http", "https"):
            raise Trouble("--url: expected the address of a llama-server such as "
                          "http://127.0.0.1:8080, found something else; correct it")
        self._https = parts.scheme == "https"
        self._host, self._port = host_name, port
        self._base = parts.path.rstrip("/").removesuffix("/v1")  # /completion is not below /v1
        self._headers = {"Content-Type": "application/json"}
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{parts.scheme}://{host}{f':{port}' if port else ''}{self._base}"
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(user).decode()}"
        self._progress = progress
        self._facts: Facts | None = None
        self.head_tokens = 0

    @property
    def facts(self) -> Facts:
        """What /props said; there once `wait_until_ready` has returned."""
        if self._facts is None:
            raise RuntimeError("wait_until_ready comes first")
        return self._facts

    def endpoint(self) -> dict[str, Any]:
        """The server's part of the record."""
        facts = self.facts
        return {"url": self.url, "api": "llama-server /completion", "model": facts.model,
                "context_tokens": facts.context_tokens, "slots": facts.slots,
                "build": facts.build, "head_tokens": self.head_tokens}

    def wait_until_ready(self, say: Callable[[str], None]) -> None:
        """Wait while the model loads, then read /props. Raises Trouble if it is no llama-server."""
        told = False
        while True:
            try:
                status, health = self._get("/health")
            except RequestFailed as failed:
                raise Trouble(
                    f"expected a llama-server at {self.url}, found: {failed}; start one "
                    "(llama-server -m MODEL.gguf -np 1), name it with --url, or try --demo"
                ) from None
            if status != 503 or "loading" not in str(health).lower():
                break
            if not told:
                say(f"{self.url} is still loading its model; waiting")
                told = True
            time.sleep(LOADING_POLL_S)
        status, props = self._get("/props")
        if status in (401, 403):
            raise Trouble(f"{self.url} wants a key (HTTP {status}), which this script cannot give; "
                          "start the server without --api-key")
        generation = props.get("default_generation_settings") if isinstance(props, dict) else None
        if not isinstance(generation, dict) or not isinstance(generation.get("n_ctx"), int):
            raise Trouble(f"expected a llama-server at {self.url}, but its /props (HTTP {status}) "
                          "is not one's; check the port in --url")
        path = str(props.get("model_path") or props.get("model_alias") or "unknown")
        self._facts = Facts(
            model=path.replace("\\", "/").rsplit("/", 1)[-1], context_tokens=generation["n_ctx"],
            slots=props.get("total_slots", 1), build=str(props.get("build_info", "unknown")),
        )
        # Only a BOS token, if any, is the server's own: /completion uses no chat template.
        self.head_tokens = self.count_tokens("")

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` as a prompt, a BOS token included, by the server's own tokenizer."""
        body = {"content": text, "add_special": True}
        with closing(self._connect()) as connection:
            status, data = self._exchange(connection, "POST", "/tokenize", body)
        tokens = data.get("tokens") if isinstance(data, dict) else None
        if status != 200 or not isinstance(tokens, list):
            raise _failure(data, status)
        return len(tokens)

    def warm_up(self) -> None:
        """One short request that is not counted: the server's first costs more than the rest."""
        try:
            for _ in self._complete(next(nonces()), 2):
                pass
        except RequestFailed as failed:
            raise Trouble(f"expected {self.url} to complete a short prompt, found: {failed}; "
                          "look at the server's log") from None

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        """Send the texts of the prompt, joined as they are, and yield what happens."""
        return self._complete("".join(message.text for message in prompt), output_tokens)

    def _complete(self, text: str, output_tokens: int) -> Iterator[Event]:
        body = json.dumps({
            "prompt": text, "n_predict": output_tokens, "stream": True,
            "cache_prompt": True,  # the default only since November 2024
            "n_cache_reuse": 0,  # moved chunks would let a changed beginning hit
            "ignore_eos": True, "return_progress": self._progress,
        }).encode()
        started = clock()
        with closing(self._connect()) as connection:
            opened = Connection(new=True, connect_s=clock() - started)
            with _failures():
                sent_at = self._post(connection, f"{self._base}/completion", body)
                yield Sent(at_s=sent_at, connection=opened)
                response = connection.getresponse()
                yield FirstByte(at_s=clock())
                if response.status != 200:
                    raise _failure(_json(response.read()), response.status)
                yield from events(sse_payloads(_chunks(response)))

    def _post(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> float:
        """Send a request; returns the moment before its last byte was written.

        Before, not after: the server may answer, on a busy machine, before this process runs
        again, and it cannot have begun before the last byte.
        """
        connection.putrequest("POST", path)
        for name, value in (self._headers | {"Content-Length": str(len(body))}).items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(body[:-1])
        sent_at = clock()
        connection.send(body[-1:])
        return sent_at

    def _connect(self) -> http.client.HTTPConnection:
        """A new, open connection. One a request: opening it costs little on a local network, is
        outside the clock, and a connection that idled out can't fail a sample."""
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=CONNECT_TIMEOUT_S)
        with _failures():
            connection.connect()
        connection.sock.settimeout(ANSWER_TIMEOUT_S)
        return connection

    def _get(self, path: str) -> tuple[int, Any]:
        with closing(self._connect()) as connection:
            connection.sock.settimeout(CONNECT_TIMEOUT_S)
            return self._exchange(connection, "GET", path, None)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> tuple[int, Any]:
        with _failures():
            connection.request(method, self._base + path,
                               None if body is None else json.dumps(body).encode(), self._headers)
            response = connection.getresponse()
            return response.status, _json(response.read())


def _chunks(response: http.client.HTTPResponse) -> Iterator[tuple[float, bytes]]:
    """The body as it comes, each chunk dated before anything is parsed."""
    while chunk := response.read1(READ_BYTES):
        yield clock(), chunk


def _json(body: bytes) -> Any:
    """The JSON of a body, or the body itself where it is none."""
    try:
        return json.loads(body)
    except ValueError:
        return body


@contextmanager
def _failures() -> Iterator[None]:
    """Turns what a socket or http.client raises into a RequestFailed of one line."""
    try:
        yield
    except ConnectionRefusedError:
        raise RequestFailed("refused", "nothing listens there (connection refused)") from None
    except TimeoutError:
        raise RequestFailed("timeout", "no answer in time") from None
    except (http.client.IncompleteRead, http.client.RemoteDisconnected):
        raise RequestFailed("connection", "the server closed in mid-answer") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise RequestFailed("connection", one_line(error) or type(error).__name__) from None
