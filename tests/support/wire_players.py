"""What plays a wire case to the real code: on a fake clock, on a socket, or bare.

On the fake clock everything runs but the socket: the openai SDK and httpx over the bytes of the
case. Bare, the SDK is left out as well, so that a case can be played some thousand times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import httpx

from conftest import at
from fake_clock import UPLOAD_S, FakeClock
from request_timing.records.sample import Sample
from request_timing.servers.backend import USER, Message
from request_timing.servers.llama_server import LlamaServer
from request_timing.servers.llama_stream import events as llama_events
from request_timing.servers.llama_stream import failure
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.sanitize import kept_headers
from request_timing.servers.sse import payloads
from request_timing.servers.timing import Answered, Event, RequestFailed, Sent, measure
from request_timing.servers.transport_clock import Wire
from wire_case import BLANK, Case
from wire_cases_failures import FAILURES
from wire_cases_stream import STREAMS
from wire_cases_usage import USAGES
from wire_stub import CUT, RESET, SILENT, STALLED, Answer, wire_stub

API = (*STREAMS, *USAGES, *FAILURES)
PROMPT = (Message(USER, "hello"),)
SHORT_S = 0.002  # what a pause of a case is on a socket, where it is no part of what is tested
STALL_S = 1.0  # enough for a busy machine to send a piece in

# What httpx makes of each ending, in the words it has for it; the socket shows that it does.
ENDINGS: dict[str, Callable[[], httpx.TransportError]] = {
    CUT: lambda: httpx.RemoteProtocolError("peer closed connection without sending complete "
                                           "message body (incomplete chunked read)"),
    RESET: lambda: httpx.ReadError("[Errno 104] Connection reset by peer"),
    STALLED: lambda: httpx.ReadTimeout("timed out"),
    SILENT: lambda: httpx.RemoteProtocolError("Server disconnected without sending a response."),
}
LLAMA_ENDINGS = {
    CUT: ("reset", "the server closed in mid-answer"),
    RESET: ("reset", "[Errno 104] Connection reset by peer"),
    STALLED: ("stalled", "the server sent nothing for too long"),
}


class Blocks(httpx.SyncByteStream):
    """The bytes of a case, each read at its time, or at once if that time is past."""

    def __init__(self, clock: FakeClock, case: Case) -> None:
        self._clock, self._case, self._start_s = clock, case, clock()

    def __iter__(self) -> Iterator[bytes]:
        for at_s, data in self._case.script:
            self._clock.now_s = max(self._clock.now_s, self._start_s + at_s)
            yield data
        if self._case.ends in ENDINGS:
            raise ENDINGS[self._case.ends]()


def on_the_fake_clock(case: Case) -> tuple[Sample, str]:
    """The Sample of an API case, through the SDK and httpx."""
    clock = FakeClock()

    def handle(request: httpx.Request) -> httpx.Response:
        request.extensions["trace"]("connection.connect_tcp.complete", {})
        assert isinstance(request.stream, httpx.SyncByteStream)
        sent = iter(request.stream)
        next(sent)
        clock.advance(UPLOAD_S)
        for _ in sent:
            pass
        if case.ends == SILENT:
            raise ENDINGS[SILENT]()
        return httpx.Response(case.status, headers=case.headers, stream=Blocks(clock, case))

    endpoint = OpenAIEndpoint(at("http://127.0.0.1:1/v1"), key=None, model="m", provider=None,
                              transport=httpx.MockTransport(handle), now=clock)
    return measure(endpoint.stream(PROMPT, 4), BLANK, stall_s=case.stall_s)


@cache
def _endpoint(clock: FakeClock) -> OpenAIEndpoint:
    return OpenAIEndpoint(at("http://127.0.0.1:1/v1"), key=None, model="m", provider=None,
                          transport=httpx.MockTransport(lambda request: httpx.Response(500)),
                          now=clock)


class Dated(httpx.SyncByteStream):
    """A stream whose reads the wire dates, as `TimedBytes` does, without its thread."""

    def __init__(self, blocks: Blocks, wire: Wire) -> None:
        self._blocks, self._wire = blocks, wire

    def __iter__(self) -> Iterator[bytes]:
        for data in self._blocks:
            self._wire.saw_bytes()
            yield data


BARE_CLOCK = FakeClock()


def bare(case: Case) -> tuple[Sample, str]:
    """The Sample of an API case under HTTP 200, from an httpx.Response on."""
    endpoint = _endpoint(BARE_CLOCK)
    wire = endpoint._wire = Wire(BARE_CLOCK)
    wire.sends_last_byte()

    def send() -> httpx.Response:
        return httpx.Response(case.status, headers=case.headers,
                              stream=Dated(Blocks(BARE_CLOCK, case), wire))

    return measure(endpoint._answered(send), BLANK, stall_s=case.stall_s)


def llama_on_the_fake_clock(case: Case) -> tuple[Sample, str]:
    """The Sample of a llama-server case, through its decoder."""

    def chunks() -> Iterator[tuple[float, bytes]]:
        yield from case.script
        if case.ends in LLAMA_ENDINGS:
            raise RequestFailed(*LLAMA_ENDINGS[case.ends])

    def events() -> Iterator[Event]:
        yield Sent(at_s=0.0)
        yield Answered(headers=kept_headers(case.headers.items()))
        if case.status != 200:
            try:
                said = json.loads(case.body)
            except ValueError:
                said = case.body
            raise failure(said, case.status, case.headers)
        yield from llama_events(payloads(chunks()))

    return measure(events(), BLANK, stall_s=case.stall_s)


def answer(case: Case) -> Answer:
    """What a server on a socket says; pauses are short where they are no part of the case."""
    parts: list[bytes | float] = []
    for (before_s, _), (at_s, data) in pairwise(((0.0, b""), *case.script)):
        parts += [at_s - before_s if case.stall_s <= STALL_S else SHORT_S, data]
    if case.ends == RESET:
        parts.append(SHORT_S)  # what was sent is read before
    return Answer(status=case.status, headers=case.headers, body=tuple(parts), ends=case.ends)


def on_a_socket(case: Case) -> tuple[Sample, str]:
    """The Sample of an API case, from a server."""
    stall_s = STALL_S if case.ends == STALLED else 60
    with wire_stub(then=answer(case), everywhere=True) as stub:
        endpoint = OpenAIEndpoint(at(stub.url), key=None, model="m", provider=None,
                                  stall_s=stall_s)
        return measure(endpoint.stream(PROMPT, 4), BLANK, stall_s=case.stall_s)


def llama_on_a_socket(case: Case) -> tuple[Sample, str]:
    """The Sample of a llama-server case, from a server."""
    stall_s = STALL_S if case.ends == STALLED else 60
    with wire_stub(then=answer(case), everywhere=True) as stub:
        server = LlamaServer(stub.url, stall_s=stall_s)
        return measure(server.stream(PROMPT, 4), BLANK, stall_s=case.stall_s)


def without_times(sample: Sample) -> Sample:
    """The sample with its moments, and what connecting cost, taken out."""
    return replace(sample, arrivals_s=(0.0,) * len(sample.arrivals_s), connection=None,
                   first_byte_s=None if sample.first_byte_s is None else 0.0)
