"""What the recorder keeps and what it does not, what it trusts, and how it refuses to start."""

from __future__ import annotations

import json
import resource
import socket
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from conftest import ROOT, TIME_LIMIT_S, environment
from recorder_process import (
    CHAT,
    KEY,
    body_of,
    command,
    exchange,
    raw_upstream,
    read_until,
    recording,
    request,
    unused_port,
)
from request_timing.recorder.pass_through import upstream_target
from wire_stub import Answer, wire_stub

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer_ok(connection: socket.socket) -> None:
    """Take one small request, and answer it."""
    head = read_until(connection, b"\r\n\r\n")
    assert head.startswith((b"POST", b"GET", b"PUT"))
    connection.sendall(OK)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


# --- what is kept -------------------------------------------------------------------------------

@pytest.mark.parametrize(("method", "path", "kept"), [
    ("POST", "/v1/chat/completions", True),
    ("POST", "/chat/completions?api-version=1", True),
    ("POST", "/openai/deployments/gpt/chat/completions", True),
    ("POST", "/v1/completions", True),
    ("POST", "/completion", True),
    ("POST", "/v1/responses", True),
    ("POST", "/anthropic/v1/messages", True),
    ("POST", "/v1/messages/count_tokens", False),
    ("POST", "/v1/embeddings", False),
    ("POST", "/tokenize", False),
    ("PUT", "/v1/chat/completions", False),
])
def test_only_requests_for_a_completion_are_kept(
    method: str, path: str, kept: bool, out: Path
) -> None:
    with raw_upstream(answer_ok) as port, recording(f"http://127.0.0.1:{port}", out) as recorder:
        exchange(recorder.port, request(b'{"a":1}', path, method=method), b"ok")
        assert recorder.lines == ([b'{"a":1}'] if kept else [])
        assert recorder.stop() == 0
    assert out.exists() == kept
    assert recorder.said[-1] == (f"1 request recorded: {out}" if kept else
                                 "nothing was recorded, and nothing was written")


def test_what_is_no_json_passes_and_is_told(out: Path) -> None:
    with raw_upstream(answer_ok) as port, recording(f"http://127.0.0.1:{port}", out) as recorder:
        assert exchange(recorder.port, request(b"\x1f\x8b no json"), b"ok").endswith(b"ok")
        recorder.stop()
    assert recorder.said[1:-1] == [f"POST {CHAT}: passed on, not recorded: "
                                   "it is no JSON object in UTF-8"]


def test_no_key_is_written_or_said_wherever_it_stands(out: Path) -> None:
    other, cookie, query, own = "azure/k+1", "sid-0123456789abcdef", "query-key-1", "own-key-777"
    body = json.dumps({
        "api_key": "in-body-1", "messages": [{"role": "user", "content": f"use {KEY} or {other}"}],
        "more": [cookie, query, own, f"x{KEY}x"]}).replace("/", "\\/").encode()
    with raw_upstream(answer_ok) as port, recording(
            f"http://127.0.0.1:{port}", out, key=own) as recorder:
        exchange(recorder.port, request(
            body, f"/{KEY}{CHAT}?key={query}", f"x-api-key: {other}", f"Cookie: sid={cookie}"),
            b"ok")
        recorder.stop()
    assert recorder.lines == [
        b'{"api_key": "***", "messages": [{"role": "user", "content": "use *** or ***"}], '
        b'"more": ["***", "***", "***", "x***x"]}']
    assert recorder.said[1] == (f"1: POST /***{CHAT}, {len(body)} bytes, "
                                "a key in it replaced by ***")
    for secret in (KEY, other, cookie, query, own, "in-body-1"):
        assert secret not in "".join(recorder.said)


def test_a_retry_is_no_turn_of_its_own(out: Path) -> None:
    with (wire_stub(then=Answer(body=(b"x",))) as stub, recording(stub.url, out) as recorder):
        for body, retry in ((b'{"n":1}', 0), (b'{"n":1}', 1), (b'{"n":1}', 0), (b'{"n":2}', 1)):
            exchange(recorder.port, request(body, CHAT, f"x-stainless-retry-count: {retry}"))
        assert len(stub.chats) == 4
        assert recorder.lines == [b'{"n":1}', b'{"n":1}', b'{"n":2}']


def test_what_is_recorded_is_for_its_owner_alone(out: Path) -> None:
    with wire_stub() as stub, recording(stub.url, out):
        assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_full_disk_keeps_whole_lines_and_the_agent_goes_on(out: Path) -> None:
    small, large = b'{"n":1}', b'{"n":"%s"}' % (b"x" * 2000)
    with wire_stub(then=Answer(body=(b"x",))) as stub, recording(stub.url, out) as recorder:
        resource.prlimit(recorder.child.pid, resource.RLIMIT_FSIZE, (1000, 1000))
        for body in (small, large, small):
            assert exchange(recorder.port, request(body)).endswith(b"0\r\n\r\n")
        assert recorder.lines == [small, small]
        recorder.stop()
    assert recorder.said[2] == (f"POST {CHAT}: passed on, not recorded: "
                                "cannot be written (File too large)")


