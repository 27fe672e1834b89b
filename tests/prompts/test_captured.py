"""Every form of captured prompts is read, and what is none is refused in one line that says where.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from explain_cases import A1, Q1, Q2, SYS, chat, tool
from request_timing.errors import UserError
from request_timing.prompts.captured import Captured, read
from request_timing.prompts.rendering import render
from request_timing.report.explain import explain

KEY = "sk-live-7f3a9c21b4d8e6"


def lines(path: Path, *values: Any, end: str = "\n") -> Path:
    path.write_text("".join(json.dumps(value) + end for value in values), encoding="utf-8",
                    newline="")
    return path


def bodies(captured: Captured) -> list[Any]:
    return [turn.body() for turn in captured.turns]


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        explain(path)
    text = str(caught.value)
    assert "\n" not in text
    assert "expected" in text and "found" in text
    return text


def test_a_folder_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        (tmp_path / f"turn{number}.txt").write_text(f"prompt {number}")
    (tmp_path / "notes.md").write_text("no prompt")
    (tmp_path / ".hidden.txt").write_text("no prompt")
    found = read(tmp_path)
    assert bodies(found) == ["prompt 1", "prompt 2", "prompt 10"]
    assert [turn.source for turn in found.turns] == ["turn1.txt", "turn2.txt", "turn10.txt"]
    assert found.what == "3 turns, plain prompts"


def test_a_folder_of_bodies(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps(chat(Q1, tools=[tool("f")]), indent=2))
    (tmp_path / "2.json").write_text(json.dumps([Q1, A1, Q2]))  # messages alone
    found = read(tmp_path)
    assert [turn.kind for turn in found.turns] == ["chat", "chat"]
    assert bodies(found)[1] == {"messages": [Q1, A1, Q2]}


@pytest.mark.parametrize(("values", "what"), [
    (["a", "ab"], "2 turns, plain prompts"),
    ([{"prompt": "a", "n_predict": 1}, {"prompt": "b"}], "2 turns, plain prompts"),
    ([chat(SYS, Q1, tools=[tool("f")])] * 14, "14 turns, chat bodies, 1 tool"),
    ([chat(Q1), chat(Q1, tools=[tool("f"), tool("g")])], "2 turns, chat bodies, 0 to 2 tools"),
    ([{"input": "Hi", "instructions": "x", "tools": [{"type": "function", "name": "f"}]}] * 2,
     "2 turns, Responses bodies, 1 tool"),
    ([{"system": "s", "messages": [Q1]}] * 2, "2 turns, Messages bodies"),
    ([{"messages": [Q1], "tools": [{"name": "f", "input_schema": {}}]}] * 2,
     "2 turns, Messages bodies, 1 tool"),
    (["a", chat(Q1), chat(Q1)], "3 turns, 1 plain prompts and 2 chat bodies"),
    ([{"custom_id": "1", "url": "/v1/chat/completions", "body": chat(Q1)}] * 2,
     "2 turns, chat bodies"),
])
def test_a_jsonl_and_what_is_said_of_it(tmp_path: Path, values: list[Any], what: str) -> None:
    assert read(lines(tmp_path / "turns.jsonl", *values)).what == what


def test_marks_line_ends_and_blank_lines_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_bytes(b'\xef\xbb\xbf"a"\r\n\r\n   \r\n{"prompt": "b"}')
    found = read(path)
    assert [turn.body() for turn in found.turns] == ["a", {"prompt": "b"}]
    assert [turn.source for turn in found.turns] == ["line 1", "line 4"]


def test_a_packed_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl.gz"
    path.write_bytes(gzip.compress(b'"a"\n"b"\n'))
    assert bodies(read(path)) == ["a", "b"]
    path.write_bytes(path.read_bytes()[:-12])
    assert "damaged" in refused(path)


def har(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"log": {"version": "1.2", "entries": list(entries)}}


def entry(body: str, path: str = "/v1/chat/completions", **more: Any) -> dict[str, Any]:
    return {"request": {
        "method": "POST", "url": f"https://api.example{path}?key={KEY}",
        "headers": [{"name": "Authorization", "value": f"Bearer {KEY}"}],
        "cookies": [{"name": "session", "value": KEY}],
        "queryString": [{"name": "key", "value": KEY}],
        "postData": {"mimeType": "application/json", "text": body}} | more,
        "response": {"content": {"text": f"secret {KEY}"}}}


def test_a_har_keeps_bodies_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "agent.har"
    path.write_text(json.dumps(har(
        entry(json.dumps(chat(SYS, Q1))), entry(f"token={KEY}"), entry(json.dumps({"k": KEY})),
        entry(json.dumps({"input": "x", "model": "text-embedding"})), entry("", postData=None),
        entry(json.dumps(chat(SYS, Q1, A1, Q2))))))
    found = read(path)
    assert bodies(found) == [chat(SYS, Q1), chat(SYS, Q1, A1, Q2)]
    assert found.notes == ("4 other requests of the HAR are left out",)
    assert KEY not in repr(found)
    assert KEY not in explain(path)
    path.write_text(json.dumps(har(entry(f"token={KEY}"))))
    assert KEY not in refused(path)
    path.write_text(json.dumps(har(entry("{}")))[:-9] + KEY)
    assert KEY not in refused(path)


def test_a_har_keeps_what_is_sent_for_text(tmp_path: Path) -> None:
    """`input` and `prompt` are sent to other endpoints too; messages, to any agent's own server."""
    path = tmp_path / "agent.har"
    prompts = [("/v1/chat/completions/", chat(Q1)), ("/agent/ask", chat(Q1)),
               ("/v1/responses", {"input": "hi"}), ("/v1/messages", chat(Q1)),
               ("/api/generate", {"prompt": "hi"}), ("", {"input": "hi"})]
    others = [("/v1/moderations", {"input": "hi"}), ("/v1/embeddings", {"input": ["hi"]}),
              ("/v1/images/generations", {"prompt": "a cat"}), ("/v1/audio/speech", {"input": "x"}),
              ("/v1/messages/count_tokens", chat(Q1)), ("/apply-template", chat(Q1)),
              ("/v1/responses/input_tokens", {"input": "hi"})]
    entries = [entry(json.dumps(body), where) for where, body in [*prompts, *others]]
    entries[len(prompts) - 1]["request"].pop("url")  # taken out before it was shared
    path.write_text(json.dumps(har(*entries)))
    found = read(path)
    assert bodies(found) == [body for _, body in prompts]
    assert "7 other requests of the HAR are left out" in found.notes


