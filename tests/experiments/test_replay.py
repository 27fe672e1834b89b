"""Captured prompts sent again: what is predicted is what a real llama-server reports, exactly."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import tiny_models
from conftest import ROOT, Outcome, assert_one_line, environment, run_script
from request_timing.servers import spawn
from truth_server import truth
from wire_stub import wire_stub

API, LOCAL = "api_timing.py", "local_cache.py"
OPENING = 18  # tokens of the opening that a run puts in front of all its turns
HANDBOOK = "\n".join(f"Line {n} of a handbook that never changes." for n in range(40))
Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def history(turns: int) -> list[list[Message]]:
    """The messages of each turn of an agent that only appends."""
    kept: list[Message] = []
    made = []
    for turn in range(turns):
        kept = [*kept, user(f"Question {turn}: what does line {3 * turn} say?")]
        made.append(kept)
        kept = [*kept, assistant(f"It says nothing new, number {turn}.")]
    return made


def bodies(messages: list[list[Message]], **more: Any) -> list[dict[str, Any]]:
    return [{"model": "tiny", "messages": turn} | more for turn in messages]


APPENDS = bodies([[system(HANDBOOK), *turn] for turn in history(6)])
CLOCK = bodies([[system(f"Now: 2026-11-29T10:{n:02d}:17Z\n{HANDBOOK}"), *turn]
                for n, turn in enumerate(history(6))])
WINDOW = bodies([[system(HANDBOOK), *turn[-3:]] for turn in history(6)])
TWICE = [APPENDS[0], APPENDS[0], APPENDS[1], APPENDS[1]]
NOTHING_SHARED = bodies([[user(chr(65 + n) * 50 + HANDBOOK)] for n in range(4)])
ANTHROPIC = [{"model": "tiny", "system": HANDBOOK, "messages": turn} for turn in history(4)]
RESPONSES = [{"model": "tiny", "instructions": HANDBOOK, "input": turn} for turn in history(4)]
PROMPTS = [HANDBOOK + "\n".join(m["content"] for m in turn) for turn in history(4)]
CONVERSATIONS: dict[str, list[Any]] = {
    "appends": APPENDS, "clock": CLOCK, "window": WINDOW, "twice": TWICE,
    "nothing_shared": NOTHING_SHARED, "anthropic": ANTHROPIC, "responses": RESPONSES,
    "prompts": PROMPTS,
}


def captured(folder: Path, turns: list[Any]) -> str:
    path = folder / "turns.jsonl"
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return str(path)


def replayed(url: str, folder: Path, turns: list[Any], *flags: str, script: str = LOCAL) -> Outcome:
    where = ("--url", url) if script == LOCAL else ("--base-url", f"{url}/v1")
    return run_script(script, *where, "--replay", captured(folder, turns), *flags, cwd=folder)


@pytest.mark.parametrize("turns", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_on_a_dense_model_the_prediction_is_the_report(
    dense_server: str, tmp_path: Path, turns: list[Any]
) -> None:
    outcome = replayed(dense_server, tmp_path, turns)
    assert outcome.status == 0, outcome.err
    samples = outcome.samples("replay", "as_sent")
    assert len(samples) == len(turns)
    for sample in samples[1:]:
        assert sample["cached_tokens"] == sample["shared_tokens"]
        assert sample["server"]["prompt_n"] == sample["prompt_tokens"] - sample["shared_tokens"]
    # A token of the model is a byte, so the shared beginning is as long in one as in the other.
    for sample in samples[1:]:
        assert sample["shared_tokens"] == min(sample["shared_chars"], sample["prompt_tokens"] - 1)


def test_what_broke_and_what_it_costs_is_on_the_page(dense_server: str, tmp_path: Path) -> None:
    outcome = replayed(dense_server, tmp_path, CLOCK)
    broken = outcome.samples("replay")[1]["notes"]
    assert broken == ["broke: a time that changes each minute, in messages[0].content"]
    assert "what broke" in outcome.out and "a time that changes" in outcome.out
    found = re.search(r"about ([\d,]+) of ([\d,]+) tokens sent were computed again", outcome.out)
    assert found is not None
    again, sent = (int(number.replace(",", "")) for number in found.groups())
    samples = outcome.samples("replay")
    assert sent == sum(s["prompt_tokens"] for s in samples)
    new = sum(s["prompt_tokens"] - before["prompt_tokens"]
              for before, s in itertools.pairwise(samples))
    computed = sum(s["server"]["prompt_n"] for s in samples[1:])
    assert again == pytest.approx(computed - new, rel=0.02)  # of the texts, not of the tokens
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_what_if_measures_the_mended_turns_beside_the_others(
    dense_server: str, tmp_path: Path
) -> None:
    outcome = replayed(dense_server, tmp_path, CLOCK, "--what-if")
    assert outcome.status == 0, outcome.err
    as_sent, mended = (outcome.samples("replay", arm)[1:] for arm in ("as_sent", "what_if"))
    clock_at = OPENING + len("<|system|>\nNow: 2026-11-29T10:00"[:-1])
    for before, after in zip(as_sent, mended, strict=True):
        assert before["cached_tokens"] == clock_at
        assert after["cached_tokens"] > 0.9 * after["shared_tokens"] > 0.8 * len(HANDBOOK)
    assert outcome.record is not None
    assert any("to the end of the last user message" in note for note in outcome.record["notes"])
    assert "as sent: NO HIT. " in outcome.out and "mended: HIT. " in outcome.out
    assert [(v["arm"], v["code"], v["evidence"]["reused_turns"])
            for v in outcome.record["verdicts"]] == [
        ("as_sent", "no_hit", []), ("what_if", "hit", list(range(2, len(mended) + 2)))]


def test_nothing_to_mend_is_one_line(dense_server: str, tmp_path: Path) -> None:
    outcome = replayed(dense_server, tmp_path, APPENDS, "--what-if", "--quiet")
    assert_one_line(outcome, 2, "--what-if", "--explain")


THINKING_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' }}"
    "{% if loop.last or message['role'] != 'assistant' %}{{ message['content'] }}"
    "{% else %}{{ message['content'].split('</think>')[-1] }}{% endif %}{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def test_a_template_that_strips_thinking_is_the_servers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that only append, whose tokens do not differ from before: the thinking is gone."""
    monkeypatch.setattr(tiny_models, "_CHAT_TEMPLATE", THINKING_TEMPLATE)
    model = tmp_path / "thinks.gguf"
    tiny_models.write_dense(model)
    turns = [[m if m["role"] == "user" else assistant("<think>" + "hm " * 30 + "</think>" +
                                                      m["content"]) for m in turn]
             for turn in history(4)]
    with spawn.serve(str(model), 16_384) as url:
        outcome = replayed(url, tmp_path, bodies([[system(HANDBOOK), *t] for t in turns]))
    samples = outcome.samples("replay")
    assert outcome.status == 0, outcome.err
    for sample in samples[1:]:
        assert sample["cached_tokens"] == sample["shared_tokens"]
    # The template left the thinking out: the prompt holds less than the messages do.
    messages = sum(len(m["content"]) for m in turns[-1]) + len(HANDBOOK)
    assert samples[-1]["prompt_chars"] < messages