@pytest.mark.parametrize(("base", "target", "asked"), [
    ("", "/v1/models", "/v1/models"),
    ("", "/", "/"),
    ("/v1", "/v1/models", "/v1/models"),
    ("/v1", "/models?a=/v1", "/v1/models?a=/v1"),
    ("/backend/v1", "/backend/v1/models", "/backend/v1/models"),
    ("/backend/v1", "/v1/models", "/backend/v1/models"),
    ("/backend/v1", "/models", "/backend/v1/models"),
    ("/v1", "/v10/models", "/v1/v10/models"),
    ("/v1/", "/v1/a%2Fb//c", "/v1/a%2Fb//c"),
])
def test_a_base_url_may_hold_the_whole_path_or_its_end(base: str, target: str, asked: str) -> None:
    assert upstream_target(base, target) == asked


# --- what is trusted, and the proxy -------------------------------------------------------------

@pytest.mark.parametrize("trusted", [True, False])
def test_an_upstream_s_certificate_is_verified(trusted: bool, out: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                seen.append(secured.recv(1 << 16))
                secured.sendall(OK)
        except ssl.SSLError:
            return

    env = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")} if trusted else {}
    with (raw_upstream(talk) as port,
          recording(f"https://127.0.0.1:{port}", out, env=env) as recorder):
        answer = exchange(recorder.port, request(b"{}"), b"ok" if trusted else b"}}")
        assert recorder.lines == ([b"{}"] if trusted else [])
    if trusted:
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nok")
        assert len(seen) == 1
    else:
        assert "certificate that is not trusted" in json.loads(body_of(answer))["error"]["message"]
        assert seen == []


def test_the_environment_s_proxy_is_for_hosts_elsewhere_and_never_for_loopback(
    tmp_path: Path
) -> None:
    asked: list[bytes] = []

    def proxy(connection: socket.socket) -> None:
        asked.append(read_until(connection, b"\r\n\r\n"))
        connection.sendall(OK)

    with raw_upstream(proxy) as port:
        env = {"http_proxy": f"http://user:pass-word@127.0.0.1:{port}"}
        with recording("http://provider.example/v1", tmp_path / "a.jsonl", env=env) as recorder:
            exchange(recorder.port, request(b"{}"), b"ok")
        with (raw_upstream(answer_ok) as near,
              recording(f"http://localhost:{near}", tmp_path / "b.jsonl", env=env) as recorder):
            exchange(recorder.port, request(b"{}"), b"ok")
    first, *headers = asked[0].decode().split("\r\n")
    assert first == f"POST http://provider.example{CHAT} HTTP/1.1"
    assert "Host: provider.example" in headers
    assert "Proxy-Authorization: Basic dXNlcjpwYXNzLXdvcmQ=" in headers
    assert "pass-word" not in "".join(recorder.said)


# --- how it refuses to start --------------------------------------------------------------------

def refused(words: list[str], **variables: str) -> str:
    """The one line of a recorder that does not start."""
    done = subprocess.run(words, cwd=ROOT, env=environment(**variables), capture_output=True,
                          text=True, timeout=TIME_LIMIT_S, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done
    return lines[0]


def test_a_port_in_use_is_said_and_leaves_no_file(out: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = refused(command("http://127.0.0.1:1", out, port=port))
    assert line == (f"record: expected a free port on 127.0.0.1, found {port}: one in use; "
                    "give another")
    assert not out.exists()


def test_a_file_that_exists_is_never_touched(out: Path) -> None:
    out.write_text("mine")
    assert "exists, and a recording is never overwritten" in refused(
        command("http://127.0.0.1:1", out))
    assert out.read_text() == "mine"


def test_a_folder_that_is_missing_is_said(out: Path) -> None:
    line = refused(command("http://127.0.0.1:1", out.parent / "missing" / "a.jsonl"))
    assert "cannot write there (No such file or directory)" in line


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://a", "http://", "http://a:x",
                                 "http://a/v1?key=sk-a1b2c3d4e5f6",
                                 "https://user:sk-a1b2c3d4e5f6@a/v1"])
def test_what_is_no_base_url_is_said_and_not_shown(url: str, out: Path) -> None:
    line = refused(command(url, out))
    assert "expected the upstream's base URL" in line and KEY not in line
    assert not out.exists()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_said(port: int, out: Path) -> None:
    assert f"expected a port from 1 to 65535, found {port}" in refused(
        command("http://127.0.0.1:1", out, port=port))


def test_a_recorder_in_front_of_itself_is_said(out: Path) -> None:
    port = unused_port()
    assert "give the recorder another port" in refused(
        command(f"http://localhost:{port}/v1", out, port=port))


def test_a_proxy_of_another_kind_is_said(out: Path) -> None:
    line = refused(command("https://provider.example", out), https_proxy="socks5://127.0.0.1:1")
    assert "expected an http proxy in the environment, found socks5" in line
    assert not out.exists()


def test_without_its_library_it_says_what_to_install(out: Path) -> None:
    program, *flags = command("http://127.0.0.1:1", out)[2:]
    line = refused([sys.executable, "-c", "import sys; sys.modules['aiohttp'] = None\n" + program,
                    *flags])
    assert line == ("record: expected the package aiohttp, found no aiohttp; run: "
                    "python3 -m pip install -r requirements-record.txt")
    assert not out.exists()
