"""api_timing.py as a command against a stub of a provider: what is sent, kept, and worked out."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import api_timing
from conftest import Outcome, at, environment, run_script
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.providers import PROVIDERS
from wire_stub import HANGS_UP, SILENT, Asked, Stub, refused, wire_stub

KEY = "sk-stub-0123456789"
CALIBRATION = 2  # requests before the first sample
LENGTHS, OUTPUTS, TURNS = (300, 900), (4, 8), 3
STAMP = re.compile(r"Current time: (\S+)\n\n")


def timed(stub: Stub, cwd: Path, *flags: str, **env: str) -> Outcome:
    """The script against the stub, one small experiment unless the flags say otherwise."""
    chosen = flags or ("--only", "output", "--outputs", "4")
    return run_script("api_timing.py", "--base-url", stub.url, *chosen, cwd=cwd,
                      env=environment(**env))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Outcome, Stub]]:
    """One run of all three experiments; the stub's tokens are unlike those that are assumed."""
    with wire_stub(head_tokens=40, chars_per_token=2.2) as stub:
        outcome = timed(
            stub, tmp_path_factory.mktemp("whole"), "--lengths", "300,900", "--outputs", "4,8",
            "--context", "600", "--turns", str(TURNS), "--repeats", "1",
            "--api-key-env", "STUB_KEY", STUB_KEY=KEY)
        assert outcome.status == 0, outcome.err
        yield outcome, stub


def samples_and_chats(whole: tuple[Outcome, Stub], experiment: str, arm: str | None = None
                      ) -> list[tuple[dict[str, Any], Asked]]:
    """Each sample of an experiment with the request that the stub saw, turn by turn."""
    outcome, stub = whole
    assert outcome.record is not None
    pairs = zip(outcome.record["samples"], stub.chats[CALIBRATION:], strict=True)
    return [(sample, chat) for sample, chat in pairs
            if sample["experiment"] == experiment and arm in (None, sample["arm"])]


def test_what_is_sent(whole: tuple[Outcome, Stub]) -> None:
    _, stub = whole
    for chat in stub.chats:
        assert (chat.method, chat.path) == ("POST", "/v1/chat/completions")
        assert chat.headers["authorization"] == f"Bearer {KEY}"
        assert chat.headers["accept-encoding"] == "identity"
        assert chat.body["stream"] is True
        assert chat.body["stream_options"] == {"include_usage": True}
        assert chat.body["model"] == "stub"  # the only one that the stub lists
        assert "max_completion_tokens" not in chat.body
    for sample, chat in samples_and_chats(whole, "output"):
        assert chat.body["max_tokens"] == int(sample["arm"]) == sample["output_tokens"]


def test_one_connection_for_the_whole_run(whole: tuple[Outcome, Stub]) -> None:
    outcome, stub = whole
    assert stub.connections == 1
    assert outcome.record is not None
    for sample in outcome.record["samples"]:
        assert sample["connection"] == {"new": False, "connect_s": None, "tls_s": None}


def test_sizes_hit_by_the_servers_own_count(whole: tuple[Outcome, Stub]) -> None:
    _, stub = whole
    for sample, chat in samples_and_chats(whole, "length"):
        assert stub.tokens(chat) == sample["prompt_tokens"]
        assert stub.tokens(chat) == pytest.approx(int(sample["arm"]), rel=0.05)
    for sample, chat in samples_and_chats(whole, "cache"):
        if sample["turn"] == 1:
            assert stub.tokens(chat) == pytest.approx(600, rel=0.15)  # the question comes on top


def test_the_plan_is_what_happens(whole: tuple[Outcome, Stub]) -> None:
    outcome, stub = whole
    found = re.search(r"plan: (\d+) requests, about ([\d,]+) input tokens, at most ([\d,]+) output",
                      outcome.err)
    assert found is not None, outcome.err
    requests, input_tokens, output_tokens = (int(n.replace(",", "")) for n in found.groups())
    assert requests == len(stub.chats) == CALIBRATION + len(LENGTHS) + len(OUTPUTS) + 5 * TURNS
    assert input_tokens == pytest.approx(sum(map(stub.tokens, stub.chats)), rel=0.15)
    assert output_tokens == sum(chat.body["max_tokens"] for chat in stub.chats)


def test_append_extends_the_messages_and_nothing_else(whole: tuple[Outcome, Stub]) -> None:
    _, stub = whole
    chats = [chat for _, chat in samples_and_chats(whole, "cache", "append")]
    assert len(chats) == TURNS
    for before, after in itertools.pairwise(chats):
        kept = len(before.messages)
        assert after.messages[:kept] == before.messages
        answer, question = after.messages[kept:]
        # The answer that was really given: each of the stub's answers is unlike the others.
        given = stub.answers[stub.chats.index(before)]
        assert answer == {"role": "assistant", "content": given}
        assert question["role"] == "user"


