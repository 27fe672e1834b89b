"""A llama-server's stream as bytes by hand, split where it hurts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from request_timing.errors import UserError
from request_timing.records.sample import ServerTimings
from request_timing.servers.llama_server import LlamaServer
from request_timing.servers.llama_stream import RAW, events
from request_timing.servers.sse import payloads
from request_timing.servers.timing import (
    Alive,
    Chunk,
    End,
    Event,
    Note,
    Progress,
    RequestFailed,
    Unread,
    Usage,
)

LAST = {
    "content": "", "stop": True, "id_slot": 1, "tokens_evaluated": 10, "tokens_predicted": 2,
    "tokens_cached": 11, "stop_type": "limit", "truncated": False,
    "timings": {"cache_n": 4, "prompt_n": 6, "prompt_ms": 30.5, "predicted_n": 2,
                "predicted_ms": 9.0},
}


def stream(*objects: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(o, ensure_ascii=False).encode() + b"\n\n"
                    for o in objects)


def read(*chunks: bytes) -> list[Event]:
    """The events of chunks that come at 1, 2, 3 … seconds, but for signs of life."""
    found = events(payloads((float(at), chunk) for at, chunk in enumerate(chunks, 1)))
    return [event for event in found if not isinstance(event, Alive)]


def piece(at_s: float, text: str, so_far: int | None = None) -> Chunk:
    return Chunk(at_s=at_s, kind="text", text=text, tokens_so_far=so_far)


def test_a_whole_stream() -> None:
    progress = {"content": "", "stop": False, "prompt_progress": {
        "total": 10, "cache": 4, "processed": 8, "time_ms": 3}}
    token = {"content": "hé", "stop": False, "tokens_predicted": 1}
    assert read(stream(progress), stream(token), stream(LAST)) == [
        Progress(at_s=1, processed_tokens=8, total_tokens=10),
        piece(2, "hé", 1),
        piece(3, "", 2),
        Usage(prompt_tokens=10, cached_tokens=4, output_tokens=2, server=ServerTimings(
            cache_n=4, prompt_n=6, prompt_ms=30.5, predicted_n=2, predicted_ms=9.0, id_slot=1),
            raw={name: LAST[name] for name in ("timings", *RAW) if name in LAST}),
        End(finish_reason="limit"),
    ]


def test_split_at_any_byte_the_text_is_the_same_and_dated_by_its_last_byte() -> None:
    data = stream({"content": "né", "stop": False}, {"content": "語", "stop": False})
    ends_first = data.index(b"\n") + 1  # the line is whole with its line end
    for cut in range(1, len(data)):
        first, second = (e for e in read(data[:cut], data[cut:]) if isinstance(e, Chunk))
        assert (first.text, second.text) == ("né", "語")
        assert first.at_s == (1 if cut >= ends_first else 2)


def test_comments_other_fields_crlf_and_done_are_no_payloads() -> None:
    noise = b": ping\r\n\r\nevent: x\r\nid: 7\r\ndata:\r\n"
    done = b"data: [DONE]\r\n"
    assert read(noise, b'data: {"content": "a"}\r\n', done, noise) == [piece(2, "a")]


def test_a_line_that_is_no_json_is_reported_and_the_rest_still_read() -> None:
    note, after = read(b"data: : PROCESSING\n", stream({"content": "a"}))
    assert note == Unread(text=": PROCESSING")
    assert after == piece(2, "a")


def test_a_build_before_cache_n_reuses_evaluated_less_computed() -> None:
    old = json.loads(json.dumps(LAST))
    del old["timings"]["cache_n"]
    usage = next(e for e in read(stream(old)) if isinstance(e, Usage))
    assert usage.cached_tokens == 4


@pytest.mark.parametrize(("evaluated", "prompt_n", "cached"), [
    (10, 12, None), (10, 10, 0), (None, 12, None), (10, None, None)])
def test_less_than_nothing_is_no_count(evaluated: int | None, prompt_n: int | None,
                                       cached: int | None) -> None:
    old = LAST | {"tokens_evaluated": evaluated, "timings": {
        "prompt_n": prompt_n, "prompt_ms": -1.0, "predicted_n": -2, "predicted_ms": -5}}
    usage = next(e for e in read(stream(old)) if isinstance(e, Usage))
    assert usage.cached_tokens == cached and usage.server is not None
    assert (usage.server.cache_n, usage.server.predicted_n) == (cached, None)
    assert (usage.server.prompt_ms, usage.server.predicted_ms) == (None, None)


@pytest.mark.parametrize(("data", "said"), [
    (b'data: {"content": "a"}{"content": "b"}\n', "ab"),
    (b'data: {"content": "a"} \t {"content": "b"}\n', "ab"),
    (b'data: {"content": "a"}data: {"content": "b"}data:{"content": "c"}\n', "abc"),
    (b'{"content": "a"}{"content": "b"}\n', "ab"),
    (b'data: data: {"content": "a"}\n', "a"), (b'data:data:data: {"content": "a"}\n', "a"),
    (b'data: {"content": "data: {"}\n', "data: {"),
    (b'data: [{"content": "a"}, {"content": "b"}]\n', "ab"),
    (b'data: [{"content": "a"}]{"content": "b"}\n', "ab"),
    (b'data: {"content":\ndata: "a"}{"content": "b"}\n\n', "ab"),
    (b'data: {"content": "a"}data: [DONE]\n\ndata: {"content": "b"}\n', "a"),
    (b'data: data: [DONE]\n\ndata: {"content": "b"}\n', ""),
    (b'data: data:\n\ndata: {"content": "b"}\n', "b"),
], ids=range(13))
def test_several_values_on_a_line(data: bytes, said: str) -> None:
    found = read(data)
    assert all(isinstance(event, Chunk) for event in found)
    assert "".join(event.text for event in found if isinstance(event, Chunk)) == said


@pytest.mark.parametrize("line", [
    b'{"content": "a"} oops', b'{"content": "a"}{"content":', b'1 {"content": "a"}', b'1 2',
    b'["a"]{"content": "b"}', b'{"content": "a"}}'])
def test_values_with_anything_else_between_them_are_not_read(line: bytes) -> None:
    assert read(b"data: " + line + b"\n\n") == [Unread(text=line.decode())]


def test_a_key_in_a_long_line_is_hidden_whole() -> None:
    for before in range(250, 310):
        (unread,) = read_with_key(b"data: " + b"x" * before + b"sk-secret-key" + b"\n")
        assert isinstance(unread, Unread) and "sk-s" not in unread.text


def read_with_key(data: bytes) -> list[Event]:
    found = events(payloads([(1.0, data)]), "sk-secret-key")
    return [event for event in found if not isinstance(event, Alive)]


def test_truncation_is_noted() -> None:
    assert any(isinstance(e, Note) and e.text.startswith("truncated")
               for e in read(stream(LAST | {"truncated": True})))


@pytest.mark.parametrize(("error", "kind", "says"), [
    ({"code": 500, "message": "out\nof memory", "type": "server_error"}, "http", "out of memory"),
    ({"code": 400, "message": "too long", "type": "exceed_context_size_error"}, "context", "long"),
    ("plain words", "error_in_answer", "plain words"),
])
def test_an_error_in_the_stream_is_a_failure(error: Any, kind: str, says: str) -> None:
    with pytest.raises(RequestFailed, match=says) as failed:
        read(stream({"error": error}))
    assert failed.value.failure.kind == kind


def url_of(text: str) -> str:
    return LlamaServer(text).url


def test_urls_are_understood() -> None:
    assert url_of("http://127.0.0.1:8080/") == "http://127.0.0.1:8080"
    assert url_of("127.0.0.1:8080") == "http://127.0.0.1:8080"
    assert url_of("https://host/llama/") == "https://host/llama"
    assert url_of("http://[::1]:8080") == "http://[::1]:8080"
    assert url_of("http://me:secret@host:1") == "http://host:1"


@pytest.mark.parametrize("text", ["", "ftp://host", "http://", "http://host:port",
                                  "http://host:99999"])
def test_what_is_no_url_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UserError, match="--url: expected"):
        LlamaServer(text)


def test_every_request_asks_for_the_cache_and_against_moved_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[bytes] = []

    class Connection:
        """Takes a request as http.client does, and resets instead of an answer."""

        def putrequest(self, method: str, path: str) -> None:
            assert (method, path) == ("POST", "/completion")

        def putheader(self, name: str, value: str) -> None:
            assert name in ("Content-Type", "Content-Length")

        def endheaders(self) -> None:
            pass

        def send(self, data: bytes) -> None:
            sent.append(data)

        def getresponse(self) -> None:
            raise ConnectionResetError("enough")

        def close(self) -> None:
            pass

    server = LlamaServer("http://host")
    monkeypatch.setattr(server, "_connect", Connection)

    def ask() -> Iterator[Event]:
        return server.stream((), 5)

    with pytest.raises(RequestFailed, match="enough"):
        list(ask())
    assert json.loads(b"".join(sent)) == {
        "prompt": "", "n_predict": 5, "stream": True, "cache_prompt": True, "n_cache_reuse": 0,
        "ignore_eos": True, "return_progress": False}
