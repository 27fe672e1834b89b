"""Bodies of other APIs as chat messages: what is kept, and that what is not is said."""

from __future__ import annotations

from typing import Any

import pytest

from request_timing.prompts.as_chat import as_chat, left_out

IMAGE = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def result(*content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": list(content)}


def text(said: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": said}


CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "an image in a tool's result": (
        {"messages": [{"role": "user", "content": [result(text("See:"), IMAGE, IMAGE)]}]},
        [{"role": "tool", "tool_call_id": "t", "content": "See:"}], "2 image"),
    "an image beside a tool's result": (
        {"messages": [{"role": "user", "content": [result(text("r")), IMAGE, text("And?")]}]},
        [{"role": "tool", "tool_call_id": "t", "content": "r"},
         {"role": "user", "content": "And?"}],
        "1 image"),
    "an image of Anthropic's": (
        {"system": "s", "messages": [{"role": "user", "content": [text("See:"), IMAGE]}]},
        [{"role": "system", "content": "s"}, {"role": "user", "content": "See:"}], "1 image"),
    "sealed thinking": (
        {"system": "s", "messages": [{"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "x"}, text("Hi")]}]},
        [{"role": "system", "content": "s"}, {"role": "assistant", "content": "Hi"}],
        "1 redacted_thinking"),
    "an image of Responses": (
        {"input": [{"role": "user", "content": [text("See:", "input_text"), PICTURE]}]},
        [{"role": "user", "content": "See:"}], "1 input_image"),
    "a custom tool with its result": (
        {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "x = 1"},
                   {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}]},
        [{"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "function", "function": {
                "name": "run", "arguments": '{"input": "x = 1"}'}}]},
         {"role": "tool", "tool_call_id": "c", "content": "1"}], ""),
    "items that only the provider knows": (
        {"input": [{"type": "reasoning", "summary": []}, {"type": "web_search_call", "id": "w"},
                   {"role": "user", "content": "Hi"}], "prompt": {"id": "p"}},
        [{"role": "user", "content": "Hi"}], "1 reasoning, 1 web_search_call, 1 stored prompt"),
    "a chat body as it is": (
        {"messages": [{"role": "user", "content": [text("See:"), {
            "type": "image_url", "image_url": {"url": "data:,"}}]}]},
        [{"role": "user", "content": [text("See:"), {
            "type": "image_url", "image_url": {"url": "data:,"}}]}], ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_and_what_is_said_of_the_rest(name: str) -> None:
    body, messages, lost = CASES[name]
    assert as_chat(body)["messages"] == messages
    said = "left out, since chat messages have no place for it: "
    assert left_out(body) == ((said + lost,) if lost else ())


def test_of_a_plain_prompt_nothing_is_left_out() -> None:
    assert left_out("Hi") == left_out({"prompt": "Hi"}) == ()