def test_prepend_is_append_behind_a_time_that_never_repeats(whole: tuple[Outcome, Stub]) -> None:
    _, stub = whole
    stamps = []
    plain: list[list[dict[str, str]]] = []
    chats = [chat for _, chat in samples_and_chats(whole, "cache", "prepend")]
    for chat in chats:
        first, *rest = chat.messages
        stamp = STAMP.match(first["content"])
        assert stamp is not None
        stamps.append(stamp[1])
        plain.append([first | {"content": first["content"][stamp.end():]}, *rest])
    assert len(set(stamps)) == TURNS
    for (before, after), chat in zip(itertools.pairwise(plain), chats[:-1], strict=True):
        assert after[:len(before)] == before
        assert after[len(before)]["content"] == stub.answers[stub.chats.index(chat)]
    append = [chat.messages for _, chat in samples_and_chats(whole, "cache", "append")]
    for ours, theirs in zip(plain, append, strict=True):
        assert [m["role"] for m in ours] == [m["role"] for m in theirs]
        # The same questions; the same document, behind openings of their own.
        assert [m["content"] for m in ours[2::2]] == [m["content"] for m in theirs[2::2]]
        assert ours[0]["content"].split(".\n", 1)[1] == theirs[0]["content"].split(".\n", 1)[1]
        assert ours[0]["content"][0] != theirs[0]["content"][0]


def test_every_cold_prompt_begins_with_another_letter(whole: tuple[Outcome, Stub]) -> None:
    cold = [chat for name in ("length", "output") for _, chat in samples_and_chats(whole, name)]
    letters = [chat.messages[0]["content"][0] for chat in cold]
    assert len(set(letters)) == len(letters)


@pytest.mark.parametrize("ends", [
    # As the next request comes: the one case in which a request is sent anew.
    {CALIBRATION: SILENT},
    # While nothing is on its way: seen before the next request is sent.
    {CALIBRATION - 1: HANGS_UP},
], ids=["as_it_comes", "meanwhile"])
def test_a_kept_connection_that_was_closed_fails_no_sample(
    tmp_path: Path, ends: dict[int, str]
) -> None:
    with wire_stub(ends=ends) as stub:
        outcome = timed(stub, tmp_path, "--only", "output", "--outputs", "4,8")
    assert outcome.status == 0, outcome.err
    assert [s["error"] for s in outcome.samples("output")] == [None, None]
    assert [s["connection"]["new"] for s in outcome.samples("output")] == [True, False]
    assert stub.connections == 2


def test_a_refused_sample_is_asked_once(tmp_path: Path) -> None:
    with wire_stub(script=[None] * CALIBRATION, then=refused(503, "busy\nnow")) as stub:
        outcome = timed(stub, tmp_path, "--only", "output", "--outputs", "4,8", "--quiet")
    assert outcome.status == 1
    assert len(stub.chats) == CALIBRATION + 2
    for sample in outcome.samples("output"):
        assert sample["error"] == {"kind": "overloaded", "message": "HTTP 503: busy now",
                                   "http_status": 503, "retry_after_s": None}
        assert (sample["ttft_s"], sample["prompt_tokens"]) == (None, None)
    assert len(outcome.err.splitlines()) == 2


def test_without_usage_sizes_are_estimates_and_latency_is_between_chunks(tmp_path: Path) -> None:
    with wire_stub(reports_usage=False) as stub:
        outcome = timed(stub, tmp_path, "--only", "length,output,cache", "--lengths", "500",
                        "--outputs", "4", "--context", "300", "--turns", "2")
    assert outcome.status == 0, outcome.err
    assert "reports no usage" in outcome.err
    assert outcome.record is not None
    assert any("estimated" in note for note in outcome.record["notes"])
    assert "inter-chunk latency" in outcome.out
    (sample,) = outcome.samples("length")
    assert sample["prompt_chars"] == pytest.approx(500 * 2.5, rel=0.05)
    for sample in outcome.record["samples"]:
        for name in ("prompt_tokens", "cached_tokens", "output_tokens", "inter_token_s"):
            assert sample[name] is None
        assert sample["inter_chunk_s"] is not None


def test_openai_variables_are_honoured_when_nothing_else_is_given(tmp_path: Path) -> None:
    with wire_stub() as stub:
        env = environment(OPENAI_BASE_URL=stub.url, OPENAI_API_KEY=KEY)
        outcome = run_script("api_timing.py", "--only", "output", "--outputs", "4", cwd=tmp_path,
                             env=env)
    assert outcome.status == 0, outcome.err
    assert {request.headers["authorization"] for request in stub.asked} == {f"Bearer {KEY}"}


