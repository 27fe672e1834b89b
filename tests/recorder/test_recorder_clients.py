"""Real clients through the recorder: the openai SDK, and an agent library."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from recorder_process import KEY, recording, unused_port
from wire_stub import DONE, Answer, piece, said, sse, wire_stub

MESSAGES: Any = [{"role": "system", "content": "Answer in letters. é"},
                 {"role": "user", "content": "hello \u2028 there"}]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


class Sdk:
    """An openai client that remembers the bytes of each request that it sends."""

    def __init__(self, base_url: str, *, max_retries: int = 0) -> None:
        self.sent: list[bytes] = []
        http = httpx.Client(trust_env=False, event_hooks={
            "request": [lambda request: self.sent.append(request.read())]})
        self.client = openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=max_retries,
                                    http_client=http)  # type: ignore[arg-type, unused-ignore]

    def chat(self, messages: Any = MESSAGES) -> Any:
        return self.client.chat.completions.create(
            model="m", messages=messages, max_tokens=8, temperature=0)

    def streamed(self, messages: Any = MESSAGES) -> Iterator[Any]:
        yield from self.client.chat.completions.create(
            model="m", messages=messages, max_tokens=8, temperature=0, stream=True,
            stream_options={"include_usage": True})


def completion(message: dict[str, Any]) -> Answer:
    """A chat completion in one piece."""
    return said("application/json", json.dumps({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message
                     else "stop", "message": {"role": "assistant", "content": None} | message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}))


def tool_call(arguments: str) -> dict[str, Any]:
    return {"id": "call-1", "type": "function",
            "function": {"name": "weather", "arguments": arguments}}


def test_the_sdk_sees_what_it_sees_without_the_recorder(out: Path) -> None:
    whole = completion({"content": "yes"})
    with wire_stub(script=[whole, None, whole, None]) as stub, recording(stub.url, out) as recorder:
        direct, through = Sdk(stub.url), Sdk(recorder.url)
        expected = direct.chat(), [chunk.to_dict() for chunk in direct.streamed()]
        stub.answers.clear()
        seen = through.chat(), [chunk.to_dict() for chunk in through.streamed()]
    assert seen[0] == expected[0]
    # The stub numbers its words by the request.
    assert json.dumps(seen[1]).replace("a3w", "a1w") == json.dumps(expected[1])
    assert len(seen[1]) == 8 + 3
    assert recorder.lines == through.sent == direct.sent


def test_two_turns_on_a_real_server_replay_as_the_same_prompts(
    dense_server: str, out: Path
) -> None:
    with recording(dense_server, out) as recorder:
        sdk = Sdk(f"{recorder.url}/v1")
        first = sdk.chat()
        turns = [*MESSAGES, {"role": "assistant", "content": first.choices[0].message.content},
                 {"role": "user", "content": "and again"}]
        *pieces, last = sdk.streamed(turns)
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert recorder.lines == sdk.sent
    assert recorder.said[0].endswith(f"instead of {dense_server}; Ctrl-C ends it")
    counted = []
    for line in recorder.lines:
        asked = urllib.request.Request(
            f"{dense_server}/v1/chat/completions",
            json.dumps(json.loads(line) | {"stream": False}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as answer:
            counted.append(json.load(answer)["usage"]["prompt_tokens"])
    assert counted == [first.usage.prompt_tokens, last.usage.prompt_tokens]
    assert counted[0] < counted[1]


def agent_of(model: Any) -> Agent[None, str]:
    """An agent with one tool, whose answer holds what a fake provider must have seen."""
    agent = Agent(model, instructions="You are brief.")

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    return agent


def test_an_agent_with_a_tool_leaves_its_turns(out: Path) -> None:
    script = [completion({"tool_calls": [tool_call('{"city": "Köln"}')]}),
              completion({"content": "Take an umbrella."})]
    with wire_stub(script=script) as stub, recording(stub.url, out) as recorder:
        provider = OpenAIProvider(base_url=recorder.url, api_key=KEY)
        result = agent_of(OpenAIChatModel("m", provider=provider)).run_sync("And in Köln?")
        assert result.output == "Take an umbrella."
        first, second = map(json.loads, recorder.lines)
        assert [first, second] == [chat.body for chat in stub.chats]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather"]
    assert first["tools"] == second["tools"]
    assert second["messages"][:len(first["messages"])] == first["messages"]  # append-only
    call, answer = second["messages"][len(first["messages"]):]
    # As text they differ: the library writes the model's arguments anew, without the space.
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"city": "Köln"}
    assert (answer["role"], answer["content"]) == ("tool", "rain in Köln")
    assert KEY.encode() not in out.read_bytes()
    assert all(chat.headers["authorization"] == f"Bearer {KEY}" for chat in stub.chats)


async def streamed_run(agent: Agent[None, str], text: str) -> str:
    async with agent.run_stream(text) as result:
        return "".join([part async for part in result.stream_text(delta=True)])


def test_an_agent_that_streams_leaves_its_turns(out: Path) -> None:
    import asyncio

    call = tool_call("") | {"index": 0}
    rest = {"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}
    script = [
        Answer(body=(piece(role="assistant", tool_calls=[call]), piece(tool_calls=[rest]),
                     piece(finish="tool_calls"), DONE)),
        Answer(body=(piece(role="assistant"), piece(content="Rain"), piece(content="."),
                     piece(finish="stop"), DONE))]
    with wire_stub(script=script) as stub, recording(stub.url, out) as recorder:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=recorder.url, api_key=KEY))
        assert asyncio.run(streamed_run(agent_of(model), "And in Oslo?")) == "Rain."
        bodies = [json.loads(line) for line in recorder.lines]
        assert bodies == [chat.body for chat in stub.chats]
    assert [body["stream"] for body in bodies] == [True, True]
    assert bodies[1]["messages"][-1]["content"] == "rain in Oslo"


def test_an_agent_of_the_responses_api_is_recorded_too(out: Path) -> None:
    answer = said("application/json", json.dumps({
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": [{"type": "message", "id": "x", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Rain.", "annotations": []}]}],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}))
    with wire_stub(then=answer, everywhere=True) as stub, recording(stub.url, out) as recorder:
        provider = OpenAIProvider(base_url=recorder.url, api_key=KEY)
        result = agent_of(OpenAIResponsesModel("m", provider=provider)).run_sync("And in Oslo?")
        assert result.output == "Rain."
        assert [json.loads(line) for line in recorder.lines] == [stub.asked[0].body]
    assert "input" in stub.asked[0].body


def test_an_upstream_that_is_down_is_an_error_that_the_sdk_understands(out: Path) -> None:
    with recording(f"http://127.0.0.1:{unused_port()}/v1", out) as recorder:
        with pytest.raises(openai.InternalServerError) as error:
            Sdk(recorder.url).chat()
        recorder.stop()
    assert error.value.status_code == 502
    assert "cannot be reached (Connect" in error.value.message
    assert not out.exists()


def test_what_the_sdk_sends_again_is_recorded_once(out: Path) -> None:
    busy = said("application/json", '{"error": {"message": "busy"}}', 503)
    with (wire_stub(script=[busy, completion({"content": "yes"})]) as stub,
          recording(stub.url, out) as recorder):
        sdk = Sdk(recorder.url, max_retries=2)
        assert sdk.chat().choices[0].message.content == "yes"
        assert len(stub.chats) == 2
        assert recorder.lines == sdk.sent[:1]


def test_an_error_in_the_stream_passes_as_it_is(out: Path) -> None:
    broken = Answer(body=(piece(content="a"), sse({"error": {"message": "overloaded"}})))
    with wire_stub(script=[broken]) as stub, recording(stub.url, out) as recorder:
        chunks = Sdk(recorder.url).streamed()
        assert next(chunks).choices[0].delta.content == "a"
        with pytest.raises(openai.APIError, match="overloaded"):
            next(chunks)
