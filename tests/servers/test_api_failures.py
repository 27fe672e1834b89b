"""api_timing.py where the provider fails, lies or refuses: what is said, and what never is."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from conftest import assert_one_line, at, environment, no_patience, run_script
from request_timing.errors import UserError, one_line
from request_timing.experiments.calibration import calibrate
from request_timing.records.sample import Sample
from request_timing.servers import openai_endpoint
from request_timing.servers.backend import USER, Message
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.openai_models import choose_model
from request_timing.servers.providers import PROVIDERS
from request_timing.servers.timing import measure
from wire_stub import (
    CUT,
    DONE,
    SILENT,
    STALLED,
    Answer,
    Stub,
    piece,
    refused,
    said,
    sse,
    wire_stub,
)

KEY = "sk-stub-0123456789"
OWN = "ai-builder"
SHORT = ("--only", "output", "--outputs", "4", "--quiet")
JSON, HTML = "application/json", "text/html; charset=utf-8"
WHOLE_COMPLETION = json.dumps({
    "id": "c", "object": "chat.completion", "created": 1, "model": "stub", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]})
ONE, END = piece(content="one"), piece(finish="stop")


def endpoint(stub: Stub, *, provider: str | None = None, model: str | None = "m",
             key: str | None = None, url: str | None = None) -> OpenAIEndpoint:
    row = None if provider is None else PROVIDERS[provider]
    return OpenAIEndpoint(at(url or stub.url), key=key, model=model, provider=row)


def trouble(answer: Answer, **known: Any) -> str:
    """What the run says, and ends with, when its first request gets this answer."""
    with wire_stub(then=answer) as stub, pytest.raises(UserError) as raised:
        calibrate(endpoint(stub, **known), (20, 1000), no_patience())
    return str(raised.value)


def sample_of(answer: Answer, **known: Any) -> Sample:
    """The sample when a later request gets this answer."""
    blank = Sample(experiment="length", arm="1", turn=1, repeat=1, sent_at="", prompt_chars=5,
                   prompt_hash="", asked_output_tokens=4)
    with wire_stub(then=answer) as stub:
        events = endpoint(stub, **known).stream((Message(USER, "hello"),), 4)
        return measure(events, blank)[0]


@pytest.mark.parametrize("alive", [(), (0.05, b": alive\n\n") * 200], ids=["silent", "alive"])
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_stream_held_open_behind_its_answer_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: tuple[bytes | float, ...], secure: bool
) -> None:
    """No stall time-out is given: without the hanging up this would wait for an hour."""
    monkeypatch.setattr(openai_endpoint, "AFTER_END_S", 0.2)
    context = None
    if secure:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    answer = Answer(body=(ONE, END, *alive), ends=STALLED)
    blank = Sample(experiment="length", arm="1", turn=1, repeat=1, sent_at="", prompt_chars=5,
                   prompt_hash="", asked_output_tokens=4)
    with wire_stub(then=answer, tls=context) as stub:
        asked = endpoint(stub)
        for _ in range(2):  # and the next request is answered like the first
            sample, text = measure(asked.stream((Message(USER, "hello"),), 4), blank)
            assert (sample.error, sample.finish_reason, text) == (None, "stop", "one")


def test_an_answer_that_goes_on_behind_its_end_is_not_hung_up_on(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_endpoint, "AFTER_END_S", 0.4)
    again = piece(finish="stop", content="one")
    sample = sample_of(Answer(body=(again, *(0.2, again) * 5), ends=STALLED))
    assert (sample.error, sample.finish_reason, len(sample.arrivals_s)) == (None, "stop", 6)
    # Nothing hangs up on a pause in the middle of an answer.
    sample = sample_of(Answer(body=(END, 0.1, ONE, 0.8, ONE, END)))
    assert (sample.error, len(sample.arrivals_s)) == (None, 2)


def test_of_a_captured_body_one_answer_is_asked() -> None:
    with wire_stub() as stub:
        list(endpoint(stub).stream_body({"messages": [], "n": 2, "temperature": 0.5}, 4))
        assert "n" not in stub.chats[-1].body and stub.chats[-1].body["temperature"] == 0.5


FAILURES: dict[str, tuple[Answer, str, int | None, str]] = {
    "html": (said(HTML, "<!doctype html>\n<title>Welcome</title>"), "no_api", 200, "HTML page"),
    "401": (refused(401, "no such key"), "key", 401, "HTTP 401: no such key"),
    "403": (refused(403, "not yours"), "key", 403, "HTTP 403: not yours"),
    "404": (said("text/plain", "404 page\nnot found", 404), "http", 404, "HTTP 404: 404 page not"),
    "404_html": (said(HTML, "<h1>Not Found</h1>", 404), "no_api", 404, "HTTP 404: <h1>Not Found"),
    "429": (refused(429, "slow down"), "rate_limited", 429, "HTTP 429: slow down"),
    "500_empty": (Answer(status=500), "http", 500, "HTTP 500"),
    "fastapi": (said(JSON, '{"detail": "Model not found"}', 404), "unknown_model", 404,
                "Model not found"),
    "error_in_stream": (Answer(body=(ONE, sse({"error": {"message": "out of memory"}}))),
                        "error_in_answer", 200, "out of memory"),
    "no_json": (Answer(body=(b"data: <b>oops</b>\n\n", DONE)), "no_json", 200, "<b>oops</b>"),
    "no_finish_reason": (Answer(body=(ONE, DONE)), "incomplete", None, "without a finish_reason"),
    "no_answer": (Answer(ends=SILENT), "reset", None, "disconnected"),
}


@pytest.mark.parametrize(("answer", "kind", "status", "words"), FAILURES.values(),
                         ids=FAILURES.keys())
def test_a_failure_is_one_line_before_the_run_and_a_failed_sample_in_it(
    answer: Answer, kind: str, status: int | None, words: str
) -> None:
    message = trouble(answer)
    assert words in message
    assert message == one_line(message, limit=1000)  # one line, printable, and all of it shown
    sample = sample_of(answer)
    assert sample.error is not None
    assert (sample.error.kind, sample.error.http_status) == (kind, status)
    assert words in sample.error.message
    assert not sample.counts


def test_a_connection_cut_in_mid_stream_keeps_what_came() -> None:
    cut = Answer(body=(ONE, ONE), ends=CUT)
    assert "peer closed connection" in trouble(cut)
    sample = sample_of(cut)
    assert sample.error is not None and sample.error.kind == "reset"
    assert len(sample.arrivals_s) == 2


@pytest.mark.parametrize("answer", [
    said(JSON, '{"error": {"message": "insufficient balance"}}'),
    Answer(body=(sse({"error": {"message": "insufficient balance"}}),)),
    Answer(body=(sse({"error": "insufficient balance"}), DONE)),
    # An event stream by its header, an error object by its body.
    Answer(body=(b'{"error": {"message": "insufficient balance"}}',)),
], ids=["json", "event", "string", "bare"])
def test_an_error_under_http_200_is_shown_for_what_it_is(answer: Answer) -> None:
    message = trouble(answer, provider=OWN, model="deepseek")
    assert "insufficient balance" in message
    assert "stream here" not in message  # the model streams; its account is empty
    sample = sample_of(answer)
    assert sample.error is not None and "insufficient balance" in sample.error.message


@pytest.mark.parametrize("answer", [
    refused(400, "streaming is not supported for this model"),
    said(JSON, '{"detail": "Streaming is not supported for this model"}', 422),
    said(JSON, WHOLE_COMPLETION),
], ids=["400", "422", "whole"])
def test_a_model_that_does_not_stream(answer: Answer) -> None:
    message = trouble(answer, provider=OWN, model="kimi-k3")
    for word in ("kimi-k3", "does not stream", "deepseek", "grok-4-fast", "--model"):
        assert word in message
    elsewhere = trouble(answer)
    assert "stream" in elsewhere and "deepseek" not in elsewhere


@pytest.mark.parametrize("answer", [
    refused(502, "upstream connect error or disconnect"),
    refused(503, "no healthy upstream"),
], ids=["502", "503"])
def test_an_upstream_is_no_stream(answer: Answer) -> None:
    assert "does not stream" not in trouble(answer, provider=OWN, model="deepseek")
    assert "that streams" not in trouble(answer)


def test_a_refused_key_is_about_the_key_whatever_the_model() -> None:
    message = trouble(refused(401, "invalid token"), provider=OWN, model="kimi-k3", key=KEY)
    assert "AI_BUILDER_TOKEN" in message
    assert "stream here" not in message
    assert "--api-key-env" in trouble(refused(401, "who are you?"))


def test_the_advice_of_a_page_is_the_base_url() -> None:
    assert "base URL" in trouble(FAILURES["html"][0], provider=OWN, model="deepseek")


# The key wherever a server may put it: each ends up in another field of the record.
ECHOES: dict[str, Answer] = {
    "error_body": refused(401, f"invalid key {KEY}"),
    "page": said(HTML, f"<p>Your header: Bearer {KEY}</p>"),
    "error_200": said(JSON, json.dumps({"error": {"message": KEY}})),
    "completion_200": said(JSON, json.dumps({"choices": [], "debug": {"key": KEY}})),
    "in_stream": Answer(body=(ONE, sse({"error": {"message": f"key {KEY} expired"}}))),
    "not_json": Answer(body=(ONE, f"data: key={KEY}\n\n".encode())),
    "long": refused(400, "x" * 290 + KEY),  # where the message is cut
    "finish_reason": Answer(body=(ONE, piece(finish=KEY), DONE)),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES.keys())
def test_no_echo_of_the_key_is_kept(answer: Answer) -> None:
    kept = json.dumps(sample_of(answer, key=KEY).to_json())
    assert KEY[:-2] not in kept
    if answer is not ECHOES["finish_reason"]:
        assert KEY[:-2] not in trouble(answer, key=KEY)


def test_no_echo_of_the_key_among_the_models() -> None:
    with wire_stub(models=["one", f"for-{KEY}"]) as stub, pytest.raises(UserError) as raised:
        choose_model(endpoint(stub, key=KEY, model=None))
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("echo", ["in_stream", "error_body"])
def test_the_key_is_in_nothing_that_a_run_leaves(tmp_path: Path, echo: str) -> None:
    with wire_stub(script=[None, None], then=ECHOES[echo]) as stub:
        outcome = run_script("api_timing.py", "--base-url", stub.url, "--api-key-env", "STUB_KEY",
                             "--only", "output", "--outputs", "4", cwd=tmp_path,
                             env=environment(STUB_KEY=KEY, OPENAI_LOG="debug"))
    assert outcome.status == 1
    assert stub.chats[-1].headers["authorization"] == f"Bearer {KEY}"
    assert "failed" in outcome.err and "failed" in outcome.out
    for text in (outcome.out, outcome.err, json.dumps(outcome.record)):
        assert KEY not in text


@pytest.mark.parametrize("flags", [SHORT[:-1], ("--dry-run",)], ids=["run", "dry_run"])
def test_credentials_in_the_base_url_are_sent_and_never_shown(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    with wire_stub() as stub:
        url = stub.url.replace("http://", "http://user:hunter2@")
        outcome = run_script("api_timing.py", "--base-url", url, *flags, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    if outcome.record:
        assert stub.chats[0].headers["authorization"].startswith("Basic ")
    for text in (outcome.out, outcome.err, json.dumps(outcome.record)):
        assert "hunter2" not in text


def test_the_command_says_it_in_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    with wire_stub(then=refused(401, "no such key\nat all")) as stub:
        outcome = run_script("api_timing.py", "--base-url", stub.url, *SHORT, cwd=tmp_path)
    assert_one_line(outcome, 2, "HTTP 401: no such key at all", "--api-key-env")
    assert list(tmp_path.iterdir()) == []
    assert len(stub.chats) == 1


@pytest.mark.parametrize(("models", "words"), [
    ([], "no model"), (["a", "b"], "lists 2: a, b"), ([str(n) for n in range(30)], "..."),
])
def test_a_model_that_has_to_be_chosen(models: list[str], words: str) -> None:
    with wire_stub(models=models) as stub, pytest.raises(UserError) as raised:
        choose_model(endpoint(stub, model=None))
    assert words in str(raised.value) and "--model" in str(raised.value)
    assert stub.chats == []