MARKED = {"messages": [
    {"role": "system", "content": [{"type": "text", "text": "s",
                                    "cache_control": {"type": "ephemeral"}}]},
    Q1 | {"cache_control": {"type": "ephemeral"}}], "cache_control": {"type": "ephemeral"},
    "tools": [tool("f") | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]}


@pytest.mark.parametrize("text", [json.dumps([MARKED, MARKED]),
                                  json.dumps([{"custom_id": "1", "body": MARKED}] * 2)])
def test_marks_of_what_to_cache_are_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "turns.json"
    path.write_text(text)
    assert bodies(read(path)) == [MARKED, MARKED]
    path = lines(tmp_path / "turns.jsonl", *json.loads(text))
    assert bodies(read(path)) == [MARKED, MARKED]


@pytest.mark.parametrize("odd", [1, "x", None, True, {"a": 1}, [1, None]])
@pytest.mark.parametrize("name", ["turns.jsonl", "turns.json", "turns.har"])
def test_tools_that_are_none_are_no_trouble(tmp_path: Path, odd: Any, name: str) -> None:
    body, path = {"messages": [Q1], "tools": odd}, tmp_path / name
    values = {"turns.jsonl": f"{json.dumps(body)}\n" * 2, "turns.json": json.dumps([body] * 2),
              "turns.har": json.dumps(har(*[entry(json.dumps(body))] * 2))}
    path.write_text(values[name])
    assert bodies(read(path)) == [body, body]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    os.mkfifo(path)
    assert "found a pipe or a device; write what comes from it to a file" in refused(path)
    assert "found a pipe or a device" in refused(Path(os.devnull))


