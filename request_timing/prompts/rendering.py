"""A request body as one run of bytes, in the order of a chat template, with a map of places.

Tools come first, then what shapes the template (`response_format`, `chat_template_kwargs`, ...),
then the system text, then the messages: the order in which chat templates and providers lay a
prompt out, and so the order in which a prefix cache meets it. Markers stand for the template's own
words; offsets count bytes of this rendering, not of the JSON. Kept as they came: the order of keys,
the spelling of numbers, every character of a string. Left out, because no model reads it: the
JSON's own spacing and escapes, the `cache_control` marks of tools, messages and parts (a tool's
argument of that name is read), and fields that no template knows.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from request_timing.prompts.lossless_json import to_json, walk
from request_timing.untrusted import as_list

TOOL, SETTING, SYSTEM, MESSAGE, TEXT = "tool", "setting", "system", "message", "text"
# What shapes the prompt. A stored prompt of OpenAI's (its id, version and variables) begins it;
# the choice of a tool stands behind the system text: it leaves what comes before in the cache.
STORED_PROMPT = "prompt"
SETTINGS = (STORED_PROMPT, "response_format", "text", "output_format", "output_config",
            "chat_template", "chat_template_kwargs", "reasoning_effort", "reasoning", "thinking",
            "documents", "mcp_servers")
LATE_SETTINGS = ("tool_choice", "function_call")
SYSTEM_ROLES = ("system", "developer")
THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
CONTENT_FIELDS = ("content", "output", "input", "action", "refusal")
NOT_READ = ("cache_control",)
CALL_KEYS = ("name", "arguments", "id", "tool_call_id", "call_id")
TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")
MEDIA = ("image", "audio", "video", "file", "document")
HASH_CHARS = 8
# How chat templates, and people, mark whose turn it is in one text.
ROLE_MARK = re.compile(
    r"<\|(?:im_start|start|turn)\|?>(\w+)|<\|start_header_id\|>(\w+)<\|end_header_id\|>"
    r"|<\|(system|user|assistant|tool|observation)\|>|<start_of_turn>(\w+)|\[INST\]"
    r"|^(?:#+ ?)?(System|User|Human|Assistant|AI|Tool):", re.M)
MARKS = ("<|", "<start_of_turn>", "[INST]", "User:", "Human:")  # quickly looked for
LEAST_MARKS = 2
ROLE_NAMES = {"human": "user", "ai": "assistant", "model": "assistant", "observation": "tool"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One tool, setting, system text or message of a rendering: data[start:end]."""

    start: int
    end: int
    kind: str
    role: str
    name: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashed by identity
class Rendering:
    """A turn as bytes of UTF-8, its units in order, and the place of every byte.

    starts[n] is the first byte that lies in places[n]. model is the body's, or None.
    """

    data: bytes
    chars: int
    units: tuple[Unit, ...]
    starts: Sequence[int]
    places: Sequence[str]
    model: str | None

    def place(self, offset: int) -> str:
        """Where in the body a byte lies: `messages[0].content`, `tools[3].function.name`."""
        return self.places[max(0, bisect_right(self.starts, offset) - 1)] if self.places else ""

    def unit_index(self, offset: int) -> int:
        """Which unit a byte lies in; behind the last, the number of units."""
        return bisect_right([unit.end for unit in self.units], offset)