def test_tools_that_the_template_does_not_show_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third turn has its tools in another order, and its prompt is the same."""
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}}
             for name in ("look_up", "write_down")]
    turns = [body | {"tools": tools if n < 2 else tools[::-1]} for n, body in
             enumerate(APPENDS[:4])]
    monkeypatch.setattr(tiny_models, "_CHAT_TEMPLATE", THINKING_TEMPLATE)
    model = tmp_path / "no-tools.gguf"
    tiny_models.write_dense(model)
    with spawn.serve(str(model), 16_384) as url:
        outcome = replayed(url, tmp_path, turns)
    assert outcome.status == 0, outcome.err
    assert "another order" not in outcome.out and "as sent: HIT" in outcome.out
    assert "template shows no tools" in outcome.out


def test_a_sliding_window_may_lose_what_the_prompt_shares(
    sliding_window_server: str, tmp_path: Path
) -> None:
    outcome = replayed(sliding_window_server, tmp_path, CLOCK)
    assert outcome.status == 0, outcome.err
    for sample in outcome.samples("replay")[1:]:
        assert sample["cached_tokens"] <= sample["shared_tokens"]


def test_an_api_is_sent_the_bodies_as_they_are(tmp_path: Path) -> None:
    turns = [body | {"temperature": 0.25, "max_tokens": 900, "stream": False,
                     "tools": [{"type": "function", "function": {
                         "name": "look", "description": "Looks.", "parameters": {}}}]}
             for body in APPENDS[:3]]
    with wire_stub() as stub:
        outcome = replayed(stub.url.removesuffix("/v1"), tmp_path, turns, script=API)
    assert outcome.status == 0, outcome.err
    sent = [chat.body for chat in stub.chats[2:]]
    as_sent = [body for body in sent if body["messages"] in [turn["messages"] for turn in turns]]
    assert [body["messages"] for body in as_sent] == [turn["messages"] for turn in turns]
    for body, turn in zip(as_sent, turns, strict=True):
        changed = {name for name in body if body[name] != turn.get(name)}
        assert changed == {"stream", "stream_options", "max_tokens"}
        assert set(turn) <= set(body)
    cold = [body for body in sent if body not in as_sent]
    assert len(cold) == len(turns)
    for body in cold:  # neither the tools nor the messages begin as anybody's did
        assert not body["messages"][0]["content"].startswith(HANDBOOK[:4])
        assert body["tools"] != turns[0]["tools"]
    assert "what broke" in outcome.out and "of cold" in outcome.out


QUICK: dict[str, Any] = {"cache": "prefix", "prefill_s_per_token": 1e-6,
                         "decode_s_per_token": 1e-4, "fixed_s": 0.0}
# Appends, but for the last turn, which has a clock in front: what a repair leaves alone is the same
# in both arms.
LAST_BREAKS = [*APPENDS[:4], CLOCK[4]]


def test_the_arms_of_an_api_do_not_feed_each_other(tmp_path: Path) -> None:
    """With the repair measured beside it, a conversation is reused as it is without."""
    reused = []
    for flags in ((), ("--what-if",)):
        folder = tmp_path / str(len(flags))
        folder.mkdir()
        with truth(**QUICK) as server:
            outcome = replayed(server.url, folder, LAST_BREAKS, *flags, script=API)
        assert outcome.status == 0, outcome.err
        reused.append([s["cached_tokens"] for s in outcome.samples("replay", "as_sent")])
    assert reused[0] == reused[1] and reused[0][0] < 20
    first, *mended = [s["cached_tokens"] for s in outcome.samples("replay", "what_if")]
    assert first < 20 and min(mended) > 300
    assert outcome.record is not None
    codes = {v["arm"]: v["code"] for v in outcome.record["verdicts"]}
    assert codes == {"as_sent": "partial", "what_if": "hit"}


def test_a_warm_cache_does_not_pass_a_conversation_that_breaks(tmp_path: Path) -> None:
    """The second run of a CI job finds all its prompts in the provider's cache."""
    with truth(**QUICK) as server:
        for number in range(2):
            folder = tmp_path / str(number)
            folder.mkdir()
            outcome = replayed(server.url, folder, CLOCK, "--fail-under", "0.9", script=API)
            assert outcome.status == 1
    assert "is not counted" in outcome.err
    assert "as sent: CONTRADICTION. In" in outcome.out or "CONTRADICTION. in 5 of 5" in outcome.out


