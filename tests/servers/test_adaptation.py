"""What an endpoint refuses, asks to wait for, or breaks: learnt, waited for or said (commands)."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from conftest import Outcome, assert_one_line, environment, run_script
from wire_stub import ENDLESS, STALLED, Answer, Asked, Stub, piece, refused, said, sse, wire_stub

API = "api_timing.py"
KEY = "sk-stub-0123456789"
JSON = "application/json"
CALIBRATION = 2
OUTPUT = ("--only", "output", "--outputs", "4,8", "--repeats", "1")
CACHE = ("--only", "cache", "--context", "300", "--turns", "3")


def timed(stub: Stub, cwd: Path, *flags: str, url: str = "", save: bool = True,
          env: dict[str, str] | None = None) -> Outcome:
    return run_script(API, "--base-url", url or stub.url, "--model", "stub", *(flags or OUTPUT),
                      cwd=cwd, env=environment(**(env or {})), save=save)


class Picky(Stub):
    """A stub that refuses some fields of a request, with an answer for each."""

    refusals: dict[str, Answer]

    def answer(self, request: Asked) -> Answer:
        for field, answer in self.refusals.items():
            if isinstance(request.body, dict) and field in request.body:
                return answer
        return super().answer(request)


FASTAPI = {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options",
                                                          "include_usage"],
                       "msg": "Extra inputs are not permitted"}]}
WANTS_COMPLETION = ("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                    "'max_completion_tokens' instead.")
REFUSALS: dict[str, tuple[dict[str, Answer], str]] = {
    # openai/openai-agents-python#442
    "stream_options_422": ({"stream_options": said(JSON, json.dumps(FASTAPI), 422)},
                           "stream_options was refused"),
    # anomalyco/opencode#4698
    "stream_options_400": ({"stream_options": refused(400, "Unknown field: stream_options")},
                           "stream_options was refused"),
    "says_nothing": ({"stream_options": Answer(status=400)}, "stream_options was refused"),
    "param_alone": ({"stream_options": said(JSON, json.dumps({"error": {
        "message": "Unsupported parameter", "param": "stream_options"}}), 500)},
        "stream_options was refused"),
    # SilasMarvin/lsp-ai#95
    "max_tokens": ({"max_tokens": refused(400, WANTS_COMPLETION)},
                   "max_tokens was refused: max_completion_tokens is sent instead"),
    "max_tokens_200": ({"max_tokens": said(JSON, json.dumps({"error": {
        "message": WANTS_COMPLETION}}))}, "max_completion_tokens is sent instead"),
}


@pytest.mark.parametrize(("refusals", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refused_field_costs_one_probe_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: dict[str, Answer], says: str
) -> None:
    with wire_stub(kind=Picky) as stub:
        assert isinstance(stub, Picky)
        stub.refusals = refusals
        outcome = timed(stub, tmp_path)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    assert any(says in note for note in outcome.record["notes"])
    assert says in outcome.err and says in " ".join(outcome.out.split())
    field = next(iter(refusals))
    assert [field in chat.body for chat in stub.chats] == [True] + [False] * (CALIBRATION + 2)
    assert outcome.record["endpoint"]["learnt"] and all(
        sample["error"] is None for sample in outcome.samples("output"))


def test_several_refused_fields_are_learnt_one_by_one(tmp_path: Path) -> None:
    with wire_stub(kind=Picky) as stub:
        assert isinstance(stub, Picky)
        stub.refusals = {"max_tokens": refused(400, WANTS_COMPLETION),
                         "stream_options": refused(400, "stream_options is not allowed")}
        outcome = timed(stub, tmp_path)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    assert outcome.record["endpoint"]["sent"] == {
        "limit_parameter": "max_completion_tokens", "stream_options": None}
    assert len(stub.chats) == 2 + CALIBRATION + 2


def test_both_names_of_the_limit_refused_is_one_line(tmp_path: Path) -> None:
    with wire_stub(kind=Picky) as stub:
        assert isinstance(stub, Picky)
        stub.refusals = {"max_tokens": refused(400, "max_tokens: no"),
                         "max_completion_tokens": refused(400, "max_completion_tokens: no"),
                         "stream_options": refused(400, "no")}
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet")
    assert_one_line(outcome, 2, "max_completion_tokens: no")
    assert len(stub.chats) == 3  # as it is, with the other name, and without stream_options


def waits(status: int, words: str, **headers: str) -> Answer:
    return Answer(status=status, headers={"Content-Type": JSON} | {
        name.replace("_", "-"): value for name, value in headers.items()},
        body=(json.dumps({"error": {"message": words}}).encode(),))


@pytest.mark.parametrize("answer", [
    waits(429, "slow down", Retry_After="0"), waits(503, "busy", Retry_After="0"),
    waits(429, "slow down", retry_after_ms="20"), waits(529, "overloaded", Retry_After="0"),
    waits(503, "Loading model", Retry_After="0"),
], ids=["429", "503", "ms", "529", "loading"])
def test_a_wait_is_outside_the_clock_and_the_request_is_asked_again(
    tmp_path: Path, answer: Answer
) -> None:
    script = [None] * CALIBRATION + [answer, answer, None, None]
    with wire_stub(script=script) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet")
    assert outcome.status == 0, outcome.err
    assert len(stub.chats) == CALIBRATION + 4
    first, second = outcome.samples("output")
    assert first["error"] is None and second["error"] is None
    assert any(note.startswith("waited: 0.2 s") for note in first["notes"])
    assert second["notes"] == []
    assert [line.split(":")[0] for line in outcome.err.splitlines()] == ["waiting 0.1 s"] * 2
    assert "waited" in outcome.out


@pytest.mark.parametrize(("code", "words"), [(429, "rate limit exceeded"), (503, "overloaded")])
def test_what_has_begun_to_answer_is_not_asked_again(tmp_path: Path, code: int, words: str) -> None:
    """It was paid for: it stays in the record, and in the bill."""
    cut = Answer(body=(piece(content="a"), piece(content=" b"),
                       sse({"error": {"message": words, "code": code}})))
    with wire_stub(script=[None] * CALIBRATION + [cut, None]) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet")
    assert outcome.status == 1
    assert len(stub.chats) == CALIBRATION + 2
    failed, = (s for s in outcome.samples("output") if s["error"])
    assert len(failed["arrivals_s"]) == 2 and not failed["notes"]


def test_a_wait_longer_than_allowed_is_a_failed_sample(tmp_path: Path) -> None:
    asks = waits(429, "slow down", Retry_After="3600")
    with wire_stub(script=[None] * CALIBRATION + [asks, None]) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--max-wait", "5")
    assert outcome.status == 1
    assert len(stub.chats) == CALIBRATION + 2
    errors = [sample["error"] for sample in outcome.samples("output")]
    assert sorted(error is None for error in errors) == [False, True]
    error = next(error for error in errors if error)
    assert (error["kind"], error["retry_after_s"]) == ("rate_limited", 3600)
    assert "--max-wait allows 5 s" in outcome.err


def test_no_credit_is_not_waited_for(tmp_path: Path) -> None:
    broke = waits(429, "You exceeded your current quota, please check your plan and billing",
                  Retry_After="1")
    with wire_stub(then=broke) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet")
    assert_one_line(outcome, 2, "exceeded your current quota", "credit")
    assert len(stub.chats) == 1


def script_of(fails: list[int], answer: Answer, last: int) -> list[Answer | None]:
    return [answer if number in fails else None for number in range(last)]


def test_a_failed_priming_turn_voids_those_after_it_in_its_arm(tmp_path: Path) -> None:
    """Of every arm, turn 1 fails; turn 2 then primes, and is not judged."""
    first_turn = list(range(CALIBRATION, CALIBRATION + 5))
    script = script_of(first_turn, refused(500, "boom"), CALIBRATION + 5)
    with wire_stub(script=script) as stub:
        # Five in a row of one kind would end the experiment.
        stub.script = [answer if number % 2 else (answer and said("text/html", "<p>gone"))
                       for number, answer in enumerate(script)]
        outcome = timed(stub, tmp_path, *CACHE)
    for arm in ("append", "prepend", "repeat"):
        turns = {s["turn"]: s for s in outcome.samples("cache", arm)}
        assert turns[1]["error"] is not None
        assert [any(note.startswith("void") for note in turns[n]["notes"]) for n in (2, 3)] == [
            True, False]
    assert "void: no earlier turn of this arm was answered" in outcome.err
    assert "void: no earlier turn" in outcome.out


def test_five_failures_in_a_row_of_one_kind_end_the_experiment_not_the_run(tmp_path: Path) -> None:
    flags = ("--only", "length,output", "--lengths", "100,200,300,400,500,600,700", "--outputs",
             "4,8", "--repeats", "1")
    fails = list(range(CALIBRATION + 1, CALIBRATION + 6))
    with wire_stub(script=script_of(fails, refused(500, "boom"), CALIBRATION + 6)) as stub:
        outcome = timed(stub, tmp_path, *flags)
    assert outcome.status == 1
    assert len(outcome.samples("length")) == 6
    assert [s["error"] for s in outcome.samples("output")] == [None, None]
    text = "length ended early: 5 failures in a row of one kind (http)"
    assert text in outcome.err and text in outcome.out
    assert outcome.record is not None and outcome.record["complete"] is True


def test_failures_of_several_kinds_do_not_end_it(tmp_path: Path) -> None:
    flags = ("--only", "length", "--lengths", "100,200,300,400,500,600,700", "--repeats", "1")
    mixed = [refused(500, "boom") if n % 2 else said("text/html", "<p>no") for n in range(7)]
    with wire_stub(script=[*[None] * CALIBRATION, *mixed]) as stub:
        outcome = timed(stub, tmp_path, *flags)
    assert len(outcome.samples("length")) == 7 and "ended early" not in outcome.err


def test_a_length_that_is_too_long_is_asked_once(tmp_path: Path) -> None:
    class Small(Stub):
        def answer(self, request: Asked) -> Answer:
            if request.body and self.tokens(request) > 500:
                return refused(400, "This model's maximum context length is 500 tokens")
            return super().answer(request)

    with wire_stub(kind=Small) as stub:
        outcome = timed(stub, tmp_path, "--only", "length", "--lengths", "100,300,900",
                        "--repeats", "3")
    assert outcome.status == 1  # 900 has no sample, and says why
    kinds: dict[str, list[str | None]] = {s["arm"]: [] for s in outcome.samples("length")}
    for sample in outcome.samples("length"):
        kinds[sample["arm"]].append(sample["error"] and sample["error"]["kind"])
    assert kinds == {"100": [None] * 3, "300": [None] * 3, "900": ["context"]}


class Versioned(Stub):
    """Answers below /v1 alone, as vLLM and SGLang do."""

    def answer(self, request: Asked) -> Answer:
        if not request.path.startswith("/v1/"):
            return said(JSON, '{"detail": "Not Found"}', 404)
        return super().answer(request)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions",
                                  "/chat/completions", "/v1/models"])
@pytest.mark.parametrize("model", [True, False], ids=["model", "no_model"])
def test_a_base_url_with_or_without_its_version(tmp_path: Path, path: str, model: bool) -> None:
    with wire_stub(kind=Versioned) as stub:
        url = stub.url.removesuffix("/v1") + path
        named = ("--model", "stub") if model else ()
        outcome = run_script(API, "--base-url", url, *named, *OUTPUT, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None and outcome.record["endpoint"]["url"] == stub.url
    learnt = outcome.record["endpoint"]["learnt"]
    assert bool(learnt) == ("/v1" not in path)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/completions", "/v1/messages",
                                  "/v1/embeddings", "/api/chat"])
def test_the_path_of_another_interface_is_refused_by_name(tmp_path: Path, path: str) -> None:
    outcome = run_script(API, "--base-url", f"http://127.0.0.1:1{path}", *OUTPUT, cwd=tmp_path)
    assert_one_line(outcome, 2, path.removeprefix("/v1"), "base URL")


def test_a_query_of_the_base_url_is_sent_and_never_shown(tmp_path: Path) -> None:
    with wire_stub() as stub:
        outcome = timed(stub, tmp_path, url=f"{stub.url}?api-version=2&code=hunter2")
    assert outcome.status == 0, outcome.err
    assert all("api-version=2" in chat.path for chat in stub.asked)
    for text in (outcome.out, outcome.err, json.dumps(outcome.record)):
        assert "hunter2" not in text


def test_a_moved_address_is_not_followed(tmp_path: Path) -> None:
    moved = Answer(status=301, headers={"Location": "https://elsewhere.example/v1?key=hunter2"})
    with wire_stub(then=moved) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet")
    assert_one_line(outcome, 2, "moved to https://elsewhere.example/v1;")
    assert len(stub.chats) == 1


DEAD_PROXY = "http://127.0.0.1:9"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_loopback_never_goes_through_a_proxy(tmp_path: Path, name: str) -> None:
    with wire_stub() as stub:
        outcome = timed(stub, tmp_path, env={name: DEAD_PROXY})
        elsewhere = timed(stub, tmp_path, *OUTPUT, "--quiet", save=False,
                          url="http://model.example/v1", env={name: DEAD_PROXY})
    assert outcome.status == 0, outcome.err
    assert elsewhere.status == 2
    variable = name.upper()
    assert variable in elsewhere.err and "NO_PROXY" in elsewhere.err


@pytest.mark.parametrize(("name", "value", "words"), [
    ("HTTP_PROXY", "what is this", "HTTP_PROXY"),
    ("HTTP_PROXY", "socks5://127.0.0.1:9", "HTTP_PROXY"),
    ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE"),
])
def test_a_variable_that_makes_no_sense_is_named(
    tmp_path: Path, name: str, value: str, words: str
) -> None:
    with wire_stub() as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet", url="http://model.example/v1",
                        env={name: value})
    assert_one_line(outcome, 2, words)


def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with wire_stub(tls=context) as stub:
        unknown = timed(stub, tmp_path, *OUTPUT, "--quiet")
        known = timed(stub, tmp_path, env={"SSL_CERT_FILE": str(tmp_path / "ca.pem")})
    assert_one_line(unknown, 2, "certificate verify failed", "SSL_CERT_FILE")
    assert known.status == 0, known.err
    assert known.samples("output")[0]["connection"]["new"] is False


def test_an_unknown_model_comes_with_the_list_of_those_there_are(tmp_path: Path) -> None:
    gone = refused(404, "The model `stub` does not exist or you do not have access to it")
    with wire_stub(then=gone, models=["alpha", "beta"]) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--quiet")
    assert_one_line(outcome, 2, "does not exist", "alpha, beta", "--model")


def test_a_stream_that_is_kept_alive_and_brings_nothing_is_stalled(tmp_path: Path) -> None:
    class Endless(Stub):
        def answer(self, request: Asked) -> Answer:
            if len(self.chats) <= CALIBRATION:
                return super().answer(request)
            return Answer(body=(b": keep-alive\n\n",), ends=ENDLESS)

    with wire_stub(kind=Endless) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--stall-timeout", "0.3")
    assert outcome.status == 1
    assert {s["error"]["kind"] for s in outcome.samples("output")} == {"stalled"}
    assert "--stall-timeout" in outcome.err


def test_a_silent_server_is_stalled(tmp_path: Path) -> None:
    class Mute(Stub):
        def answer(self, request: Asked) -> Answer:
            if len(self.chats) <= CALIBRATION:
                return super().answer(request)
            return Answer(body=(), ends=STALLED)

    with wire_stub(kind=Mute) as stub:
        outcome = timed(stub, tmp_path, *OUTPUT, "--stall-timeout", "0.3")
    assert outcome.status == 1
    assert {s["error"]["kind"] for s in outcome.samples("output")} == {"stalled"}


HAIKU = "古池や蛙飛び込む水の音。" * 400


@pytest.mark.parametrize(("encoding", "flags"), [
    ("utf-8", ()), ("utf-8-sig", ()), ("utf-16", ()), ("utf-32", ()),
    ("shift_jis", ("--encoding", "shift_jis")), ("euc_jp", ("--encoding", "EUC-JP")),
])
def test_a_document_of_any_encoding(tmp_path: Path, encoding: str, flags: tuple[str, ...]) -> None:
    (tmp_path / "haiku.txt").write_bytes(HAIKU.encode(encoding))
    with wire_stub() as stub:
        outcome = timed(stub, tmp_path, "--only", "cache", "--turns", "2", "--doc", "haiku.txt",
                        *flags)
    assert outcome.status == 0, outcome.err
    sent = [chat for chat in stub.chats if HAIKU in chat.messages[0]["content"]]
    assert len(sent) == 10


@pytest.mark.parametrize(("flags", "says"), [
    (("--encoding", "klingon"), ("--encoding klingon", "text encoding")),
    (("--encoding", "base64"), ("--encoding base64", "text encoding")),
    (("--encoding", "ascii"), ("ASCII", "offset 0")),
])
def test_an_encoding_that_is_none(tmp_path: Path, flags: tuple[str, ...], says: tuple[str, ...]
                                  ) -> None:
    (tmp_path / "haiku.txt").write_text(HAIKU, encoding="utf-8")
    outcome = run_script(API, "--base-url", "http://127.0.0.1:1/v1", "--only", "cache", "--doc",
                         "haiku.txt", *flags, cwd=tmp_path)
    assert_one_line(outcome, 2, *says)


def test_a_document_is_cut_by_the_servers_own_count(tmp_path: Path) -> None:
    """CJK text has more tokens a character than filler has; the stub counts them so."""
    class Dense(Stub):
        def tokens(self, request: Asked) -> int:
            text = "".join(m["content"] for m in request.messages)
            return self.head_tokens + sum(3 if ord(c) > 127 else 1 for c in text) // 2

    (tmp_path / "haiku.txt").write_text(HAIKU, encoding="utf-8")
    with wire_stub(kind=Dense) as stub:
        outcome = timed(stub, tmp_path, "--only", "cache", "--turns", "2", "--doc", "haiku.txt",
                        "--context", "900")
    assert outcome.status == 0, outcome.err
    first: dict[str, Any] = next(s for s in outcome.samples("cache", "append") if s["turn"] == 1)
    assert first["prompt_tokens"] == pytest.approx(900, rel=0.1)


def test_a_prompt_that_is_cut_in_silence_is_said(tmp_path: Path) -> None:
    """ollama/ollama#17889: HTTP 200, 2,050 tokens counted of 7,900."""
    class Cutting(Stub):
        def tokens(self, request: Asked) -> int:
            return min(1000, super().tokens(request))

    with wire_stub(kind=Cutting) as stub:
        outcome = timed(stub, tmp_path, "--only", "length", "--lengths", "300,900,4000",
                        "--repeats", "1")
    assert "1 of 3 prompts are counted as far fewer tokens than they have" in " ".join(
        outcome.out.split())
