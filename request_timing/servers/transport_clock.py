"""The moments that count, taken at httpx's transport, below everything that parses.

When the request's last byte is written, when bytes come in, and what a connection cost: wrappers
around httpx's byte streams and its trace extension.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx

from request_timing.records.sample import Connection
from request_timing.servers.timing import Clock, RequestFailed

DRAIN_TIMEOUT_S = 1.0
# Usage comes at once behind the end of an answer: a server that holds the stream open for longer
# has no more to say.
AFTER_END_S = 10.0


class Wire:
    """What the transport saw of one request."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._sent_at: float | None = None
        self._bytes_at: float | None = None
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
        self._sent_at = self._now()

    def saw_bytes(self) -> None:
        """Bytes of the body are here."""
        self._bytes_at = self._now()

    @property
    def sent_at(self) -> float:
        """When the request's last byte was about to be written."""
        return _known(self._sent_at)

    @property
    def bytes_at(self) -> float:
        """When the last bytes came."""
        return _known(self._bytes_at)

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
            self._wire.saw_bytes()
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


class HeldOpen:
    """Hangs up, so to speak for the server, where it holds a stream open behind its answer's end.

    A context: nothing is hung up on after it. The thread that reads finds the connection broken.
    """

    def __init__(self, response: httpx.Response, after_s: float) -> None:
        self._response = response
        self._after_s = after_s
        self._timer: threading.Timer | None = None

    def __enter__(self) -> HeldOpen:
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_on()

    def ended(self) -> None:
        """The answer says that it has come to its end."""
        if self._timer is None:
            self._timer = threading.Timer(self._after_s, self._hang_up)
            self._timer.daemon = True
            self._timer.start()

    def goes_on(self) -> None:
        """It has not: a piece came behind that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hang_up(self) -> None:
        stream = self._response.extensions.get("network_stream")
        connected = None if stream is None else stream.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):
                # The plain socket's own: that of TLS would take the reader's state away.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _known(moment: float | None) -> float:
    """A moment that the transport must have seen by now."""
    if moment is None:
        raise RequestFailed("no_clock", "the transport saw no bytes of this request")
    return moment
