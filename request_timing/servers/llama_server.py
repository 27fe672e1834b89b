"""The wire adapter of a llama-server: its native /completion stream, on the standard library.

Why /completion and not /v1: it takes the prompt as it is, with no chat template in between, and
its last event carries the server's own counts (`llama_stream.py`).
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from request_timing.errors import UserError, one_line
from request_timing.prompts.as_chat import as_chat
from request_timing.prompts.filler import nonces
from request_timing.records.sample import Connection
from request_timing.servers.backend import Prompt
from request_timing.servers.llama_stream import events, failure
from request_timing.servers.patience import Patience
from request_timing.servers.sanitize import hide, kept_headers, secrets
from request_timing.servers.sse import payloads
from request_timing.servers.timing import (
    Answered,
    Event,
    RequestFailed,
    Sent,
    clock,
)
from request_timing.servers.urls import address, with_scheme
from request_timing.untrusted import mapping, token_count

CONNECT_TIMEOUT_S = 10.0
STALL_S = 24 * 3600.0
LOADING_POLL_S = 0.5
READ_BYTES = 1 << 16
EXAMPLE_URL = "http://127.0.0.1:8080"
MOST_MODELS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What /props says of the server."""

    model: str
    context_tokens: int | None  # of one slot: the server's -c is shared by its slots
    slots: int | None
    build: str

    def describe(self) -> str:
        """One line for people."""
        build = "" if "unknown" in self.build else f", build {self.build}"
        if self.context_tokens is None:
            return f"{self.model}: it does not say how much context and how many slots it has"
        slots = "" if self.slots is None else f", {self.slots} slot{'s' * (self.slots != 1)}"
        return f"{self.model}: {self.context_tokens:,} tokens of context a slot{slots}{build}"