def test_several_models_that_all_become_one_break_nothing(dense_server: str, tmp_path: Path
                                                          ) -> None:
    turns = [body | {"model": f"m{n % 2}"} for n, body in enumerate(APPENDS[:4])]
    with truth(**QUICK) as server:
        outcome = replayed(server.url, tmp_path, turns, "--model", "truth", script=API)
    assert "another model" not in outcome.out and "as sent: HIT" in outcome.out
    (tmp_path / "run.json").unlink()
    local = replayed(dense_server, tmp_path, turns)
    assert "another model" not in local.out and "as sent: HIT" in local.out


def test_the_model_of_the_bodies_is_kept_unless_another_is_named(tmp_path: Path) -> None:
    with wire_stub() as stub:
        url = stub.url.removesuffix("/v1")
        kept = replayed(url, tmp_path, APPENDS[:2], script=API)
        assert {chat.body["model"] for chat in stub.chats} == {"tiny"}
        stub.asked.clear()
        (tmp_path / "run.json").unlink()
        replayed(url, tmp_path, APPENDS[:2], "--model", "other", script=API)
        assert {chat.body["model"] for chat in stub.chats} == {"other"}
    assert kept.record is not None and kept.record["endpoint"]["model"] == "tiny"


@pytest.mark.parametrize(("turns", "share", "status"), [
    (APPENDS, "0.9", 0), (CLOCK, "0.9", 1), (CLOCK, "0", 0),
])
def test_fail_under(dense_server: str, tmp_path: Path, turns: list[Any], share: str, status: int
                    ) -> None:
    outcome = replayed(dense_server, tmp_path, turns, "--fail-under", share, "--quiet")
    assert outcome.status == status, outcome.err
    assert ("expected a median reuse of 90%" in outcome.err) == bool(status)


