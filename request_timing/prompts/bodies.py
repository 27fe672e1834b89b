"""Which kind of request body this is, told by what it holds and by where it is sent."""

from __future__ import annotations

import re
from typing import Any

from request_timing.errors import one_line
from request_timing.untrusted import as_list

PROMPT, CHAT, RESPONSES, ANTHROPIC = "prompt", "chat", "responses", "messages"
LABELS = {PROMPT: "plain prompts", CHAT: "chat bodies", RESPONSES: "Responses bodies",
          ANTHROPIC: "Messages bodies"}
# The ends of paths: where prompts are sent to, whatever stands in front; to Ollama, to llama-server
# and to agents of one's own; and where they are only counted or stored.
RECORDED = ("/chat/completions", "/completions", "/completion", "/responses", "/messages")
ALSO_PROMPTS = ("/generate", "/chat", "/infill")
NO_PROMPTS = ("/count_tokens", "/input_tokens", "/tokenize", "/apply-template", "/batches")


def body_kind(body: Any) -> str:
    """Which request body this is, by what it holds; "" for none."""
    if not isinstance(body, dict):
        return ""
    if isinstance(body.get("messages"), list):
        return ANTHROPIC if _is_anthropic(body) else CHAT
    if isinstance(body.get("prompt"), str):
        return PROMPT
    if isinstance(body.get("input"), str | list) and "embed" not in str(body.get("model", "")):
        return RESPONSES
    if isinstance(body.get("prompt"), dict) and "id" in body["prompt"]:  # a stored one, whole
        return RESPONSES
    return ""


def goes_to_a_model(url: Any, body: Any) -> bool:
    """Whether a request of this URL asks for text. Where the URL is gone, the body alone says so.

    A body with messages is a prompt wherever it goes, to an agent's own server too, but for where
    it is only counted; `prompt` and `input` are sent for images, embeddings and moderation as well.
    """
    if not isinstance(url, str) or not url:
        return True
    end = re.split("[?#]", url)[0].rstrip("/")
    return not end.endswith(NO_PROMPTS) and (
        "messages" in body or end.endswith((*RECORDED, *ALSO_PROMPTS)))


def _is_anthropic(body: dict[str, Any]) -> bool:
    parts = [part for message in body["messages"] if isinstance(message, dict)
             and isinstance(message.get("content"), list) for part in message["content"]]
    return ("system" in body or "anthropic_version" in body
            or any("input_schema" in tool for tool in as_list(body.get("tools"))
                   if isinstance(tool, dict))
            or any(part.get("type") in ("tool_use", "tool_result", "thinking")
                   for part in parts if isinstance(part, dict)))


def shape(value: Any) -> str:
    """What a value is, in words that hold nothing of its content but the names of its keys."""
    if isinstance(value, dict):
        keys = ", ".join(map(str, list(value)[:5]))
        return one_line(f"an object with {keys or 'no keys'}", limit=120)
    kinds = {list: "a list", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
