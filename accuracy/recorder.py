"""What the recorder adds to a request, beside a direct one; a part of `make accuracy`.

Requests go to the server of known truth in pairs, one direct and one through the recorder, in
alternating order, each over a kept connection of its own. A plain socket is the client, so that no
SDK's time is in either. The server logs when a request's last byte came and when it handed each
piece to the transport, on the clock that this process reads too. Two figures: how long a request
is under way, and how long a piece.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from accuracy.rows import Row, show
from recorder_process import recording
from request_timing.prompts.filler import filler
from truth_server import Truth, truth

REQUESTS = 200
# The prompt's characters, and what may be added on the way up: bytes that are read, kept and
# written once more take their time, so that the bar is of ordinary prompts.
PROMPTS = {"2 kB": (2_000, 0.001), "100 kB": (100_000, 0.002), "1 MB": (1_000_000, 0.015)}
PIECE_BAR_S = 0.001
PIECES = 8
FIXED_S, PIECE_S = 0.02, 0.005  # a quick model, with a prompt that is cached
END = b"\r\n0\r\n\r\n"


@dataclass(kw_only=True)
class Way:
    """One way to the server: its connection, and what was measured on it, in seconds."""

    connection: socket.socket
    up_s: list[float] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)

    def ask(self, request: bytes, known: Truth, *, counts: bool) -> None:
        """Send the request, read the answer to its end, and compare with the server's log."""
        sent_at_s = time.perf_counter()
        self.connection.sendall(request)
        data = b""
        came_at_s: list[float] = []
        while not data.endswith(END):
            data += self.connection.recv(1 << 16)
            events = data.count(b"\n\n")
            came_at_s += [time.perf_counter()] * (events - len(came_at_s))
        entry = known.log(clear=True)[0]
        if counts:
            self.up_s.append(entry["received_at_s"] - sent_at_s)
            self.back_s += [came - left for came, left in zip(  # the first event has no text
                came_at_s[1:], entry["sent_at_s"], strict=False)]


def connected(url: str) -> socket.socket:
    """A connection to a server of this machine."""
    host, port = url.removeprefix("http://").split("/")[0].split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def chat(characters: int) -> bytes:
    """A streamed chat request with a prompt of so many characters."""
    text = filler(1, characters // 5)[:characters]
    body = json.dumps({"model": "truth", "stream": True, "max_tokens": PIECES,
                       "messages": [{"role": "user", "content": text}]}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            b"application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def rows(requests: int = REQUESTS) -> Iterator[Row]:
    """The medians of what is added, by the prompt's size."""
    with (tempfile.TemporaryDirectory() as folder,
          truth(fixed_s=FIXED_S, decode_s_per_token=PIECE_S) as known,
          recording(known.url, Path(folder) / "prompts.jsonl") as recorder):
        for name, (characters, up_bar_s) in PROMPTS.items():
            request = chat(characters)
            with connected(known.url) as near, connected(recorder.url) as far:
                direct, through = Way(connection=near), Way(connection=far)
                for number in range(requests + 1):  # the first one warms up
                    ways = (direct, through) if number % 2 else (through, direct)
                    for way in ways:
                        way.ask(request, known, counts=number > 0)
            for figure, without_s, with_s, bar_s in (
                    ("request", direct.up_s, through.up_s, up_bar_s),
                    ("piece", direct.back_s, through.back_s, PIECE_BAR_S)):
                before_s, after_s = statistics.median(without_s), statistics.median(with_s)
                print(f"{name} prompt, {figure}: {1000 * before_s:.3f} ms direct, "
                      f"{1000 * after_s:.3f} ms through the recorder, n {len(with_s)}")
                yield Row(figure=f"added by the recorder, {name} prompt, {figure}, ms", truth=0,
                          measured=1000 * (after_s - before_s), bar=f"< {1000 * bar_s:g}",
                          held=after_s - before_s < bar_s)


if __name__ == "__main__":
    sys.exit(show(list(rows(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS))))
