"""A small HTTP server that stands for a cloud provider, which no test can have.

It speaks HTTP/1.1 with kept connections and chunked bodies, answers a request from a script or
with an OpenAI-style stream of its own, and remembers all that it was asked. Its token counts are
known: a head, and so many characters a token.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENDLESS_PAUSE_S = 0.05
EVENT_STREAM = "text/event-stream"

# How an answer ends.
WHOLE = "whole"  # properly, and the connection is kept
CUT = "cut"  # in mid-body, with no terminating chunk
HANGS_UP = "hangs_up"  # properly, and then the server closes the connection unannounced
SILENT = "silent"  # not a byte: the request is taken, the connection closed
ENDLESS = "endless"  # the body's parts, again and again, as long as the client waits
RESET = "reset"  # in mid-body, with a TCP reset
STALLED = "stalled"  # in mid-body, and the connection stays open, with nothing more to come


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server says to one request; each part of the body is a chunk of its own, a number
    is a pause of so many seconds. No header is sent but those named."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": EVENT_STREAM})
    body: tuple[bytes | float, ...] = ()
    ends: str = WHOLE


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it came; `connection` counts the connections from 1."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: Any
    connection: int

    @property
    def is_chat(self) -> bool:
        """Whether it asks for an answer."""
        return self.path.partition("?")[0].endswith("/chat/completions")

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat messages."""
        messages: list[dict[str, str]] = self.body["messages"]
        return messages

    @property
    def prompt_chars(self) -> int:
        """Characters of all messages."""
        return sum(len(message["content"]) for message in self.messages)


def sse(data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def piece(finish: str | None = None, **delta: Any) -> bytes:
    """One chunk of a streamed chat completion."""
    return sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stub",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def said(content_type: str, text: str, status: int = 200) -> Answer:
    """An answer in one piece."""
    return Answer(status=status, headers={"Content-Type": content_type}, body=(text.encode(),))


def refused(status: int, message: str) -> Answer:
    """An error object, as OpenAI-compatible servers send it."""
    return said("application/json", json.dumps({"error": {"message": message}}), status)


DONE = b"data: [DONE]\n\n"


@dataclass(kw_only=True)
class Stub:
    """The server's manners, and what it has seen so far.

    script: the answers to the first chat requests, None for the stub's own; then: the answer to
    all later ones, and with `everywhere` to any request; ends: how the answer to a chat request,
    by its number from 0, ends otherwise than it would. head_tokens and chars_per_token are the
    stub's tokenizer; with reports_usage false it counts for itself alone.
    """

    script: Sequence[Answer | None] = ()
    then: Answer | None = None
    ends: Mapping[int, str] = field(default_factory=dict)
    head_tokens: int = 10
    chars_per_token: float = 4.0
    reports_usage: bool = True
    models: Sequence[str] = ("stub",)
    everywhere: bool = False
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)  # the texts of the stub's own answers
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def chats(self) -> list[Asked]:
        """The chat requests, in order."""
        return [request for request in self.asked if request.is_chat]

    def tokens(self, request: Asked) -> int:
        """The prompt's tokens, by the stub's own tokenizer."""
        return self.head_tokens + round(request.prompt_chars / self.chars_per_token)

    def answer(self, request: Asked) -> Answer:
        """What the request is told; called once for each, in order."""
        if self.everywhere and self.then is not None:
            return self.then
        if not request.is_chat:
            listed = {"object": "list", "data": [
                {"id": name, "object": "model", "created": 1, "owned_by": "stub"}
                for name in self.models]}
            return said("application/json", json.dumps(listed))
        number = len(self.chats) - 1
        scripted = self.script[number] if number < len(self.script) else self.then
        given = scripted or self._streamed(number, request)
        return replace(given, ends=self.ends.get(number, given.ends))

    def _streamed(self, number: int, request: Asked) -> Answer:
        """As many one-token pieces as were asked for, after a chunk that has only a role."""
        tokens = request.body.get("max_tokens") or request.body["max_completion_tokens"]
        words = [f"a{number}w{n} " for n in range(tokens)]
        self.answers.append("".join(words))
        usage = {"id": "c", "choices": [], "usage": {
            "prompt_tokens": self.tokens(request), "completion_tokens": tokens,
            "total_tokens": self.tokens(request) + tokens,
            "prompt_tokens_details": {"cached_tokens": 0}}}
        return Answer(body=(
            piece(role="assistant", content=None), *(piece(content=word) for word in words),
            piece(finish="length"), *([sse(usage)] if self.reports_usage else []), DONE))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stub: Stub

    def setup(self) -> None:
        super().setup()
        with self.stub.lock:
            self.stub.connections += 1
            self._connection_number = self.stub.connections

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self._respond(json.loads(data))

    def _respond(self, body: Any) -> None:
        with self.stub.lock:
            request = Asked(method=self.command, path=self.path, body=body,
                            headers={name.lower(): value for name, value in self.headers.items()},
                            connection=self._connection_number)
            self.stub.asked.append(request)
            answer = self.stub.answer(request)
        self.close_connection = answer.ends != WHOLE
        if answer.ends == SILENT:
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in answer.body:
            if isinstance(part, bytes):
                self._write(part)
            else:
                time.sleep(part)
        if answer.ends == RESET:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            os.close(self.connection.detach())
        elif answer.ends == STALLED:
            self.rfile.read(1)  # until the client gives up
        elif answer.ends == ENDLESS:
            with contextlib.suppress(OSError):  # the client leaves
                while True:
                    time.sleep(ENDLESS_PAUSE_S)
                    self._write(b"".join(p for p in answer.body if isinstance(p, bytes)))
        elif answer.ends != CUT:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def finish(self) -> None:
        super().finish()
        # Tells a client in the middle of a body at once, whoever else holds the socket.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what was asked is in `asked`."""


class _Server(ThreadingHTTPServer):
    """Says nothing of a client that resets its connection: that is the client's right."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextlib.contextmanager
def wire_stub(kind: type[Stub] = Stub, tls: ssl.SSLContext | None = None, **manners: Any
              ) -> Iterator[Stub]:
    """A stub that serves on a free port, at `url` (its /v1), as long as the context lasts."""
    stub = kind(**manners)
    handler = type("Handler", (_Handler,), {"stub": stub})
    server = _Server(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stub.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
