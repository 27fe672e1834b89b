"""llama-servers as people run them: behind a key, below a prefix, with slots, asleep, restarted."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, assert_one_line, environment, run_script
from request_timing.records.journal import journal_path
from request_timing.records.run import load_run
from served import CONTEXT_TOKENS, served
from wire_stub import EVENT_STREAM, Answer, Asked, Stub, said, sse, wire_stub

API, LOCAL = "api_timing.py", "local_cache.py"
KEY = "sk-llama-0123456789"
OUTPUT = ("--only", "output", "--outputs", "8", "--repeats", "1")
CACHE = ("--only", "cache", "--context", "2000", "--turns", "3")


@pytest.fixture(scope="module")
def guarded(dense_model: Path) -> Iterator[str]:
    """A server with a key, below a prefix, with two slots."""
    with served(dense_model, api_keys=[KEY], api_prefix="/llm", n_parallel=2) as url:
        yield f"{url}/llm"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/chat/completions", "/completion",
                                  "/health"])
def test_a_key_a_prefix_and_slots(guarded: str, tmp_path: Path, path: str) -> None:
    outcome = run_script(LOCAL, "--url", guarded + path, "--api-key-env", "LLAMA_KEY", *CACHE,
                         cwd=tmp_path, env=environment(LLAMA_KEY=KEY))
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    assert outcome.record["endpoint"]["url"] == guarded
    assert outcome.record["endpoint"]["slots"] == 2
    assert outcome.record["endpoint"]["context_tokens"] == CONTEXT_TOKENS // 2
    assert "2 slots" in outcome.err and "-np 1" in outcome.err
    assert {v["arm"]: v["code"] for v in outcome.record["verdicts"]} == {
        "append": "hit", "prepend": "no_hit"}
    for text in (outcome.out, outcome.err, json.dumps(outcome.record)):
        assert KEY not in text


def test_the_same_server_as_an_api(guarded: str, tmp_path: Path) -> None:
    outcome = run_script(API, "--base-url", guarded, "--api-key-env", "LLAMA_KEY", *OUTPUT,
                         cwd=tmp_path, env=environment(LLAMA_KEY=KEY))
    assert outcome.status == 0, outcome.err
    assert outcome.samples("output")[0]["usage_raw"]["timings"]["predicted_n"] == 8


def test_a_key_that_is_missing_or_wrong(guarded: str, tmp_path: Path) -> None:
    missing = run_script(LOCAL, "--url", guarded, *OUTPUT, cwd=tmp_path)
    assert_one_line(missing, 2, "wants a key (HTTP 401)", "--api-key-env")
    wrong = run_script(LOCAL, "--url", guarded, "--api-key-env", "LLAMA_KEY", *OUTPUT,
                       cwd=tmp_path, env=environment(LLAMA_KEY="wrong-0123456789"))
    assert_one_line(wrong, 2, "HTTP 401", "--api-key-env")
    unset = run_script(LOCAL, "--url", guarded, "--api-key-env", "LLAMA_KEY", *OUTPUT,
                       cwd=tmp_path)
    assert_one_line(unset, 2, "expected a key")


def test_a_server_that_falls_asleep_and_wakes(dense_model: Path, tmp_path: Path) -> None:
    """`--sleep-idle-seconds`: the model is unloaded when idle, and loaded by the next request."""
    with served(dense_model, sleep_idle_seconds=1) as url:
        time.sleep(2)
        outcome = run_script(LOCAL, "--url", url, *CACHE, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    assert outcome.record["verdicts"][0]["code"] == "hit"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def samples_in(journal: Path) -> int:
    """Samples in a journal; none before it is there, or after the run has removed it."""
    return len(load_run(journal).samples) if journal.exists() else 0


@pytest.mark.parametrize("script", [LOCAL, API])
def test_a_server_that_goes_away_in_mid_run_and_comes_back(
    dense_model: Path, tmp_path: Path, script: str
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    out = tmp_path / "run.json"
    where = ("--url", url) if script == LOCAL else ("--base-url", f"{url}/v1")
    command = [sys.executable, str(ROOT / script), *where, "--only", "length", "--lengths",
               ",".join(str(n) for n in range(1500, 7500, 250)), "--repeats", "2",
               "--max-wait", "120", "--out", str(out)]
    with served(dense_model, port=port):
        running = subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        journal = journal_path(out)
        while running.poll() is None and samples_in(journal) < 3:
            time.sleep(0.01)
    before = samples_in(journal)
    assert before >= 3, "the run ended before the server went away"
    assert running.stderr is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(running.stderr or ()))
    reader.start()
    while running.poll() is None and not any("waiting" in line for line in said):
        time.sleep(0.01)
    with served(dense_model, port=port):
        running.wait()
    reader.join()
    samples = load_run(out).samples
    assert len(samples) == 48
    failed = [sample for sample in samples if sample.error is not None]
    assert len(failed) <= 1, failed  # the request in flight, if there was one
    assert all(s.error is None for s in samples[:before])
    assert any(note.startswith("waited") for s in samples for note in s.notes)
    assert running.returncode in (0, 1)


class Router(Stub):
    """llama-server's router: every request names a model, and /props and /slots may be missing."""

    has_props = True

    def answer(self, request: Asked) -> Answer:
        path, _, query = request.path.partition("?")
        named = query.removeprefix("model=") or (request.body or {}).get("model")
        if path == "/health":
            return said("application/json", '{"status": "ok"}')
        if path == "/props" and not named:
            return said("application/json", json.dumps({
                "role": "router", "max_instances": 4, "models_autoload": True,
                "default_generation_settings": {"params": None, "n_ctx": 0}}))
        if path == "/props":
            if not self.has_props:
                return said("application/json", json.dumps({"error": {
                    "code": 501, "message": "not supported", "type": "not_supported_error"}}), 501)
            return said("application/json", json.dumps({
                "default_generation_settings": {"n_ctx": 8192}, "total_slots": 1,
                "model_alias": named, "build_info": "b9000"}))
        if path == "/models":
            return said("application/json", json.dumps(
                {"data": [{"id": name} for name in self.models]}))
        if named not in self.models:
            return said("application/json", json.dumps({"error": {
                "code": 400, "message": "model name is missing from the request",
                "type": "invalid_request_error"}}), 400)
        if path == "/tokenize":
            return said("application/json",
                        json.dumps({"tokens": list(range(len(request.body["content"])))}))
        prompt = len(request.body["prompt"])
        last: dict[str, Any] = {
            "content": "", "stop": True, "stop_type": "limit", "tokens_evaluated": prompt,
            "tokens_predicted": 1, "timings": {
                "cache_n": 0, "prompt_n": prompt, "prompt_ms": 5.0, "predicted_n": 1,
                "predicted_ms": 1.0}}
        return Answer(headers={"Content-Type": EVENT_STREAM}, body=(
            sse({"content": "a", "stop": False, "tokens_predicted": 1}), sse(last)))