VERBOSE = """\
0.00.045.835 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
0.00.045.843 D slot launch_slot_: id  0 | task -1 | launching slot : {"id":0,"n_ctx":4096,\
"params":{"seed":1,"stop":[]},"prompt":"<|user|>\\nhi\\n<|assistant|>\\n","generated":""}
0.00.052.278 D slot launch_slot_: id  0 | task -1 | launching slot : {"id":0,"n_ctx":4096,\
"params":{"seed":1,"stop":[]},"prompt":"<|user|>\\nho\\n<|assistant|>\\n","generated":""}
"""
OLDER = """\
srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200
srv  log_server_r: request:  {"messages": [{"role": "user", "content": "hi"}]}
srv  log_server_r: response: {"choices": []}
srv  log_server_r: request:  {
  "messages": [{"role": "user", "content": "ho"}]
}
srv  log_server_r: response: {"choices": []}
"""


def test_the_verbose_log_of_a_llama_server(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(VERBOSE)
    assert bodies(read(path)) == [{"prompt": f"<|user|>\n{x}\n<|assistant|>\n"}
                                  for x in ("hi", "ho")]
    path.write_text(OLDER)
    found = read(path)
    assert bodies(found) == [{"messages": [{"role": "user", "content": x}]} for x in ("hi", "ho")]
    assert [turn.source for turn in found.turns] == ["line 2", "line 4"]
    path.write_text("srv  update_slots: all slots are idle\n")
    assert "line 1" in refused(path)


def test_the_prompts_that_a_llama_server_dumps_are_a_folder(tmp_path: Path) -> None:
    for number, text in ((12265973, "a"), (12265976, "ab")):
        (tmp_path / f"{number:012d}.txt").write_text(text)
    assert bodies(read(tmp_path)) == ["a", "ab"]


@pytest.mark.parametrize("name", [path.name for path in (ROOT / "sample_output").glob("*.json")])
def test_a_run_of_this_tool_holds_no_prompts(name: str) -> None:
    assert "not the prompts" in refused(ROOT / "sample_output" / name)


def test_nor_does_its_journal(tmp_path: Path) -> None:
    assert "--record" in refused(lines(tmp_path / "run.json.partial.jsonl",
                                       {"schema_version": 1, "tool": "local_cache"}, {}))


@pytest.mark.parametrize(("content", "said"), [
    ('"a"\n{"prompt": "b"\n', "line 2: expected JSON"),
    ('"a"\n\n[1, 2]\n', "line 3: expected a prompt or a request body"),
    ('"a"\n{"foo": 1}\n', "an object with foo"), ('"a"\n17\n', "found a number"),
    ('"a"\nnull\n', "found null"), ('"a"\n{"prompt": [1, 2]}\n', "an object with prompt"),
    ('"a"\n{"prompt": NaN}\n', "NaN is no JSON number"), ("", "an empty file"),
    (" \n\n", "an empty file"), ('"a"\n', "found one"), (chr(91) * 100_000, "line 1"),
    ('{"messages": [{"role": "user", "content": "x"}], "n": 1' + "0" * 5000 + "}\n", "line 1"),
])
def test_a_bad_line_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(content)
    assert said in refused(path)


def test_other_bad_paths(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.jsonl")
    assert "found none" in refused(tmp_path)
    (tmp_path / "1.txt").write_text("")
    assert "1.txt: expected a prompt" in refused(tmp_path)
    path = tmp_path / "x.jsonl"
    path.write_bytes('"a"\n'.encode("utf-16"))
    assert "iconv" in refused(path)
    path.write_bytes(b'"a"\n"\xff"\n')
    assert re.search(r"line 2: expected UTF-8, found the byte 0xff", refused(path))


def test_images_are_a_place_with_a_hash(tmp_path: Path) -> None:
    data = "data:image/png;base64," + "A" * 4000
    image = {"type": "image_url", "image_url": {"url": data}}
    source = {"type": "image", "source": {"type": "base64", "data": "A" * 4000}}
    for part in (image, source, {"type": "input_image", "image_url": data}):
        rendering = render({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "See:"}, part]}]})
        assert re.fullmatch(rb"<\|user\|>\nSee:\n\[image [0-9a-f]{8}\]\n", rendering.data)
        assert rendering.place(rendering.data.index(b"[image")) == "messages[0].content[1]"
    path = lines(tmp_path / "t.jsonl", *[chat({"role": "user", "content": [image]})] * 2)
    assert "AAAA" not in explain(path)
