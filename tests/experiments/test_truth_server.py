"""The truth server is what it says: counts, caches, usage, its log, through both adapters."""

from __future__ import annotations

import json
import random
import urllib.request
from typing import Any

import pytest

from conftest import at, no_patience
from request_timing.records.sample import Sample
from request_timing.servers.backend import ASSISTANT, USER, Backend, Message
from request_timing.servers.llama_server import LlamaServer
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.openai_models import choose_model
from request_timing.servers.timing import Progress, measure
from truth_model import Config, Entry, Model
from truth_server import Completion, Truth, truth

PROTOCOLS = pytest.mark.parametrize("native", [True, False], ids=["llama", "openai"])
WORDS = "".join(f"{number:03d} " for number in range(500))  # 500 tokens
CHAT_HEAD = "<user>"  # six characters, so one whole token and a half


def client(server: Truth, *, native: bool, progress: bool = False) -> Backend:
    """The project's own adapter of one of the two protocols."""
    if native:
        llama = LlamaServer(server.url, progress=progress)
        llama.wait_until_ready(print, no_patience())
        return llama
    endpoint = OpenAIEndpoint(at(f"{server.url}/v1"), key=None, model=None, provider=None)
    choose_model(endpoint)
    return endpoint


def ask(backend: Backend, *texts: str, output_tokens: int = 4) -> tuple[Sample, str]:
    """One request; the texts are a user's and an assistant's in turn."""
    blank = Sample(experiment="length", arm="1", turn=1, repeat=1, sent_at="", prompt_chars=0,
                   prompt_hash="", asked_output_tokens=output_tokens)
    prompt = tuple(Message((USER, ASSISTANT)[n % 2], text) for n, text in enumerate(texts))
    sample, answer = measure(backend.stream(prompt, output_tokens), blank)
    assert sample.error is None, sample.error
    return sample, answer


def post(server: Truth, path: str, **body: Any) -> tuple[dict[str, Any], str | None]:
    """A request by hand: the JSON of the answer, and its X-Cache-Status."""
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response), response.headers["X-Cache-Status"]


def cached(texts: list[str], **config: Any) -> list[int]:
    """What a /completion server reuses of each of these prompts, asked in order."""
    with truth(cache="prefix", **config) as server:
        backend = client(server, native=True)
        counts = [ask(backend, text)[0].cached_tokens for text in texts]
        assert counts == [entry["cached_tokens"] for entry in server.log()]
    return [count for count in counts if count is not None]