@pytest.mark.parametrize("has_props", [True, False], ids=["props", "no_props"])
@pytest.mark.parametrize("flags", [(), ("--model", "one")], ids=["only", "named"])
def test_a_router_is_told_the_model_with_every_request(
    tmp_path: Path, has_props: bool, flags: tuple[str, ...]
) -> None:
    with wire_stub(kind=Router, models=["one"] if not flags else ["one", "two"]) as stub:
        assert isinstance(stub, Router)
        stub.has_props = has_props
        outcome = run_script(LOCAL, "--url", stub.url, *flags, *OUTPUT, cwd=tmp_path)
        asked = [r for r in stub.asked if r.path.startswith(("/completion", "/tokenize"))]
    assert outcome.status == 0, outcome.err
    assert asked and {request.body["model"] for request in asked} == {"one"}
    assert outcome.record is not None
    assert outcome.record["endpoint"]["context_tokens"] == (8192 if has_props else None)
    assert outcome.record["endpoint"]["model"] == "one"


def test_a_router_of_several_models_wants_a_name(tmp_path: Path) -> None:
    with wire_stub(kind=Router, models=["one", "two"]) as stub:
        outcome = run_script(LOCAL, "--url", stub.url, *OUTPUT, cwd=tmp_path)
    assert_one_line(outcome, 2, "--model", "one, two")