class _Writer:
    """Collects texts, the places they are of, and the units they form."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.length = self.chars = 0
        self.starts: list[int] = []
        self.places: list[str] = []
        self.units: list[Unit] = []

    def put(self, text: str, place: str) -> None:
        """Add a text; a lone surrogate of the JSON is kept as the three bytes it would be."""
        if not text:
            return
        if not self.places or self.places[-1] != place:
            self.starts.append(self.length)
            self.places.append(place)
        data = text.encode("utf-8", "surrogatepass")
        self._parts.append(data)
        self.length += len(data)
        self.chars += len(text)

    def put_json(self, value: Any, place: str) -> None:
        """Add a value as JSON, every leaf with its own place."""
        walk(value, place, self.put)

    def close(self, start: int, kind: str, place: str, *, role: str = "", name: str = "") -> None:
        """Everything since `start` is one unit."""
        self.units.append(Unit(start=start, end=self.length, kind=kind, role=role, name=name,
                               place=place))

    def rendering(self, model: str | None) -> Rendering:
        """What was collected."""
        return Rendering(data=b"".join(self._parts), chars=self.chars, units=tuple(self.units),
                         starts=self.starts, places=self.places, model=model)


def render(body: Any) -> Rendering:
    """The rendering of a plain prompt (a str) or of a request body (a dict) of any known kind."""
    writer = _Writer()
    if isinstance(body, str):
        body = {"prompt": body}
    if isinstance(body.get("prompt"), str) and "messages" not in body:
        _prompt(writer, body["prompt"])
        return writer.rendering(_model(body))
    for field in ("tools", "functions"):
        for index, tool in enumerate(as_list(body.get(field))):
            start, place = writer.length, f"{field}[{index}]"
            writer.put_json(_unmarked_tool(tool), place)
            writer.put("\n", place)
            writer.close(start, TOOL, place, name=tool_name(tool))
    _settings(writer, body, SETTINGS)
    for key in ("system", "instructions"):
        if body.get(key):
            start = writer.length
            writer.put("<|system|>\n", key)
            _content(writer, body[key], key)
            writer.put("\n", key)
            writer.close(start, SYSTEM, key, role="system")
    _settings(writer, body, LATE_SETTINGS)
    field = "messages" if "messages" in body else "input"
    messages = body.get(field)
    if isinstance(messages, str):
        _message(writer, {"role": "user", "content": messages}, field, content_place=field)
    for index, message in enumerate(as_list(messages)):
        _message(writer, message, f"{field}[{index}]")
    return writer.rendering(_model(body))


def _settings(writer: _Writer, body: dict[str, Any], names: Sequence[str]) -> None:
    """A line for each setting that is there; one that only narrows a choice is not read."""
    for key in names:
        value = body.get(key)
        if value is None or (key == STORED_PROMPT and not isinstance(value, dict)) or (
                isinstance(value, dict) and value.get("type") == "allowed_tools"):
            continue
        start = writer.length
        writer.put(f"{key}: ", key)
        writer.put_json(value, key)
        writer.put("\n", key)
        writer.close(start, SETTING, key, name=key)


def unmarked(holder: Any) -> Any:
    """A tool, message or part without the mark that says up to where to cache."""
    if not isinstance(holder, dict) or not any(name in holder for name in NOT_READ):
        return holder
    return {key: item for key, item in holder.items() if key not in NOT_READ}


def _unmarked_tool(tool: Any) -> Any:
    """A tool without its mark, which some gateways take within `function`; its schema is whole."""
    tool = unmarked(tool)
    if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
        return tool | {"function": unmarked(tool["function"])}
    return tool


def _prompt(writer: _Writer, text: str) -> None:
    """A plain prompt as it is; what a chat template marked as messages are its units."""
    marks = list(ROLE_MARK.finditer(text)) if any(mark in text for mark in MARKS) else []
    if len(marks) < LEAST_MARKS:
        writer.put(text, "prompt")
        writer.close(0, TEXT, "prompt")
        return
    if marks[0].start():
        writer.put(text[:marks[0].start()], "prompt")
        writer.close(0, TEXT, "prompt")
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        start = writer.length
        writer.put(text[mark.start():following.start() if following else len(text)], "prompt")
        role = next((group.lower() for group in mark.groups() if group), "user")
        kind = SYSTEM if role in SYSTEM_ROLES else MESSAGE
        writer.close(start, kind, "prompt", role=ROLE_NAMES.get(role, role))


def tool_name(tool: Any) -> str:
    """The name that a tool is known by, in any of the body kinds; "" where it has none."""
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name") or tool.get("type") or "")


def _model(body: dict[str, Any]) -> str | None:
    model = body.get("model")
    return model if isinstance(model, str) else None


def _message(writer: _Writer, message: Any, place: str, *, content_place: str = "") -> None:
    """One message or input item, as a unit that ends with a line end."""
    start = writer.length
    if not isinstance(message, dict):
        writer.put_json(message, place)
        writer.put("\n", place)
        writer.close(start, MESSAGE, place)
        return
    role = str(message.get("role") or message.get("type") or "")
    if role == "reasoning":
        shown = [*as_list(message.get("summary")), *as_list(message.get("content"))]
        _thinking(writer, "".join(str(part.get("text", "")) for part in shown
                                  if isinstance(part, dict)) or _hashed("sealed", message), place)
    else:
        writer.put(f"<|{role}|>\n", f"{place}.role")
        if message.get("name"):
            writer.put(f"{message['name']}\n", f"{place}.name")
        for key in THINKING_FIELDS:
            if thought := _thought(message.get(key)):
                _thinking(writer, thought, f"{place}.{key}")
                break
        for key in CONTENT_FIELDS:
            _content(writer, message.get(key), content_place or f"{place}.{key}")
        _calls(writer, message, place)
    writer.put("\n", place)
    kind = SYSTEM if role in SYSTEM_ROLES else MESSAGE
    writer.close(start, kind, place, role=role, name=str(message.get("name") or ""))


def _calls(writer: _Writer, message: dict[str, Any], place: str) -> None:
    """Tool calls in their several spellings, and the ids that tie an answer to its call."""
    calls = [(call, f"{place}.tool_calls[{index}]")
             for index, call in enumerate(as_list(message.get("tool_calls")))]
    calls.append((message.get("function_call"), f"{place}.function_call"))
    calls.append(({key: message.get(key) for key in CALL_KEYS
                   if key not in ("name", "id")}, place))
    for call, where in calls:
        if not isinstance(call, dict):
            continue
        function = call.get("function")
        named, inner = (function, f"{where}.function") if isinstance(function, dict) else (
            call, where)
        for of, keys, path in ((named, CALL_KEYS[:2], inner), (call, CALL_KEYS[2:], where)):
            for key in keys:
                if of.get(key):
                    writer.put("\n", where)
                    value = of[key]
                    (writer.put if isinstance(value, str) else writer.put_json)(
                        value, f"{path}.{key}")


def _thought(value: Any) -> str:
    """The thinking of a field: a text, or details of which some hold text and others are sealed."""
    if isinstance(value, list):
        return "".join(str(item.get("text") or item.get("summary") or _hashed("sealed", item))
                       for item in value if isinstance(item, dict))
    return value if isinstance(value, str) else ""


def _thinking(writer: _Writer, text: str, place: str) -> None:
    writer.put(f"<think>\n{text}\n</think>\n", place)


def _content(writer: _Writer, content: Any, place: str) -> None:
    """A content: one text, or parts, which are set line by line."""
    if content is None:
        return
    if isinstance(content, str):
        writer.put(content, place)
        return
    if not isinstance(content, list):
        writer.put_json(content, place)
        return
    for index, part in enumerate(content):
        if index:
            writer.put("\n", place)
        _part(writer, part, f"{place}[{index}]")


def _part(writer: _Writer, part: Any, place: str) -> None:
    if isinstance(part, str):
        writer.put(part, place)
        return
    if not isinstance(part, dict):
        writer.put_json(part, place)
        return
    kind = str(part.get("type", "text"))
    if kind in TEXT_PARTS:
        writer.put(str(part.get("text") or part.get("refusal") or ""), f"{place}.text")
    elif media := next((name for name in MEDIA if name in kind), ""):
        writer.put(_hashed(media, part), place)
    elif kind in ("thinking", "redacted_thinking"):
        _thinking(writer, str(part.get("thinking") or _hashed("sealed", part)),
                  f"{place}.thinking")
    elif kind == "tool_result":
        writer.put(f"{part.get('tool_use_id', '')}\n", f"{place}.tool_use_id")
        _content(writer, part.get("content"), f"{place}.content")
    elif kind == "tool_use":
        writer.put(f"{part.get('name', '')}\n", f"{place}.name")
        writer.put_json(part.get("input"), f"{place}.input")
        writer.put(f"\n{part.get('id', '')}", f"{place}.id")
    else:
        nested = part.get("content")
        whole = unmarked(part) | ({"content": [unmarked(item) for item in nested]}
                                  if isinstance(nested, list) else {})
        writer.put_json(whole, place)


def _hashed(what: str, part: dict[str, Any]) -> str:
    """Data that is no text, as its kind and a short hash: [image 3f2a9c1b]."""
    kept = {key: value for key, value in part.items() if key not in (*NOT_READ, "id", "status")}
    digest = hashlib.sha256(to_json(kept).encode("utf-8", "surrogatepass")).hexdigest()
    return f"[{what} {digest[:HASH_CHARS]}]"