@PROTOCOLS
def test_counts_and_log_agree_with_what_a_script_reads(native: bool) -> None:
    with truth(fixed_s=0.01, decode_s_per_token=0.001) as server:
        sample, answer = ask(client(server, native=native), WORDS, output_tokens=7)
        entry, = server.log(clear=True)
        assert server.log() == []
    chars = len(WORDS) + (0 if native else len(CHAT_HEAD))
    assert sample.prompt_tokens == entry["prompt_tokens"] == -(-chars // 4)
    assert sample.cached_tokens == entry["cached_tokens"] == 0
    assert sample.output_tokens == entry["output_tokens"] == len(entry["sent_at_s"]) == 7
    assert len(sample.arrivals_s) == 7
    assert len(answer) == 28 and answer.isascii() and answer.replace(" ", "").isalpha()
    assert len(answer.split()) == 7
    moments = [entry["received_at_s"], *entry["sent_at_s"]]
    assert moments == sorted(moments)
    # A server may be late, never early.
    assert entry["sent_at_s"][0] - entry["received_at_s"] >= entry["planned_prefill_s"] == 0.01
    assert entry["sent_at_s"][-1] - entry["received_at_s"] >= 0.01 + 6 * 0.001
    assert entry["prefill_s"] >= 0.01
    assert entry["complete"] and entry["stream"] and not entry["response_hit"]
    if native:
        assert sample.server is not None
        assert sample.server.prompt_ms == 1000 * entry["prefill_s"]
        assert sample.server.predicted_ms == 1000 * entry["decode_s"]


def test_progress_is_reported_where_it_is_asked_for() -> None:
    with truth() as server:
        backend = client(server, native=True, progress=True)
        events = list(backend.stream((Message(USER, WORDS),), 2))
    told = [event.processed_tokens for event in events if isinstance(event, Progress)]
    assert told == [125, 250, 375, 500]


def test_tokenize_counts_as_the_answers_do() -> None:
    with truth() as server:
        backend = client(server, native=True)
        assert [backend.count_tokens(text) for text in ("", "abc", "abcd", "abcde")] == [0, 1, 1, 2]
        assert ask(backend, "abcde")[0].prompt_tokens == 2


@pytest.mark.parametrize("report", [True, False])
def test_cached_tokens_are_reported_or_withheld(report: bool) -> None:
    with truth(cache="prefix", report_cached=report) as server:
        backend = client(server, native=False)
        sample = [ask(backend, WORDS)[0] for _ in range(2)][1]
        assert server.log()[1]["cached_tokens"] == sample.prompt_tokens - 1  # type: ignore[operator]
    assert sample.cached_tokens == (501 if report else None)


@PROTOCOLS
def test_the_answer_is_part_of_what_is_reusable(native: bool) -> None:
    with truth(cache="prefix") as server:
        backend = client(server, native=native)
        first, answer = ask(backend, WORDS)
        longer = (WORDS + answer + "more text",) if native else (WORDS, answer, "more text")
        again = ask(backend, *longer)[0]
    assert first.prompt_tokens is not None and again.cached_tokens is not None
    assert again.cached_tokens >= first.prompt_tokens + 4


def test_a_prefix_is_reused_in_whole_blocks_from_a_minimum_on() -> None:
    prompts = [WORDS, WORDS[:800] + "x" * 100, "y" + WORDS, WORDS]  # 200 tokens, 0, 499
    assert cached(prompts) == [0, 200, 0, 499]
    assert cached(prompts, block_tokens=64) == [0, 192, 0, 448]
    assert cached(prompts, minimum_tokens=201) == [0, 0, 0, 499]


def test_no_cache_reuses_nothing() -> None:
    with truth() as server:
        backend = client(server, native=True)
        assert [ask(backend, WORDS)[0].cached_tokens for _ in range(2)] == [0, 0]


def test_replicas_delay_and_capacity() -> None:
    assert cached([WORDS] * 5, replicas=3) == [0, 0, 0, 499, 499]
    assert cached([WORDS] * 4, write_delay_requests=2) == [0, 0, 0, 499]
    assert cached([WORDS, "z" * 400, WORDS], keep_prompts=1) == [0, 0, 0]
    at_random = cached([WORDS] * 8, replicas=2, routing="random", seed=1)
    assert at_random.count(0) == 2 and at_random[0] == 0


def test_a_response_cache_repeats_the_whole_answer_at_once() -> None:
    with truth(cache="response", fixed_s=0.001, decode_s_per_token=0.001) as server:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
        told = [post(server, "/v1/chat/completions", **body) for _ in range(2)]
        sample, answer = ask(client(server, native=False), "hello", output_tokens=9)
        other = ask(client(server, native=False), "hello", output_tokens=8)[1]
        first, again, streamed, last = server.log()
    assert [status for _, status in told] == ["MISS", "HIT"]
    assert told[0][0] == told[1][0]
    assert told[0][0]["choices"][0]["message"]["content"] == answer != other
    assert [e["response_hit"] for e in (first, again, streamed, last)] == [False, True, True, False]
    assert len(set(streamed["sent_at_s"])) == 1 and len(streamed["sent_at_s"]) == 9
    assert len(sample.arrivals_s) == 9
    assert again["planned_prefill_s"] == 0 and first["planned_prefill_s"] == 0.001


def test_answers_in_one_piece() -> None:
    with truth() as server:
        native, _ = post(server, "/completion", prompt=WORDS, n_predict=3)
        chat, _ = post(server, "/v1/chat/completions", max_completion_tokens=3,
                       messages=[{"role": "user", "content": WORDS}])
        assert [entry["stream"] for entry in server.log()] == [False, False]
    assert len(native["content"]) == 12
    assert (native["timings"]["prompt_n"], native["timings"]["predicted_n"]) == (500, 3)
    assert chat["usage"]["completion_tokens"] == 3
    assert chat["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def planned(count: int, **config: Any) -> list[tuple[Entry, list[float]]]:
    """The entries and steps of so many equal requests, planned and not slept."""
    model = Model(Config(**config))
    plans = []
    for _ in range(count):
        asked = Completion({"prompt": WORDS, "n_predict": 3})
        entry, words, steps_s = model.plan(asked, "/completion", 0.0)
        model.keep(asked, entry, words)
        plans.append((entry, steps_s))
    return plans


def test_time_is_what_the_config_says() -> None:
    (entry, steps_s), (hit, hit_steps_s) = planned(
        2, fixed_s=1.0, prefill_s_per_token=0.01, decode_s_per_token=0.5, cache="prefix",
        decode_s_per_context_token=0.001, decode_factor_on_hit=0.5)
    assert entry.planned_prefill_s == pytest.approx(1 + 500 * 0.01)
    assert steps_s == pytest.approx([0, 0.5 + 0.501, 0.5 + 0.502])
    assert hit.planned_prefill_s == pytest.approx(1 + 0.01)
    assert hit_steps_s == pytest.approx([0, 1.001 / 2, 1.002 / 2])


def test_drift_noise_and_outliers() -> None:
    drifted = planned(4, fixed_s=1.0, decode_s_per_token=1.0, drift=(1.0, 2.0),
                      drift_per_request=0.1)
    assert [e.planned_prefill_s for e, _ in drifted] == pytest.approx([1.0, 2.1, 2.2, 2.3])
    assert [steps_s[1] for _, steps_s in drifted] == pytest.approx([1.0, 2.1, 2.2, 2.3])
    noisy = {"fixed_s": 1.0, "noise_sigma": 0.3, "outlier_share": 0.05, "outlier_factor": 100.0}
    times = [[e.planned_prefill_s for e, _ in planned(400, seed=seed, **noisy)]
             for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]
    slow = sum(value > 10 for value in times[0])
    assert 8 <= slow <= 36  # 20 are expected, four standard deviations either side
    by_hand = random.Random("1/0").gauss(0, 0.3)
    assert (times[0][0] > 1) == (by_hand > 0)