def test_fail_under_without_a_report_fails(tmp_path: Path) -> None:
    with wire_stub(reports_usage=False) as stub:
        outcome = replayed(stub.url.removesuffix("/v1"), tmp_path, APPENDS, "--fail-under", "0.5",
                           "--quiet", script=API)
    assert outcome.status == 1 and "reported cached tokens" in outcome.err


@pytest.mark.parametrize(("flags", "says"), [
    (("--explain", "turns.jsonl", "--replay", "turns.jsonl"), ("--explain and --replay",)),
    (("--fail-under", "0.5"), ("--fail-under", "--replay")),
    (("--what-if",), ("--what-if", "--replay")),
    (("--replay", "nowhere.jsonl"), ("nowhere.jsonl", "No such file")),
    (("--explain", "one.jsonl"), ("at least two turns",)),
    (("--replay", "one.jsonl"), ("at least two turns",)),
    (("--explain", "broken.jsonl"), ("broken.jsonl line 2", "column")),
    (("--explain", "empty.jsonl"), ("empty file",)),
    (("--record", "99999"), ("expected a port",)),
    (("--fail-under", "90"), ("share from 0 to 1",)),
])
@pytest.mark.parametrize("script", [API, LOCAL])
def test_bad_input_is_one_line(tmp_path: Path, script: str, flags: tuple[str, ...],
                               says: tuple[str, ...]) -> None:
    captured(tmp_path, APPENDS)
    (tmp_path / "one.jsonl").write_text(json.dumps(APPENDS[0]))
    (tmp_path / "broken.jsonl").write_text(json.dumps(APPENDS[0]) + '\n{"messages": [}\n')
    (tmp_path / "empty.jsonl").write_text("")
    outcome = run_script(script, *flags, "--quiet", cwd=tmp_path,
                         env=environment(AI_BUILDER_TOKEN="sk-nothing"))
    assert_one_line(outcome, 2, *says)


def test_other_bodies_are_not_for_a_chat_api(tmp_path: Path) -> None:
    with wire_stub() as stub:
        outcome = replayed(stub.url.removesuffix("/v1"), tmp_path, RESPONSES, "--quiet",
                           script=API)
        assert stub.connections == 0
    assert_one_line(outcome, 2, "responses bodies", "line 1", "--explain")


