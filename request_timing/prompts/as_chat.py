"""A captured request body of any kind as chat messages and tools, for a server's chat template.

What such messages have no place for (an image, a sealed thought, a call of a tool of the
provider's own) is left out, and `left_out` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from request_timing.prompts.lossless_json import to_json
from request_timing.untrusted import as_list

TEMPLATE_FIELDS = ("messages", "tools", "tool_choice", "chat_template_kwargs", "response_format")
# The parts of a chat message; of others only the text is taken.
CHAT_PARTS = {"text", "image_url", "input_audio", "file", "refusal", "video_url", "input_video"}
CALLS, RESULTS = ("function_call", "custom_tool_call"), ("function_call_output",
                                                         "custom_tool_call_output")
Lost = Counter[str]


def as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of an OpenAI chat body that decide the prompt.

    A chat body's own; made of an Anthropic Messages body (system, tool_use, tool_result), of an
    OpenAI Responses body (instructions, input) and of a plain prompt.
    """
    return _converted(body, Counter())


def left_out(body: str | dict[str, Any]) -> tuple[str, ...]:
    """A line on what `as_chat` leaves out of a body, or none: `left out …: 2 image, 1 reasoning`.
    """
    lost: Lost = Counter()
    if isinstance(body, dict):
        _converted(body, lost)
    said = ", ".join(f"{count} {kind}" for kind, count in lost.items())
    return (f"left out, since chat messages have no place for it: {said}",) if said else ()


def _converted(body: dict[str, Any], lost: Lost) -> dict[str, Any]:
    if isinstance(body.get("prompt"), str) and "messages" not in body:
        return {"messages": [{"role": "user", "content": body["prompt"]}]}
    if "messages" not in body and ("input" in body or "prompt" in body):
        head, messages = body.get("instructions"), list(_of_responses(body.get("input"), lost))
        if body.get("prompt"):
            lost["stored prompt"] += 1
    else:
        head, messages = body.get("system"), list(_of_messages(body.get("messages"), lost))
    if head:
        messages.insert(0, {"role": "system", "content": _text(head, lost)})
    kept = {name: body[name] for name in TEMPLATE_FIELDS if name in body}
    if tools := [_tool(tool) for tool in as_list(body.get("tools"))]:
        kept["tools"] = tools
    return kept | {"messages": messages}


def _tool(tool: Any) -> Any:
    """A tool as chat bodies define it."""
    if not isinstance(tool, dict) or "function" in tool or "name" not in tool:
        return tool
    return {"type": "function", "function": {
        "name": tool["name"], "description": tool.get("description", ""),
        "parameters": tool.get("input_schema") or tool.get("parameters") or {}}}


def _of_messages(messages: Any, lost: Lost) -> Iterator[dict[str, Any]]:
    """Chat messages; those with Anthropic's parts become texts, calls and results."""
    for message in as_list(messages):
        if not isinstance(message, dict):
            yield message  # the server says what it thinks of it
            continue
        content = as_list(message.get("content"))
        parts = [part if isinstance(part, dict) else {"type": "text", "text": part}
                 for part in content]
        if {str(part.get("type", "text")) for part in parts} <= CHAT_PARTS:
            yield message
            continue
        for part in parts:
            if part.get("type") == "tool_result":
                yield {"role": "tool", "tool_call_id": part.get("tool_use_id", ""),
                       "content": _text(part.get("content"), lost)}
        calls = [_call(part.get("id"), part.get("name"), to_json(part.get("input", {})))
                 for part in parts if part.get("type") == "tool_use"]
        thinking = "".join(str(part.get("thinking") or "") for part in parts
                           if part.get("type") == "thinking")
        text = _text([part for part in parts if part.get("type") not in (
            "tool_result", "tool_use", "thinking")], lost)
        if calls or text or thinking:
            yield ({"role": message.get("role", "user"), "content": text}
                   | ({"reasoning_content": thinking} if thinking else {})
                   | ({"tool_calls": calls} if calls else {}))


def _of_responses(given: Any, lost: Lost) -> Iterator[dict[str, Any]]:
    """Chat messages of a Responses input: a text, or a list of items."""
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    for item in as_list(given):
        if isinstance(item, str):
            item = {"role": "user", "content": item}
        if not isinstance(item, dict):
            continue
        kind = item.get("type", "message")
        if kind in CALLS:
            call = _call(item.get("call_id"), item.get("name"), _arguments(item))
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
        elif kind in RESULTS:
            yield {"role": "tool", "tool_call_id": item.get("call_id", ""),
                   "content": _text(item.get("output"), lost)}
        elif kind == "message":
            role = "system" if item.get("role") == "developer" else item.get("role", "user")
            yield {"role": role, "content": _text(item.get("content"), lost)}
        else:
            lost[str(kind)] += 1


def _call(call_id: Any, name: Any, arguments: str) -> dict[str, Any]:
    return {"id": str(call_id or ""), "type": "function",
            "function": {"name": str(name or ""), "arguments": arguments}}


def _arguments(item: dict[str, Any]) -> str:
    """A call's arguments, which are JSON in a string, or the JSON itself; of a custom tool a text.
    """
    if "input" in item:
        return to_json({"input": item["input"]})
    given = item.get("arguments") or "{}"
    return given if isinstance(given, str) else to_json(given)


def _text(content: Any, lost: Lost) -> str:
    """The text of a content: a string, or parts of which some hold text; the others are counted."""
    if isinstance(content, str):
        return content
    texts = []
    for part in as_list(content):
        said = (part.get("text") or part.get("refusal") or "") if isinstance(part, dict) else part
        if isinstance(part, dict) and not said and "text" not in part:
            lost[str(part.get("type", "part"))] += 1
        texts.append(str(said))
    return "".join(texts)