def test_a_base_url_alone_is_sent_no_key(tmp_path: Path) -> None:
    with wire_stub() as stub:
        outcome = timed(stub, tmp_path, OPENAI_API_KEY=KEY, AI_BUILDER_TOKEN=KEY,
                        OPENAI_ADMIN_KEY=KEY, OPENAI_BASE_URL="http://127.0.0.1:1/v1")
    assert outcome.status == 0, outcome.err
    assert stub.asked
    for request in stub.asked:
        assert KEY not in "".join(request.headers.values())


OWN = PROVIDERS["ai-builder"].base_url
ELSEWHERE = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(("flags", "environ", "base_url", "key_variable"), [
    ("", {}, OWN, "AI_BUILDER_TOKEN"),
    ("", {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ("", {"OPENAI_BASE_URL": ELSEWHERE}, ELSEWHERE, None),
    ("", {"OPENAI_BASE_URL": ELSEWHERE, "OPENAI_API_KEY": "k"}, ELSEWHERE, "OPENAI_API_KEY"),
    ("", {"AI_BUILDER_TOKEN": "t", "OPENAI_BASE_URL": ELSEWHERE, "OPENAI_API_KEY": "k"},
     OWN, "AI_BUILDER_TOKEN"),
    ("--provider xai", {"AI_BUILDER_TOKEN": "t", "OPENAI_BASE_URL": ELSEWHERE},
     "https://api.x.ai/v1", "XAI_API_KEY"),
    ("--provider xai --api-key-env MINE", {}, "https://api.x.ai/v1", "MINE"),
    (f"--base-url {ELSEWHERE}", {"OPENAI_API_KEY": "k", "AI_BUILDER_TOKEN": "t"}, ELSEWHERE, None),
    (f"--base-url {ELSEWHERE} --api-key-env MINE", {}, ELSEWHERE, "MINE"),
    (f"--base-url {ELSEWHERE}/", {}, ELSEWHERE, None),
    (f"--base-url {ELSEWHERE}/chat/completions", {}, ELSEWHERE, None),
    ("--provider ollama", {"OPENAI_API_KEY": "k"}, "http://127.0.0.1:11434/v1", None),
])
def test_where_requests_go_and_with_which_key(
    flags: str, environ: dict[str, str], base_url: str, key_variable: str | None
) -> None:
    chosen = api_timing.target(api_timing.parse(flags.split()), environ)
    assert (chosen.where and chosen.where.url, chosen.key_variable) == (base_url, key_variable)


# The SDK's own variables, set for an endpoint of OpenAI.
ANOTHERS = {"OPENAI_API_KEY": "sk-another-0123456789", "OPENAI_ORG_ID": "org-another",
            "OPENAI_PROJECT_ID": "proj-another", "OPENAI_ADMIN_KEY": "sk-admin-0123456789",
            "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-another-0123456789\nX-Api: another\n"
                                     "Host: another\nUser-Agent: another"}
OURS = {"accept", "accept-encoding", "authorization", "connection", "content-length",
        "content-type", "host", "user-agent"}


@pytest.mark.parametrize("key", [None, KEY])
def test_what_is_set_for_another_endpoint_is_not_sent(tmp_path: Path, key: str | None) -> None:
    flags = ("--only", "output", "--outputs", "4")
    with wire_stub() as stub:
        outcome = (timed(stub, tmp_path, *flags, **ANOTHERS) if key is None else timed(
            stub, tmp_path, *flags, "--api-key-env", "STUB_KEY", **ANOTHERS, STUB_KEY=key))
        assert outcome.status == 0, outcome.err
        for asked in stub.asked:  # of /models too
            named = {name for name in asked.headers if not name.startswith("x-stainless-")}
            assert named <= OURS
            assert asked.headers["authorization"] == f"Bearer {key or 'none'}"
            assert "another" not in str(asked.headers)
            assert "sk-admin" not in str(asked.headers)


def test_an_account_is_sent_to_openai_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ANOTHERS.items():
        monkeypatch.setenv(name, value)
    for url, account in (("https://api.openai.com/v1", ("org-another", "proj-another")),
                         ("https://api.openai.com.example/v1", (None, None))):
        client = OpenAIEndpoint(at(url), key=KEY, model="m", provider=None).client
        assert (client.organization, client.project) == account
        assert {"X-Api", "Authorization"}.isdisjoint(client.default_headers)
    assert {name: os.environ[name] for name in ANOTHERS} == ANOTHERS
