"""What a hostile server, an odd URL or a strange captured body may not do: end in a traceback,
lose a sample, leak a secret, or make a figure of nonsense. One test for each kind that once did."""

from __future__ import annotations

import argparse
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import run_script
from request_timing.cli import prompts
from request_timing.explain.turns import explain_turns
from request_timing.prompts.as_chat import as_chat
from request_timing.prompts.captured import turn_of
from request_timing.prompts.lossless_json import parse_json
from request_timing.recorder.redaction import masked, secrets_of
from request_timing.records.run import Run
from request_timing.records.sample import Failure, Sample, ServerTimings
from request_timing.report.replay_tables import median_reuse, replay_table
from request_timing.servers.failures import retry_after_s
from request_timing.servers.llama_stream import events
from request_timing.servers.openai_stream import read_usage
from request_timing.servers.sanitize import HIDDEN, hide, secrets
from request_timing.servers.sse import Noise
from request_timing.servers.timing import Unread, Usage
from request_timing.servers.urls import address
from wire_stub import refused, wire_stub

SCRIPTS = (("api_timing.py", "--base-url"), ("local_cache.py", "--url"))
ODD_BODIES: list[dict[str, Any]] = [
    {"messages": ["hi", None]}, {"messages": []},
    {"messages": [{"role": "user", "content": ["a", {"type": "tool_result"}, "b"]}]},
    {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": None}]}]},
    {"messages": [{"role": "user", "content": None}], "tools": {"a": 1}},
    {"messages": [{"role": "user", "content": "x"}], "tools": [None, "x", {"function": None}]},
    {"input": ["a", None, {"type": "function_call", "name": "f", "arguments": {"a": 1}}]},
]


@pytest.mark.parametrize("script, flag", SCRIPTS)
@pytest.mark.parametrize("url", ["http://exa mple/v1", "http://☃..com/v1"])
def test_a_host_that_is_none_is_one_line(
    script: str, flag: str, url: str, tmp_path: Path
) -> None:
    outcome = run_script(script, flag, url, "--model", "m", "--only", "output", cwd=tmp_path,
                         save=False)
    assert outcome.status == 2 and "Traceback" not in outcome.err + outcome.out
    assert "defect" not in outcome.err and "expected" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize("value", [10**400, 10**18, 1e300])
def test_a_count_that_no_float_holds_is_no_count(value: float) -> None:
    assert read_usage({"prompt_tokens": value}).prompt_tokens is None
    last = {"stop": True, "timings": {"prompt_n": value, "cache_n": 3, "prompt_ms": value}}
    usage = next(e for e in events(iter([(0.0, last)])) if isinstance(e, Usage))
    assert usage.prompt_tokens is None and usage.server is not None
    assert usage.server.prompt_n is None
    assert usage.server.prompt_ms == (None if value == 10**400 else float(value))


def test_a_date_with_a_time_zone_of_many_digits_asks_for_no_wait() -> None:
    header = {"retry-after": "Mon, 01 Jan 2024 00:00:00 +99999999999999"}
    assert retry_after_s(header) is None


def test_what_a_url_brings_is_a_secret_in_every_spelling() -> None:
    where = address("--base-url", "http://me:pass%2Fword@h/v1?key=k%2B-secret&v=1", example="")
    found = secrets("sk-key", where)
    for spelling in ("sk-key", "SK-KEY", "pass/word", "pass%2Fword", "pass%2fword", "k+-secret",
                     "k%2B-secret", "k&#43;-secret", r"pass\/word"):
        assert hide(spelling, found) == HIDDEN
    assert "1" not in found


def test_a_llama_server_that_echoes_the_key_leaks_none() -> None:
    told = [(0.0, {"stop": True, "stop_type": "sk-secret", "model": "sk-secret"})]
    for event in [*events(iter([(0.0, Noise("sk-secret"))]), "sk-secret"),
                  *events(iter(told), "sk-secret")]:
        assert "sk-secret" not in repr(event)
    assert list(events(iter([(0.0, Noise("sk-secret"))]), "sk-secret")) == [Unread(text=HIDDEN)]


def test_a_query_echoed_in_an_error_is_not_shown(tmp_path: Path) -> None:
    with wire_stub(then=refused(400, "no such key: query-secret")) as stub:
        outcome = run_script("api_timing.py", "--base-url", f"{stub.url}?key=query-secret",
                             "--model", "m", "--only", "output", cwd=tmp_path)
    assert outcome.status == 2 and "no such key: ***" in outcome.err
    assert "query-secret" not in outcome.err


@pytest.mark.parametrize("key", ["cl\udce9-latin-key", "clé-key-unicode", "sk-😀😀😀😀"])
def test_a_key_of_any_characters_is_masked(key: str) -> None:
    found = secrets_of([("Authorization", f"Bearer {key}")])
    assert masked(f"a {key} b", found) == "a *** b"


def test_a_key_in_latin_1_is_masked_in_a_body_of_utf_8() -> None:
    assert masked("clé-latin-key", secrets_of([("x-api-key", "cl\udce9-latin-key")])) == "***"


def test_a_path_of_any_bytes_can_be_said() -> None:
    assert masked("POST /\udcff", {"abcdefgh"}) == "POST /\udcff"


def test_json_nested_beyond_measure_is_refused() -> None:
    assert parse_json("[" * 150 + "]" * 150)
    for depth in (300, 985, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json("[" * depth + "]" * depth)


@pytest.mark.parametrize("body", ODD_BODIES, ids=json.dumps)
def test_a_body_of_an_odd_shape_is_taken_as_it_is(body: dict[str, Any]) -> None:
    json.dumps(as_chat(body))
    turns = [turn_of(body, "here", "line 1"), turn_of(body, "here", "line 2")]
    assert len(list(explain_turns(turns))) == 2


@pytest.mark.parametrize("body", [
    b for b in ODD_BODIES if "messages" in b and not re.search("thinking|tool_result", str(b))],
    ids=json.dumps)
def test_a_body_of_an_odd_shape_is_replayed(body: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"model": "m"} | body) + "\n" + json.dumps(
        {"model": None, "messages": [{"role": "user", "content": "x"}]}) + "\n")
    refusal = refused(400, "no such messages")
    with wire_stub(script=[None, None, *[refusal] * 4]) as stub:
        outcome = run_script("api_timing.py", "--base-url", stub.url, "--model", "m",
                             "--replay", str(path), cwd=tmp_path)
    assert "defect" not in outcome.err and "Traceback" not in outcome.err
    assert len(outcome.samples("replay")) == 4, outcome.err


