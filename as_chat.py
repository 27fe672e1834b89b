"""A captured request body of any kind as chat messages and tools, for a server's chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from foreign import as_list

TEMPLATE_FIELDS = ("messages", "tools", "tool_choice", "chat_template_kwargs", "response_format")


def as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of an OpenAI chat body that decide the prompt.

    A chat body's own; made of an Anthropic Messages body (system, tool_use, tool_result), of an
    OpenAI Responses body (instructions, input) and of a plain prompt.
    """
    if isinstance(body.get("prompt"), str) and "messages" not in body:
        return {"messages": [{"role": "user", "content": body["prompt"]}]}
    if "input" in body and "messages" not in body:
        head, messages = body.get("instructions"), list(_of_responses(body["input"]))
    else:
        head, messages = body.get("system"), list(_of_messages(body.get("messages")))
    if head:
        messages.insert(0, {"role": "system", "content": _text(head)})
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


def _of_messages(messages: Any) -> Iterator[dict[str, Any]]:
    """Chat messages; those with Anthropic's tool parts become calls and results."""
    for message in as_list(messages):
        if not isinstance(message, dict):
            yield message  # the server says what it thinks of it
            continue
        content = as_list(message.get("content"))
        parts = [part if isinstance(part, dict) else {"type": "text", "text": part}
                 for part in content]
        kinds = {str(part.get("type")) for part in parts}
        if not kinds & {"tool_use", "tool_result", "thinking"}:
            yield message
            continue
        for part in parts:
            if part.get("type") == "tool_result":
                yield {"role": "tool", "tool_call_id": part.get("tool_use_id", ""),
                       "content": _text(part.get("content"))}
        calls = [_call(part.get("id"), part.get("name"), json.dumps(part.get("input", {})))
                 for part in parts if part.get("type") == "tool_use"]
        thinking = "".join(str(part.get("thinking") or "") for part in parts
                           if part.get("type") == "thinking")
        text = _text([part for part in parts if part.get("type") == "text"])
        if calls or text or thinking:
            yield ({"role": message.get("role", "user"), "content": text}
                   | ({"reasoning_content": thinking} if thinking else {})
                   | ({"tool_calls": calls} if calls else {}))


def _of_responses(given: Any) -> Iterator[dict[str, Any]]:
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
        if kind == "function_call":
            call = _call(item.get("call_id"), item.get("name"), _arguments(item))
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
        elif kind == "function_call_output":
            yield {"role": "tool", "tool_call_id": item.get("call_id", ""),
                   "content": _text(item.get("output"))}
        elif kind == "message":
            role = "system" if item.get("role") == "developer" else item.get("role", "user")
            yield {"role": role, "content": _text(item.get("content"))}


def _call(call_id: Any, name: Any, arguments: str) -> dict[str, Any]:
    return {"id": str(call_id or ""), "type": "function",
            "function": {"name": str(name or ""), "arguments": arguments}}


def _arguments(item: dict[str, Any]) -> str:
    """A call's arguments, which are JSON in a string, or the JSON itself."""
    given = item.get("arguments") or "{}"
    return given if isinstance(given, str) else json.dumps(given)


def _text(content: Any) -> str:
    """The text of a content: a string, or parts of which some hold text."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") if isinstance(part, dict) else str(part)
                   for part in as_list(content))
