"""A recorder in a process of its own, as a person runs it, and the sockets on both its sides."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conftest import ROOT, TIME_LIMIT_S, environment

KEY = "sk-a1b2c3d4e5f6"
CHAT = "/v1/chat/completions"
END = b"0\r\n\r\n"

# What a command line does with `serve`: its lines go to stderr, and so does one line of UserError.
PROGRAM = """
import sys
from pathlib import Path
from request_timing.cli import flags
from request_timing.recorder import record as recorder
def say(text):
    print(text, file=sys.stderr, flush=True)
def body():
    url, port, out, key = sys.argv[1:]
    recorder.serve(url, int(port), Path(out), say=say, key=key or None)
    return 0
sys.exit(flags.guard("record", body))
"""


def command(upstream: str, out: Path, *, port: int = 0, key: str = "") -> list[str]:
    """The command that records what passes to `upstream`."""
    return [sys.executable, "-c", PROGRAM, upstream, str(port), str(out), key]


@dataclass(kw_only=True)
class Recorder:
    """A recorder that runs. url: what stands for the upstream; said: its lines, as they come."""

    url: str = ""
    out: Path
    child: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        found = re.search(r"127\.0\.0\.1:(\d+)", self.url)
        assert found is not None
        return int(found[1])

    @property
    def lines(self) -> list[bytes]:
        """What is on disk now, without the line ends."""
        return self.out.read_bytes().splitlines()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal, and return the exit status; `said` is whole then."""
        self.child.send_signal(number)
        status = self.child.wait(TIME_LIMIT_S)
        assert self._reader is not None
        self._reader.join(TIME_LIMIT_S)
        return status

    def read_on(self) -> None:
        """Read the rest of its lines in the background."""
        def read() -> None:
            assert self.child.stderr is not None
            self.said.extend(line.rstrip("\n") for line in self.child.stderr)

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()


@contextlib.contextmanager
def recording(upstream: str, out: Path, *, key: str = "", env: Mapping[str, str] | None = None
              ) -> Iterator[Recorder]:
    """A recorder in front of `upstream` on a free port, as long as the context lasts."""
    child = subprocess.Popen(command(upstream, out, key=key), cwd=ROOT, text=True,
                             env=environment(**(env or {})), stderr=subprocess.PIPE)
    running = Recorder(out=out, child=child)
    try:
        assert child.stderr is not None
        running.said.append(child.stderr.readline().rstrip("\n"))
        found = re.search(r"base URL (\S+) instead", running.said[0])
        assert found is not None, running.said
        running.url = found[1]
        running.read_on()
        yield running
    finally:
        if child.poll() is None:
            running.stop(signal.SIGKILL)
        child.wait()
        child.stderr.close() if child.stderr else None


def request(body: bytes, path: str = CHAT, *headers: str, method: str = "POST") -> bytes:
    """A request as its bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: agent.example", "Content-Type: application/json",
             f"Authorization: Bearer {KEY}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIME_LIMIT_S)


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes, up to and with `mark`; less where the connection ends."""
    data = b""
    while mark not in data:
        if not (more := connection.recv(1 << 16)):
            break
        data += more
    return data


def exchange(port: int, data: bytes, mark: bytes = END) -> bytes:
    """Send one request over a connection of its own, and read up to `mark`."""
    with connect(port) as connection:
        connection.sendall(data)
        return read_until(connection, mark)


def body_of(answer: bytes) -> bytes:
    """An answer of a known length: its body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}" in head.decode().lower()
    return body


def port_of(url: str) -> int:
    found = re.search(r":(\d+)", url)
    assert found is not None
    return int(found[1])


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what another process is about to do."""
    deadline = time.monotonic() + TIME_LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def raw_upstream(*talks: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that treats its connections as the talks say, one after the other: its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIME_LIMIT_S)

        def serve() -> None:
            for talk in talks:
                connection, _ = server.accept()
                connection.settimeout(TIME_LIMIT_S)
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(TIME_LIMIT_S)
        assert not thread.is_alive()


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