def test_a_turn_whose_prefix_was_not_answered_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps({"messages": [{"role": "user", "content": "x" * n}]}) + "\n"
                            for n in (100, 200, 300)))
    with wire_stub(script=[None, None, refused(400, "no"), refused(400, "no")]) as stub:
        outcome = run_script("api_timing.py", "--base-url", stub.url, "--model", "m",
                             "--replay", str(path), cwd=tmp_path)
    first, second, third = outcome.samples("replay", "as_sent")
    assert first["error"] is not None and third["error"] is None
    assert any(note.startswith("void") for note in second["notes"])
    assert not any(note.startswith("void") for note in third["notes"])


class _Templates(http.server.BaseHTTPRequestHandler):
    """As much of a llama-server as a replay needs; its template refuses the second turn."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._say({"default_generation_settings": {"n_ctx": 99999}, "total_slots": 1,
                   "model_path": "m.gguf", "status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._say({"tokens": list(body["content"].encode())})
        elif self.path == "/apply-template":
            text = body["messages"][-1]["content"]
            refuses = "two" in text
            self._say({"error": {"message": "roles must alternate"}} if refuses
                      else {"prompt": text}, 500 if refuses else 200)
        else:
            size = len(body["prompt"].encode())
            self._say({"content": "x", "stop": True, "tokens_evaluated": size, "stop_type": "limit",
                       "timings": {"cache_n": 0, "prompt_n": size, "prompt_ms": 1.0,
                                   "predicted_n": 1, "predicted_ms": 1.0}}, stream=True)

    def _say(self, data: Any, status: int = 200, *, stream: bool = False) -> None:
        sent = json.dumps(data).encode()
        sent = b"data: " + sent + b"\n\n" if stream else sent
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@contextmanager
def _templates() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Templates) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_turn_that_the_template_refuses_is_a_failed_sample(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps({"messages": [{"role": "user", "content": text}]}) + "\n"
                            for text in ("abc one", "abc two", "abc three")))
    with _templates() as url:
        outcome = run_script("local_cache.py", "--url", url, "--replay", str(path), cwd=tmp_path)
    assert len(outcome.samples("replay")) == 3, outcome.err
    one, two, three = outcome.samples("replay", "as_sent")
    assert two["error"]["message"] == "roles must alternate"
    assert one["error"] is None and three["error"] is None
    # Set beside the last turn that was answered, which is the first.
    assert three["shared_chars"] - one["prompt_chars"] == len("abc ") - len("abc one")


def _turn(number: int, cached: int | None, **more: Any) -> Sample:
    return Sample(experiment="replay", arm="as_sent", turn=number, repeat=1, sent_at="",
                  prompt_chars=10, prompt_hash="", asked_output_tokens=1, prompt_tokens=100,
                  cached_tokens=cached, **more)


def test_fail_under_takes_failed_turns_for_misses() -> None:
    error = Failure(kind="reset", message="gone")
    assert median_reuse([_turn(1, 0), _turn(2, 95), _turn(3, 95), _turn(4, 90)]) == 0.95
    assert median_reuse([_turn(1, 0), _turn(2, 95)] + [
        _turn(n, None, error=error) for n in (3, 4)]) == 0
    assert median_reuse([_turn(1, 0), _turn(2, 900), _turn(3, 95), _turn(4, 0)]) == 0
    assert median_reuse([_turn(1, 0), _turn(2, None)]) is None


def test_a_replay_of_long_slow_turns_fits_80_columns() -> None:
    slow = ServerTimings(cache_n=10, prompt_n=199_990, prompt_ms=1.5e6)
    samples = [replace(_turn(n, 10), prompt_tokens=200_000, shared_tokens=10, server=slow,
                       notes=("broke: a counter",)) for n in (1, 2, 3)]
    assert max(map(len, replay_table(samples, native=True).splitlines())) <= 80


def test_a_share_just_below_is_not_said_to_be_the_share() -> None:
    run = SimpleNamespace(samples=[_turn(1, 0), replace(_turn(2, 8996), prompt_tokens=10000)])
    said = prompts.under(argparse.Namespace(fail_under=0.9), cast(Run, run))
    assert said is not None and "of 90% from turn 2, found 89.96%" in said