def test_explain_needs_no_package_and_no_server(tmp_path: Path) -> None:
    path = captured(tmp_path, CLOCK)
    bare = subprocess.run([sys.executable, "-S", str(ROOT / LOCAL), "--explain", path],
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bare.returncode == 0, bare.stderr
    assert "a time that changes each minute" in bare.stdout and "remedy:" in bare.stdout
    with_sdk = run_script(API, "--explain", path, cwd=tmp_path, save=False)
    assert with_sdk.out == bare.stdout
    assert list(tmp_path.glob("*.json")) == []


@pytest.fixture
def recording(dense_server: str, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of `local_cache.py --record` in front of a real server, and its file."""
    out = tmp_path / "prompts.jsonl"
    child = subprocess.Popen(
        [sys.executable, str(ROOT / LOCAL), "--record", "0", "--url", dense_server, "--out",
         str(out)], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    found = re.search(r"base URL (http://127\.0\.0\.1:\d+)", child.stderr.readline())
    assert found is not None
    yield found[1], out
    child.send_signal(signal.SIGINT)
    child.wait()
    child.stderr.close()


def test_what_an_agent_sends_is_recorded_explained_and_replayed(
    recording: tuple[str, Path], dense_server: str, tmp_path: Path
) -> None:
    url, out = recording
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-recorded-0123456789")
    for body in CLOCK[:3]:
        client.chat.completions.create(**body, max_tokens=4)
    while len(out.read_text().splitlines()) < 3:
        time.sleep(0.01)
    assert "sk-recorded" not in out.read_text()
    told = run_script(LOCAL, "--explain", str(out), cwd=tmp_path, save=False)
    assert "3 turns, chat bodies" in told.out and "a time that changes" in told.out
    outcome = run_script(LOCAL, "--url", dense_server, "--replay", str(out), cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert [s["turn"] for s in outcome.samples("replay")] == [1, 2, 3]


def test_the_best_earlier_turn_is_named_where_it_shares_more(
    dense_server: str, tmp_path: Path
) -> None:
    """Two conversations in turn: what the turn before lacks, the one before that has."""
    other = bodies([[system("Z" + HANDBOOK[::-1]), *turn] for turn in history(2)])
    outcome = replayed(dense_server, tmp_path, [APPENDS[0], other[0], APPENDS[1], other[1]])
    third, fourth = outcome.samples("replay")[2:]
    for sample, earlier in ((third, 1), (fourth, 2)):
        assert any(f"tokens with turn {earlier}, more than" in note for note in sample["notes"])
        assert sample["cached_tokens"] >= sample["shared_tokens"]


@pytest.mark.parametrize(("script", "path"), [(LOCAL, "/v1"), (API, "")])
def test_a_recorder_brings_the_server_that_it_is_asked_for(
    dense_model: Path, tmp_path: Path, script: str, path: str
) -> None:
    """And ends it: the agent's prompts go to no other than the one that was named."""
    out = tmp_path / "prompts.jsonl"
    child = subprocess.Popen(
        [sys.executable, str(ROOT / script), "--record", "0", "--serve", str(dense_model),
         "--out", str(out)], cwd=tmp_path, env=environment(AI_BUILDER_TOKEN="sk-not-to-be-used"),
        stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said: list[str] = []
    pattern = r"base URL (\S+) instead of http://127\.0\.0\.1:"
    while not (found := re.search(pattern, "".join(said))):
        said.append(child.stderr.readline())
        assert said[-1], said
    client = openai.OpenAI(base_url=f"{found[1]}{path}", api_key="none")
    client.chat.completions.create(**APPENDS[0], max_tokens=4)
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0
    child.stderr.close()
    assert len(out.read_text().splitlines()) == 1


def test_a_recorder_before_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    flags = ("--record", "0", "--serve", "nowhere.gguf")
    outcome = run_script(LOCAL, *flags, cwd=tmp_path, save=False)
    assert_one_line(outcome, 2, "nowhere.gguf")
