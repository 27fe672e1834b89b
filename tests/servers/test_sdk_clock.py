"""The clock through the real openai SDK: bytes that come at known times, and the exact Sample.

The bytes advance a fake clock as they pass, below httpx; everything above them is the code that
runs in earnest: httpx, the SDK's decoder and types, the adapter, `measure`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import openai
import pytest

from conftest import at
from fake_clock import UPLOAD_S, FakeClock
from request_timing.records.sample import REASONING, TEXT, TOOL, Sample
from request_timing.servers import openai_endpoint
from request_timing.servers.backend import USER, Message
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.openai_stream import decode, finish_reason
from request_timing.servers.timing import Event, RequestFailed, measure

# What comes when: seconds after the request's last byte, and the bytes of one read.
Script = list[tuple[float, bytes]]


class Blocks(httpx.SyncByteStream):
    """The bytes of a script, each read at its time, or at once if that time is past.

    The times are absolute, as they are on a wire: a reader that dawdles does not hold up the
    sender.
    """

    def __init__(self, clock: FakeClock, script: Script) -> None:
        self._clock = clock
        self._start_s = clock()
        self._script = script

    def __iter__(self) -> Iterator[bytes]:
        for at_s, data in self._script:
            self._clock.now_s = max(self._clock.now_s, self._start_s + at_s)
            yield data


def sending(clock: FakeClock, script: Script) -> Callable[[httpx.Request], httpx.Response]:
    """A transport's handler: it takes the request byte by byte, then answers with the script."""

    def handle(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        sent = iter(request.stream)
        next(sent)
        clock.advance(UPLOAD_S)
        for _ in sent:
            pass
        return httpx.Response(200, headers={"content-type": "text/event-stream"},
                              stream=Blocks(clock, script))

    return handle


def endpoint(clock: FakeClock, handle: Callable[[httpx.Request], httpx.Response]
             ) -> OpenAIEndpoint:
    return OpenAIEndpoint(at("http://127.0.0.1:1/v1"), key=None, model="m", provider=None,
                          transport=httpx.MockTransport(handle), now=clock)


def events(clock: FakeClock, script: Script) -> Iterator[Event]:
    return endpoint(clock, sending(clock, script)).stream((Message(USER, "hello"),), 4)


def blank() -> Sample:
    return Sample(experiment="length", arm="1", turn=1, repeat=1, sent_at="", prompt_chars=5,
                  prompt_hash="", asked_output_tokens=4)


def sse(data: Mapping[str, Any]) -> bytes:
    """One server-sent event; not ASCII-only, so that characters are several bytes."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    return sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def usage(output_tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 10, "completion_tokens": output_tokens,
            "total_tokens": 10 + output_tokens} | more


def counted(output_tokens: int) -> bytes:
    """The usage-only chunk of OpenAI: no choices."""
    return sse({"id": "c", "choices": [], "usage": usage(output_tokens)})


def tool(**function: str) -> bytes:
    return chunk(tool_calls=[{"index": 0, "id": "t", "type": "function", "function": function}])


END = chunk(finish="length")
DONE = b"data: [DONE]\n\n"
ONE, TWO = chunk(content="one"), chunk(content=" two")
# The end, late and apart: neither finish_reason, nor usage, nor [DONE] is an arrival.
TAIL: Script = [(2.0, END), (2.1, counted(4) + DONE)]

EURO = chunk(content="5 € \u2028")  # U+2028: a line separator to str.splitlines, not to SSE
CUT = EURO.index("€".encode()) + 1

# Four output tokens in every case, so by hand: (last - first) / (4 - 4 / pieces).
CASES = {
    "role_null": ([(0.005, chunk(role="assistant", content=None)), (0.214, ONE), (0.314, TWO)],
                  (0.214, 0.314), "TT", 0.05, "one two"),
    "role_empty": ([(0.005, chunk(role="assistant", content="")), (0.214, ONE), (0.314, TWO)],
                   (0.214, 0.314), "TT", 0.05, "one two"),
    "role_no_content": ([(0.005, chunk(role="assistant")), (0.214, ONE), (0.314, TWO)],
                        (0.214, 0.314), "TT", 0.05, "one two"),
    "choices_empty": ([(0.005, sse({"id": "c", "choices": []})), (0.2, ONE), (0.4, TWO)],
                      (0.2, 0.4), "TT", 0.1, "one two"),
    "choices_null": ([(0.005, sse({"id": "c", "choices": None})), (0.2, ONE), (0.4, TWO)],
                     (0.2, 0.4), "TT", 0.1, "one two"),
    "usage_first": ([(0.005, counted(0)), (0.2, ONE), (0.4, TWO)],
                    (0.2, 0.4), "TT", 0.1, "one two"),
    "one_block": ([(0.3, chunk(role="assistant") + ONE + TWO), (0.6, ONE + TWO)],
                  (0.3, 0.3, 0.6, 0.6), "TTTT", 0.1, "one twoone two"),
    "cut_character": ([(0.005, ONE), (0.2, EURO[:CUT]), (0.3, EURO[CUT:CUT + 1]),
                       (0.405, EURO[CUT + 1:])],
                      (0.005, 0.405), "TT", 0.2, "one5 € \u2028"),
    "cut_event": ([(0.1, ONE + TWO[:20]), (0.3, TWO[20:])],
                  (0.1, 0.3), "TT", 0.1, "one two"),
    # The data's own line is whole; the blank line after it carries nothing.
    "cut_line_end": ([(0.1, ONE[:-1]), (0.2, ONE[-1:]), (0.4, TWO)],
                     (0.1, 0.4), "TT", 0.15, "one two"),
    "reasoning_content": ([(0.1, chunk(reasoning_content="hm")), (0.5, chunk(content="yes"))],
                          (0.1, 0.5), "RT", 0.2, "yes"),
    "reasoning": ([(0.1, chunk(reasoning="hm", content=None)), (0.5, chunk(content="yes"))],
                  (0.1, 0.5), "RT", 0.2, "yes"),
    "reasoning_empty": ([(0.1, chunk(reasoning_content="", content="")), (0.2, ONE), (0.4, TWO)],
                        (0.2, 0.4), "TT", 0.1, "one two"),
    "tool_call": ([(0.1, tool(name="find", arguments="")), (0.2, tool(arguments="")),
                   (0.3, tool(arguments='{"a":')), (0.4, tool(arguments="1}"))],
                  (0.1, 0.3, 0.4), "LLL", 0.1125, ""),
    "comments": ([(0.001, b": keep-alive\n\n"), (0.2, b":\n\n" + ONE),
                  (0.3, b": OPENROUTER PROCESSING\n\n"), (0.4, TWO)],
                 (0.2, 0.4), "TT", 0.1, "one two"),
    "crlf": ([(0.2, ONE.replace(b"\n", b"\r\n")), (0.4, TWO.replace(b"\n", b"\r\n"))],
             (0.2, 0.4), "TT", 0.1, "one two"),
    "other_fields": ([(0.2, b"event: message\nid: 7\nretry: 10\n" + ONE), (0.4, TWO)],
                     (0.2, 0.4), "TT", 0.1, "one two"),
    "after_done": ([(0.2, ONE), (0.4, TWO + END + counted(4) + DONE + ONE)],
                   (0.2, 0.4), "TT", 0.1, "one two"),
}
KINDS = {"T": TEXT, "R": REASONING, "L": TOOL}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_sample_of_a_stream(case: tuple[Script, tuple[float, ...], str, float, str]) -> None:
    script, arrivals_s, kinds, inter_token_s, said = case
    sample, answer = measure(events(FakeClock(), script + TAIL), blank())
    assert sample.error is None
    assert sample.arrivals_s == arrivals_s
    assert sample.arrival_kinds == tuple(KINDS[kind] for kind in kinds)
    assert (sample.ttft_s, sample.total_s) == (arrivals_s[0], arrivals_s[-1])
    assert sample.inter_token_s == pytest.approx(inter_token_s)
    assert (sample.prompt_tokens, sample.output_tokens, sample.finish_reason) == (10, 4, "length")
    assert answer == said


def test_the_first_byte_may_be_long_before_the_first_token() -> None:
    script = [(0.005, b": keep-alive\n\n"), (0.2, ONE), *TAIL]
    sample, _ = measure(events(FakeClock(), script), blank())
    assert (sample.first_byte_s, sample.ttft_s) == (0.005, 0.2)


STREAMED: Script = [(0.2, ONE), (0.4, TWO)]


def with_usage(piece: bytes, found: dict[str, Any] | None) -> bytes:
    return sse(json.loads(piece.removeprefix(b"data: ")) | {"usage": found})


@pytest.mark.parametrize("script", [
    # On every chunk, and growing: the last, not the sum.
    [(0.2, with_usage(ONE, usage(2))), (0.4, with_usage(TWO, usage(4))),
     (0.5, with_usage(END, usage(4)) + DONE)],
    # In a middle chunk, and null in the last.
    [(0.2, ONE), (0.4, with_usage(TWO, usage(4))), (0.5, with_usage(END, None) + DONE)],
    # Null all the way, as OpenAI has it, until the last.
    [(0.2, with_usage(ONE, None)), (0.4, with_usage(TWO, None)), (0.5, END + counted(4) + DONE)],
    # In the choice.
    [*STREAMED, (0.5, sse({"id": "c", "choices": [
        {"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage(4)}]}) + DONE)],
    # Before an end with no [DONE].
    [*STREAMED, (0.5, END + counted(4))],
], ids=["cumulative", "middle_then_null", "null_then_counts", "in_the_choice", "no_done"])
def test_usage_wherever_it_stands(script: Script) -> None:
    sample, _ = measure(events(FakeClock(), script), blank())
    assert sample.error is None
    assert (sample.prompt_tokens, sample.output_tokens) == (10, 4)
    assert sample.arrivals_s == (0.2, 0.4)
    assert sample.inter_token_s == pytest.approx(0.1)


@pytest.mark.parametrize("slow", ["consumer", "decoder"])
def test_slow_parsing_moves_no_arrival(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    clock = FakeClock()
    script = [(0.2, chunk(role="assistant") + ONE), (0.4, TWO + ONE), *TAIL]

    def slow_decode(data: Mapping[str, Any], at_s: float, key: None) -> Iterator[Event]:
        clock.advance(0.05)
        return decode(data, at_s)

    def slow_reason(data: Mapping[str, Any]) -> str | None:
        clock.advance(0.03)  # before the adapter asks when the bytes came
        return finish_reason(data)

    def slowly(source: Iterator[Event]) -> Iterator[Event]:
        for event in source:
            yield event
            clock.advance(0.04)

    source = events(clock, script)
    if slow == "consumer":
        source = slowly(source)
    else:
        monkeypatch.setattr(openai_endpoint, "decode", slow_decode)
        monkeypatch.setattr(openai_endpoint, "finish_reason", slow_reason)
    sample, _ = measure(source, blank())
    assert sample.arrivals_s == (0.2, 0.4, 0.4)
    assert sample.first_byte_s == 0.2


def test_opening_a_connection_is_outside_the_clock_and_recorded() -> None:
    clock = FakeClock()
    send = sending(clock, STREAMED + TAIL)

    def connect_first(request: httpx.Request) -> httpx.Response:
        trace = request.extensions["trace"]
        for step, seconds in (("connection.connect_tcp", 0.25), ("connection.start_tls", 0.5)):
            trace(f"{step}.started", {})
            clock.advance(seconds)
            trace(f"{step}.complete", {})
        return send(request)

    source = endpoint(clock, connect_first).stream((Message(USER, "hello"),), 4)
    sample, _ = measure(source, blank())
    assert sample.ttft_s == 0.2
    assert sample.connection is not None
    assert sample.connection.new is True
    assert (sample.connection.connect_s, sample.connection.tls_s) == (0.25, 0.5)


def test_a_kept_connection_found_closed_costs_the_sample_nothing() -> None:
    clock = FakeClock()
    send = sending(clock, STREAMED + TAIL)
    tries = 0

    def closed_once(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        if tries == 1:
            clock.advance(3.0)
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        return send(request)

    source = endpoint(clock, closed_once).stream((Message(USER, "hello"),), 4)
    sample, _ = measure(source, blank())
    assert tries == 2
    assert (sample.error, sample.arrivals_s) == (None, (0.2, 0.4))


def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    tries = 0

    def breaks(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        request.extensions["trace"]("connection.connect_tcp.complete", {})
        raise httpx.ReadError("connection reset by peer")

    with pytest.raises(RequestFailed, match="connection reset by peer"):
        list(endpoint(FakeClock(), breaks).stream((Message(USER, "hello"),), 4))
    assert tries == 1


@pytest.mark.parametrize(("script", "kind", "arrivals_s"), [
    ([*STREAMED, (0.5, DONE)], "incomplete", (0.2, 0.4)),
    ([*STREAMED], "incomplete", (0.2, 0.4)),
    ([], "incomplete", ()),
    ([(0.2, b"data: : OPENROUTER PROCESSING\n\n")], "no_json", ()),
    ([(0.2, ONE), (0.3, sse({"error": {"message": "out of memory"}}))], "error_in_answer",
     (0.2,)),
    ([(0.2, END + DONE)], "empty", ()),
], ids=["no_finish_reason", "no_end", "nothing", "no_json", "error", "no_token"])
def test_a_stream_that_fails_keeps_its_arrivals(script: Script, kind: str,
                                                arrivals_s: tuple[float, ...]) -> None:
    sample, _ = measure(events(FakeClock(), script), blank())
    assert sample.error is not None and sample.error.kind == kind
    assert sample.arrivals_s == arrivals_s
    assert not sample.counts


# What no API should send, and a proxy or a home-made server does: never a traceback.
@pytest.mark.parametrize("data", [
    b"null", b"5", b'"text"', b"[]", b'{"choices": 5}', b'{"choices": [{"delta": 5}]}',
    b'{"choices": [{"delta": {"content": [null, [[]], true]}}]}',
    b'{"choices": [{"delta": {"tool_calls": 5}}]}',
    b'{"choices": [{"delta": {"tool_calls": [{"function": {"name": 5}}]}}]}',
    b'{"usage": {"prompt_tokens_details": 5}}', b'{"usage": []}', b"\xff",
])
def test_a_chunk_of_the_wrong_shape_is_no_defect_of_ours(data: bytes) -> None:
    script = [(0.1, b"data: " + data + b"\n\n"), *STREAMED, *TAIL]
    sample, _ = measure(events(FakeClock(), script), blank())
    if sample.error is None:
        assert sample.arrivals_s == (0.2, 0.4)
    else:
        assert "\n" not in sample.error.message


def test_the_sdk_is_told_not_to_retry() -> None:
    clock, tries = FakeClock(), 0

    def refuse(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        return httpx.Response(503, json={"error": {"message": "busy"}})

    sample, _ = measure(endpoint(clock, refuse).stream((Message(USER, "hello"),), 4), blank())
    assert (tries, openai.DEFAULT_MAX_RETRIES > 0) == (1, True)
    assert sample.error is not None
    assert (sample.error.message, sample.error.http_status) == ("HTTP 503: busy", 503)
