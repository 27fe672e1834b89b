"""The recorder on the wire: bytes unchanged, nothing held back, and what breaks off.

The clients are plain sockets, so that each byte is seen as it came.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import TIME_LIMIT_S
from recorder_process import (
    CHAT,
    END,
    KEY,
    body_of,
    connect,
    eventually,
    exchange,
    port_of,
    raw_upstream,
    read_until,
    recording,
    request,
    unused_port,
)
from wire_stub import CUT, DONE, Answer, piece, wire_stub


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


# --- unchanged ----------------------------------------------------------------------------------

@pytest.mark.parametrize("answer", [
    Answer(body=(piece(role="assistant"), piece(content="5 €"), piece(finish="stop"), DONE)),
    Answer(status=429, headers={"Retry-After": "7", "X-Two": "a", "x-two": "b",
                                "Content-Type": "application/json; charset=utf-8"},
           body=(b'{"error":\n {"message": "slow down"}}',)),
    Answer(headers={"Content-Type": "text/event-stream", "Content-Encoding": "gzip"},
           body=(b"\x1f\x8b\x08\x00 never", b"\xff\x00 decoded")),
    Answer(status=302, headers={"Location": "http://elsewhere.example/", "Content-Type": "a/b",
                                "Set-Cookie": "sid=1"}, body=(b"moved",)),
], ids=["stream", "refused", "compressed", "redirect"])
def test_an_answer_is_the_one_that_a_direct_request_gets_byte_for_byte(
    answer: Answer, out: Path
) -> None:
    dated = replace(answer, headers={"Date": "Sun, 29 Nov 2026 10:00:00 GMT", "Server": "stub",
                                     **answer.headers})
    with wire_stub(then=dated) as stub, recording(stub.url, out) as recorder:
        direct, through = (exchange(port, request(b'{"a":1}'))
                           for port in (port_of(stub.url), recorder.port))
    # Every header, in its order and its case, and every chunk, with its own size.
    assert through == direct


def test_where_the_upstream_says_neither_date_nor_server_they_are_added_and_no_more(
    out: Path
) -> None:
    answer = Answer(body=(piece(content="a"), piece(finish="stop"), DONE))
    with wire_stub(then=answer) as stub, recording(stub.url, out) as recorder:
        direct, through = (exchange(port, request(b'{"a":1}'))
                           for port in (port_of(stub.url), recorder.port))
    assert re.sub(rb"(Date|Server): [^\r]*\r\n", b"", through) == direct


def test_a_request_passes_with_its_bytes_and_its_headers(out: Path) -> None:
    body = b'{ "b":1.0,\n"a" : "\\u00e9" }'
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        seen.append(read_until(connection, body))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}", out) as recorder:
        exchange(recorder.port, request(
            body, CHAT + "?a=%2F&b", "X-Own: Kept", "Cookie: sid=0123456789abcdef",
            "Connection: keep-alive, X-Hop", "X-Hop: dropped", "TE: trailers",
            "Upgrade: h2c", "Proxy-Authorization: Basic eA=="), b"{}")
        assert recorder.lines == [body.replace(b"\n", b" ")]
    head, _, sent_body = seen[0].partition(b"\r\n\r\n")
    assert sent_body == body
    assert head.decode().split("\r\n") == [
        f"POST {CHAT}?a=%2F&b HTTP/1.1", f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json", f"Authorization: Bearer {KEY}",
        f"Content-Length: {len(body)}", "X-Own: Kept", "Cookie: sid=0123456789abcdef"]


def test_a_body_of_12_mb_in_chunks_passes_and_is_recorded(out: Path) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 12_000_000}]}).encode()
    parts = [body[n:n + 1_000_000] for n in range(0, len(body), 1_000_000)]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + END
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        seen.append(read_until(connection, b"\r\n" + END))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}", out) as recorder:
        head = (f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                "Expect: 100-continue\r\n\r\n")
        with connect(recorder.port) as connection:
            connection.sendall(head.encode())
            assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(chunked)
            assert read_until(connection, b"{}").endswith(b"{}")
        assert recorder.lines == [body]
    passed = seen[0].partition(b"\r\n\r\n")[2]
    assert re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", passed).removesuffix(b"\r\n") == body


# --- undelayed ----------------------------------------------------------------------------------

@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_each_piece_arrives_before_the_next_one_is_sent(framing: str, out: Path) -> None:
    """The upstream sends the next piece when the client has the last: what buffers never ends."""
    pieces = [b"data: %d\n\n" % number for number in range(5)]
    arrived = threading.Semaphore(0)
    header = {"chunked": b"Transfer-Encoding: chunked", "close": b"Connection: close",
              "length": b"Content-Length: %d" % sum(map(len, pieces))}[framing]

    def talk(connection: socket.socket) -> None:
        read_until(connection, b"{}")
        connection.sendall(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % header)
        for data in pieces:
            assert arrived.acquire(timeout=TIME_LIMIT_S)  # first of all, for the head alone
            connection.sendall(b"%x\r\n%s\r\n" % (len(data), data) if framing == "chunked"
                               else data)
        if framing == "chunked":
            connection.sendall(END)

    with (raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}", out) as recorder,
          connect(recorder.port) as connection):
        connection.sendall(request(b"{}"))
        head = read_until(connection, b"\r\n\r\n")
        assert head.endswith(b"\r\n\r\n")
        for data in pieces:
            arrived.release()
            assert data in read_until(connection, data)


def test_a_line_is_on_disk_before_the_answer_begins(out: Path) -> None:
    answered = threading.Event()

    def talk(connection: socket.socket) -> None:
        read_until(connection, b"{}")
        assert answered.wait(TIME_LIMIT_S)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with (raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}", out) as recorder,
          connect(recorder.port) as connection):
        connection.sendall(request(b"{}"))
        eventually(lambda: recorder.lines == [b"{}"])
        answered.set()
        assert read_until(connection, b"ok").endswith(b"ok")


def test_the_connections_are_kept_on_both_sides(out: Path) -> None:
    with (wire_stub(then=Answer(body=(b"x",))) as stub, recording(stub.url, out) as recorder,
          connect(recorder.port) as connection):
        for number in range(3):
            connection.sendall(request(b'{"n":%d}' % number))
            assert read_until(connection, END).endswith(END)
        assert stub.connections == 1
        assert recorder.lines == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


def test_requests_at_one_time_do_not_mix(out: Path) -> None:
    bodies = [b'{"max_tokens":%d,"messages":[]}' % number for number in range(1, 25)]
    answers: dict[bytes, bytes] = {}
    with wire_stub() as stub, recording(stub.url, out) as recorder:
        def ask(body: bytes) -> None:
            answers[body] = exchange(recorder.port, request(body))

        threads = [threading.Thread(target=ask, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIME_LIMIT_S)
        assert sorted(recorder.lines) == sorted(bodies)
    for number, body in enumerate(bodies, 1):
        assert answers[body].count(b'"content": "a') == number  # a word a token


def test_a_client_of_http_1_0_gets_the_body_up_to_the_end_of_the_connection(out: Path) -> None:
    with (wire_stub(then=Answer(body=(b"one ", b"two"))) as stub,
          recording(stub.url, out) as recorder, connect(recorder.port) as connection):
        connection.sendall(b"POST %s HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}" % CHAT.encode())
        head, _, body = read_until(connection, b"never").partition(b"\r\n\r\n")
    assert b"chunked" not in head and body == b"one two"


def test_an_answer_without_a_body_keeps_its_head(out: Path) -> None:
    def talk(connection: socket.socket) -> None:
        assert read_until(connection, b"\r\n\r\n").startswith(b"HEAD /v1/models HTTP/1.1\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n")

    with raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}/v1", out) as recorder:
        asked = b"HEAD /models HTTP/1.1\r\nHost: a\r\n\r\n"
        head = exchange(recorder.port, asked, b"\r\n\r\n")
    assert b"\r\nContent-Length: 42\r\n" in head


# --- broken off ---------------------------------------------------------------------------------

@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_hangs_up_ends_the_request_upstream(begun: bool, out: Path) -> None:
    ended = threading.Event()

    def talk(connection: socket.socket) -> None:
        read_until(connection, b"{}")
        if begun:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert connection.recv(1) == b""
        ended.set()

    with (raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}", out) as recorder,
          connect(recorder.port) as connection):
        connection.sendall(request(b"{}"))
        if begun:
            read_until(connection, b"1\r\nx\r\n")
        else:
            eventually(lambda: recorder.lines == [b"{}"])
        connection.close()
        assert ended.wait(TIME_LIMIT_S)  # while the recorder goes on
        assert recorder.lines == [b"{}"]  # it was sent


def test_an_answer_that_breaks_off_has_no_proper_end(out: Path) -> None:
    cut = Answer(body=(piece(content="a"),), ends=CUT)
    with wire_stub(then=cut) as stub, recording(stub.url, out) as recorder:
        answer = exchange(recorder.port, request(b"{}"))
        recorder.stop()
    assert piece(content="a") in answer and not answer.endswith(END)
    assert recorder.said[-2].endswith("broke off in the middle of its answer")


def garbage(connection: socket.socket) -> None:
    read_until(connection, b"{}")
    connection.sendall(b"SSH-2.0-OpenSSH\r\n")


def silence(connection: socket.socket) -> None:
    read_until(connection, b"{}")


def reset(connection: socket.socket) -> None:
    read_until(connection, b"{}")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize(("talk", "why"), [
    (garbage, "answered with something that is no HTTP"),
    (silence, "closed the connection without an answer"),
    (reset, "cannot be reached (Connection reset by peer)"),
    (None, "cannot be reached (Connect"),
])
def test_an_upstream_that_fails_is_a_502_in_openai_s_words(
    talk: Callable[[socket.socket], None] | None, why: str, out: Path
) -> None:
    with raw_upstream(*([talk] if talk else [])) as port:
        url = f"http://127.0.0.1:{port if talk else unused_port()}"
        with recording(url, out) as recorder:
            answer = exchange(recorder.port, request(b"{}", CHAT + f"?key={KEY}"), b"}}")
            assert recorder.stop() == 0
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    error = json.loads(body_of(answer))["error"]
    assert why in error["message"] and error["code"] == "upstream_failed"
    said = [line for line in recorder.said if "answered 502" in line]
    assert said == [f"POST {CHAT}: answered 502: {error['message']}"]
    assert KEY not in "".join(recorder.said) and "Traceback" not in "".join(recorder.said)


@pytest.mark.parametrize(("data", "status", "code"), [
    (request(b"", "/v1/realtime", "Connection: Upgrade", "Upgrade: websocket",
             "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==", method="GET"),
     501, "no_websocket"),
    (request(b"{}", f"http://elsewhere.example{CHAT}"), 400, "not_a_forward_proxy"),
    (b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n",
     400, "not_a_forward_proxy"),
])
def test_what_is_not_passed_on_is_refused(data: bytes, status: int, code: str, out: Path) -> None:
    with wire_stub() as stub, recording(stub.url, out) as recorder:
        answer = exchange(recorder.port, data, b"}}")
        assert stub.asked == []
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert json.loads(body_of(answer))["error"]["code"] == code
        # and the recorder goes on
        assert exchange(recorder.port, request(b'{"max_tokens":1,"messages":[]}')).endswith(END)


def test_what_is_no_http_gets_a_400_and_leaves_no_trace(out: Path) -> None:
    with wire_stub() as stub, recording(stub.url, out) as recorder:
        assert exchange(recorder.port, b"\x16\x03\x01\x02\x00\r\n\r\n").startswith(b"HTTP/1.0 400 ")
        broken = (b"POST /v1/messages HTTP/1.1\r\nHost: a\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert b" 400 " in exchange(recorder.port, broken, b"}}")[:16]
        assert recorder.stop() == 0
    assert "Traceback" not in "".join(recorder.said)
    assert "defect" not in "".join(recorder.said)
    assert not out.exists()


def test_the_recorder_dies_of_a_kill_with_all_it_wrote(out: Path) -> None:
    with wire_stub(then=Answer(body=(b"x",))) as stub, recording(stub.url, out) as recorder:
        for number in range(20):
            exchange(recorder.port, request(b'{"n":%d}' % number))
        recorder.stop(signal.SIGKILL)
    assert recorder.lines == [b'{"n":%d}' % number for number in range(20)]


def test_a_stop_cuts_what_is_under_way_and_is_clean(out: Path) -> None:
    def talk(connection: socket.socket) -> None:
        read_until(connection, b"{}")
        assert connection.recv(1) == b""

    with (raw_upstream(talk) as port, recording(f"http://127.0.0.1:{port}", out) as recorder,
          connect(recorder.port) as connection):
        connection.sendall(request(b"{}"))
        eventually(lambda: recorder.lines == [b"{}"])
        assert recorder.stop(signal.SIGINT) == 0
        assert connection.recv(1) == b""
    assert recorder.said[-1] == f"1 request recorded: {out}"
    assert len(recorder.said) == 3