class LlamaServer:
    """One llama-server: what it says of itself, and the requests sent to it.

    `model` is passed along with every request, for a server that routes to several; `progress`
    asks the server to report the progress of prefill within the stream. Raises UserError where the
    URL is none.
    """

    counts_exactly = True
    interleave_arms = False  # one slot holds one prefix, so arms run as blocks

    def __init__(self, url: str, *, stall_s: float = STALL_S, key: str | None = None,
                 model: str | None = None, progress: bool = False) -> None:
        where = address("--url", with_scheme(url), example=EXAMPLE_URL)
        # The native interface is not below /v1.
        where = where._replace(path=where.path.removesuffix("/v1"))
        self._where = where
        self.url = where.url
        self._stall_s = stall_s
        self._secrets = secrets(key, where)
        self._model = model
        self._progress = progress
        self._facts: Facts | None = None
        self._headers = {"Content-Type": "application/json"}
        if (basic := where.basic) is not None:
            self._headers["Authorization"] = f"Basic {basic}"
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
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

    def wait_until_ready(self, say: Callable[[str], None], patience: Patience) -> None:
        """Wait while the model loads, then read /props. Raises UserError where it cannot."""
        told = False
        while True:
            try:
                status, health = self._get("/health")
            except RequestFailed as failed:
                raise UserError(
                    f"expected a llama-server at {self.url}, found: {failed}; start one "
                    "(llama-server -m MODEL.gguf -np 1), name it with --url, or try --demo"
                ) from None
            if status != 503 or "loading" not in str(health).lower():
                break
            if not told:
                say(f"{self.url} is still loading its model; waiting")
                told = True
            time.sleep(LOADING_POLL_S)
        self._facts = self._read_facts()
        # Only a BOS token, if any, is the server's own: /completion uses no chat template.
        self.head_tokens = patience.call(lambda: self.count_tokens(""))

    def _read_facts(self) -> Facts:
        status, props = self._get("/props")
        if status in (401, 403):
            raise UserError(f"{self.url} wants a key (HTTP {status}); name the variable that holds "
                          "it with --api-key-env")
        if mapping(props).get("role") == "router" and self._model is None:
            self._model = self._only_model()
            status, props = self._get("/props")
        told = mapping(props)
        generation = mapping(told.get("default_generation_settings"))
        if not generation and not (self._model and status in (400, 404, 501)):
            raise UserError(
                f"expected a llama-server at {self.url}, but its /props (HTTP {status}) "
                "is not one's; check the port in --url"
            )
        path = str(told.get("model_path") or told.get("model_alias") or self._model or "unknown")
        return Facts(
            model=one_line(hide(path.replace("\\", "/").rsplit("/", 1)[-1], self._secrets)),
            context_tokens=token_count(generation.get("n_ctx")) or None,  # a router says 0
            slots=token_count(told.get("total_slots")) or None,
            build=one_line(hide(str(told.get("build_info", "unknown")), self._secrets)),
        )

    def _only_model(self) -> str:
        """The one model of a router; UserError, with the list, where there are several or none."""
        _, listed = self._get("/models")
        rows = mapping(listed).get("data")
        rows = rows if isinstance(rows, list) else []
        names = [one_line(mapping(row).get("id")) for row in rows]
        if len(names) == 1:
            return names[0]
        shown = ", ".join(names[:MOST_MODELS]) + (" ..." if len(names) > MOST_MODELS else "")
        raise UserError(f"--model: {self.url} routes to several models, expected the name of one, "
                      f"found none; there are {len(names)}: {shown or 'no model'}")

    def count_tokens(self, text: str) -> int:
        """How many tokens `text` has as a prompt, a BOS token included, by the server's own
        tokenizer."""
        return len(self._tokens(text))

    def _tokens(self, text: str) -> list[int]:
        body = {"content": text, "add_special": True}
        with closing(self._connect()) as connection:
            status, data = self._exchange(connection, "POST", "/tokenize", body)
        tokens = data.get("tokens") if isinstance(data, dict) else None
        if status != 200 or not isinstance(tokens, list):
            raise failure(data, status, key=self._secrets)
        return tokens

    def slot_action(self, slot: int, action: str, filename: str) -> dict[str, Any]:
        """Save a slot to a file of the server's --slot-save-path, or restore it from there.

        action: "save" or "restore"; returns what the server says: n_saved and n_written, or
        n_restored and n_read (tokens and bytes). Raises RequestFailed where it cannot: a server
        without --slot-save-path answers with HTTP 501.
        """
        with closing(self._connect()) as connection:
            status, data = self._exchange(connection, "POST", f"/slots/{slot}?action={action}",
                                          {"filename": filename})
        if status != 200:
            raise failure(data, status, key=self._secrets)
        return mapping(data)

    def warm_up(self, patience: Patience) -> None:
        """One short request that is not counted: the server's first costs more than the rest."""
        try:
            patience.call(lambda: list(self._complete(next(nonces()), 2)))
        except RequestFailed as failed:
            raise UserError(f"expected {self.url} to complete a short prompt, found: {failed}; "
                          "look at the server's log") from None

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        """Send the texts of the prompt, joined as they are, and yield what happens."""
        return self._complete("".join(message.text for message in prompt), output_tokens)

    def prompt_tokens(self, body: str | dict[str, Any], opening: str
                      ) -> tuple[str, Sequence[int]]:
        """A captured prompt as the server makes it: an opening and the chat template's text, and
        their tokens.

        Raises RequestFailed where the server can't apply its template to it.
        """
        text = opening + (body if isinstance(body, str) else self._applied(as_chat(body)))
        return text, self._tokens(text)

    def _applied(self, body: dict[str, Any]) -> str:
        """The prompt that the server's chat template makes of messages and tools."""
        with closing(self._connect()) as connection:
            status, data = self._exchange(connection, "POST", "/apply-template", body)
        prompt = mapping(data).get("prompt")
        if status != 200 or not isinstance(prompt, str):
            raise failure(data, status, key=self._secrets)
        return prompt

    def _complete(self, text: str, output_tokens: int) -> Iterator[Event]:
        body = json.dumps(self._routed({
            "prompt": text, "n_predict": output_tokens, "stream": True,
            "cache_prompt": True,  # the default only since November 2024
            "n_cache_reuse": 0,  # moved chunks would let a changed beginning hit
            "ignore_eos": True, "return_progress": self._progress,
        })).encode()
        started = clock()
        with closing(self._connect()) as connection:
            opened = Connection(new=True, connect_s=clock() - started)
            with self._failures():
                sent_at = self._post(connection, f"{self._where.path}/completion", body)
                yield Sent(at_s=sent_at, connection=opened)
                response = connection.getresponse()
                headers = {name.lower(): value for name, value in response.getheaders()}
                yield Answered(headers=kept_headers(response.getheaders(), self._secrets))
                if response.status != 200:
                    raise failure(_json(response.read()), response.status, headers,
                                  key=self._secrets)
                yield from events(payloads(_chunks(response)), self._secrets)

    def _routed(self, body: dict[str, Any]) -> dict[str, Any]:
        return body if self._model is None else body | {"model": self._model}

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
        where = self._where
        kind = (http.client.HTTPSConnection if where.scheme == "https"
                else http.client.HTTPConnection)
        connection = kind(where.host, where.port, timeout=CONNECT_TIMEOUT_S)
        with self._failures(connecting=True):
            connection.connect()
        connection.sock.settimeout(self._stall_s)
        return connection

    def _get(self, path: str) -> tuple[int, Any]:
        with closing(self._connect()) as connection:
            connection.sock.settimeout(CONNECT_TIMEOUT_S)
            query = "" if self._model is None else f"?model={quote(self._model, safe='')}"
            return self._exchange(connection, "GET", path + query, None)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> tuple[int, Any]:
        with self._failures():
            data = None if body is None else json.dumps(self._routed(body)).encode()
            connection.request(method, self._where.path + path, data, self._headers)
            response = connection.getresponse()
            return response.status, _json(response.read())

    @contextmanager
    def _failures(self, *, connecting: bool = False) -> Iterator[None]:
        """Turns what a socket or http.client raises into a RequestFailed of one line, no key."""
        try:
            yield
        except RequestFailed as failed:
            known = failed.failure
            if (message := hide(known.message, self._secrets)) != known.message:
                raise RequestFailed(known.kind, message, known.http_status,
                                    retry_after_s=known.retry_after_s) from None
            raise
        except ConnectionRefusedError:
            raise RequestFailed("refused", "nothing listens there (connection refused)") from None
        except ssl.SSLError as error:
            raise RequestFailed("tls", one_line(error)) from None
        except socket.gaierror as error:
            raise RequestFailed("unknown_host", one_line(error.strerror)) from None
        except TimeoutError:
            raise RequestFailed(*(("timeout", "no connection in time") if connecting else (
                "stalled", "the server sent nothing for too long"))) from None
        except (http.client.IncompleteRead, http.client.RemoteDisconnected):
            raise RequestFailed("reset", "the server closed in mid-answer") from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            kind = "unreachable" if connecting else "reset"
            raise RequestFailed(kind, one_line(error) or type(error).__name__) from None


def _chunks(response: http.client.HTTPResponse) -> Iterator[tuple[float, bytes]]:
    """The body as it comes, each chunk dated before anything is parsed."""
    while chunk := response.read1(READ_BYTES):
        yield clock(), chunk


def _json(body: bytes) -> Any:
    """The JSON of a body, or the body itself where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body
