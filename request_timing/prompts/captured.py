"""Reads the prompts that an agent really sent: a folder, a .jsonl, a HAR, a llama-server's log.

A turn is one request, kept as the bytes of its body and parsed when it is asked for. Of a HAR only
request bodies are kept, and the end of each URL's path is asked what the body is for: no header,
cookie, URL or answer goes into anything kept or said. What is not understood is refused in one line
that names the place.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from request_timing.errors import UserError, one_line
from request_timing.prompts.bodies import (
    CHAT,
    LABELS,
    PROMPT,
    RESPONSES,
    body_kind,
    goes_to_a_model,
    shape,
)
from request_timing.prompts.lossless_json import parse_json, to_json
from request_timing.prompts.rendering import render
from request_timing.untrusted import mapping

__all__ = ["CHAT", "PROMPT", "Captured", "Turn", "read", "text_turn", "turn_of"]

HEAD_BYTES = 1 << 16
# llama-server --verbose writes each request as `request:  BODY` (older builds), and what it made
# of it, when a slot takes it, as `launching slot : JSON` with the templated prompt (newer ones).
LOG_BODY = re.compile(rb"log_server_r\w*: request: +(?=\{)")
LOG_SLOT = re.compile(rb"launching slot : (?=\{)")
OTHER_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
FORMS = ("a folder of .txt or .json, a .jsonl of prompts or request bodies, a HAR, or a "
         "llama-server --verbose log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request: its bytes as they came, and where from ("line 3", "007.txt").

    kind: "prompt", "chat", "responses" (OpenAI) or "messages" (Anthropic). raw is the text itself
    where is_text, else the JSON of the body.
    """

    source: str
    kind: str
    raw: bytes
    is_text: bool = False

    @property
    def model(self) -> str | None:
        """The model that the body names."""
        body = self.body()
        named = body.get("model") if isinstance(body, dict) else None
        return named if isinstance(named, str) else None

    def body(self) -> str | dict[str, Any]:
        """The prompt's text, or the request body, parsed now; each number knows its spelling."""
        if self.is_text:
            return self.raw.decode("utf-8", "surrogatepass")
        body: dict[str, Any] = parse_json(self.raw)
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The turns of one PATH in the order they were sent, and what was understood, in one line."""

    turns: tuple[Turn, ...]
    what: str
    notes: tuple[str, ...] = ()


def read(path: Path) -> Captured:
    """The turns that `path` holds.

    Raises UserError, in one line, for a path that cannot be read, holds no turn, or holds a line
    or a file that is neither a prompt nor a request body.
    """
    try:
        if path.is_dir():
            return _captured(list(_folder(path)))
        if path.exists() and not path.is_file():  # it can be read once, or never ends
            raise UserError(f"{path}: expected a file or a folder, found a pipe or a device; write "
                          "what comes from it to a file, such as turns.jsonl, and give that")
        return _file(path)
    except OSError as error:
        raise UserError(f"{path}: expected {FORMS}, found: {error.strerror or one_line(error)}; "
                      "correct the path") from None
    except (EOFError, zlib.error):
        raise UserError(f"{path}: expected a whole gzip file, found a damaged one; pack it again"
                      ) from None


def turn_of(value: Any, where: str, source: str, raw: bytes | None = None) -> Turn:
    """A turn of a parsed JSON value. Raises UserError, naming `where`, for what is none.

    raw is the value's own text where it is at hand.
    """
    if isinstance(value, str):
        return text_turn(value, source)
    if isinstance(value, list) and value and all(
            isinstance(item, dict) and "role" in item for item in value):
        return turn_of({"messages": value}, where, source)
    for wrapper in ("body", "request"):  # a line of a batch file, or of another recorder
        if isinstance(value, dict) and not body_kind(value) and isinstance(
                value.get(wrapper), dict):
            return turn_of(value[wrapper], where, source)
    kind = body_kind(value)
    if not kind:
        raise UserError(
            f"{where}: expected a prompt or a request body (a string, or an object with "
            f"prompt, messages or input), found {shape(value)}; remove or correct it"
        )
    return Turn(source=source, kind=kind,
                raw=raw or to_json(value).encode("utf-8", "surrogatepass"))


def text_turn(text: str, source: str) -> Turn:
    """A turn that is a plain prompt."""
    return Turn(source=source, kind=PROMPT, raw=text.encode("utf-8", "surrogatepass"),
                is_text=True)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A sort key by which 2 comes before 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part)
            for part in re.split(r"(\d+)", path.name.casefold()) if part]


def _folder(folder: Path) -> Iterator[Turn]:
    """A turn a file, in natural order; files of other kinds and hidden ones are left alone."""
    files = sorted((path for path in folder.iterdir() if path.suffix.lower() in (".txt", ".json")
                    and path.is_file() and not path.name.startswith(".")), key=_natural)
    if not files:
        raise UserError(f"{folder}: expected .txt or .json files, found none; give the folder, or "
                      "the .jsonl, that holds the prompts")
    for path in files:
        data = _text(path.read_bytes(), str(path))
        if not data.strip():
            raise UserError(f"{path}: expected a prompt, found an empty file; remove it")
        if path.suffix.lower() == ".txt":
            yield Turn(source=path.name, kind=PROMPT, raw=data, is_text=True)
            continue
        value = _parse(data, str(path))
        _refuse_run(value, path)
        yield turn_of(value, str(path), path.name, data)


def _file(path: Path) -> Captured:
    with _open(path) as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(OTHER_BOMS):
        _text(head, str(path))
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start:
        raise UserError(f"{path}: expected {FORMS}, found an empty file; name another")
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() == ".har" or re.match(rb'\{\s*"log"\s*:', start):
        return _har(path)
    if suffix.lower() == ".json":
        return _json_file(path)
    if suffix.lower() in (".jsonl", ".ndjson") or (
            start[:1] in b'{"' and suffix.lower() not in (".txt", ".log")):
        return _captured(list(_lines(path)))
    return _log(path)


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def _whole(path: Path) -> bytes:
    with _open(path) as file:
        return _text(file.read(), str(path))


def _text(data: bytes, where: str) -> bytes:
    """UTF-8 without its byte order mark."""
    if data.startswith(OTHER_BOMS):
        raise UserError(
            f"{where}: expected UTF-8, found another encoding (by its byte order mark); "
            "convert it with iconv"
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: expected UTF-8, found the byte 0x{data[error.start]:02x} at "
                      f"offset {error.start}; convert it with iconv") from None
    return data.removeprefix(codecs.BOM_UTF8)


def _parse(data: bytes, where: str) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        what = (f"{error.msg} at column {error.pos + 1}"
                if isinstance(error, json.JSONDecodeError) else one_line(error, limit=80))
        raise UserError(f"{where}: expected JSON, found what is none ({what}); correct or remove it"
                      ) from None


def _lines(path: Path) -> Iterator[Turn]:
    """A turn a line; blank lines are passed over."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            where = f"{path} line {number}"
            data = _text(line, where) if number == 1 else _text(line, where).strip()
            if not data.strip():
                continue
            value = _parse(data.strip(), where)
            _refuse_run(value, path)
            yield turn_of(value, where, f"line {number}", data.strip())


def _json_file(path: Path) -> Captured:
    """One body, a list of bodies or prompts, a HAR or (refused) a run of this tool."""
    value = _parse(_whole(path), str(path))
    _refuse_run(value, path)
    if isinstance(value, list) and not all(
            isinstance(item, dict) and "role" in item for item in value):
        return _captured([turn_of(item, f"{path} item {index}", f"item {index}")
                          for index, item in enumerate(value, 1)])
    return _captured([turn_of(value, str(path), path.name)])


def _refuse_run(value: Any, path: Path) -> None:
    if isinstance(value, dict) and "schema_version" in value and "tool" in value:
        raise UserError(
            f"{path}: expected prompts, found a run of this tool, which keeps sizes and "
            "hashes of prompts, not the prompts; give the file or folder that they were "
            "sent from, or record them with --record"
        )


def _har(path: Path) -> Captured:
    """The request bodies of a HAR that are prompts; everything else in it is dropped at once."""
    har = _parse(_whole(path), str(path))
    log = har.get("log") if isinstance(har, dict) else None
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        raise UserError(f"{path}: expected a HAR with log.entries, found none; export it again")
    turns = []
    for number, entry in enumerate(entries, 1):
        request = mapping(mapping(entry).get("request"))
        text = mapping(request.get("postData")).get("text")
        if not isinstance(text, str):
            continue
        try:
            value = parse_json(text)
        except ValueError:
            continue  # a form, an upload: no prompt
        if body_kind(value) and goes_to_a_model(request.get("url"), value):
            turns.append(turn_of(value, f"{path} entry {number}", f"entry {number}",
                                 text.encode("utf-8", "surrogatepass")))
    if not turns:
        raise UserError(f"{path}: expected request bodies with prompts among its {len(entries)} "
                      "entries, found none; export the HAR with content, of the page or agent that "
                      "calls the model")
    others = len(entries) - len(turns)
    return _captured(turns, *[f"{others} other requests of the HAR are left out"] * (others > 0))


def _log(path: Path) -> Captured:
    """The requests in a llama-server's verbose log, or else the prompts its slots were given."""
    data = _whole(path)
    for pattern in (LOG_BODY, LOG_SLOT):
        turns = []
        for found in pattern.finditer(data):
            number = data.count(b"\n", 0, found.start()) + 1
            value = _first_value(data, found.end())
            if body_kind(value):
                turns.append(turn_of({"prompt": value["prompt"]} if pattern is LOG_SLOT else value,
                                     f"{path} line {number}", f"line {number}"))
        if turns:
            return _captured(turns, "read from a llama-server's verbose log")
    if path.suffix.lower() == ".txt":
        return _captured([Turn(source=path.name, kind=PROMPT, raw=data, is_text=True)])
    raise UserError(f"{path} line 1: expected {FORMS}, found another text; "
                  "llama-server --log-prompts-dir writes a folder that can be read")


def _first_value(data: bytes, start: int) -> Any:
    """The JSON value that begins at `start`, which may run over several lines; None for none."""
    end = start
    while end != len(data):  # a body is on one line, as a rule
        end = data.find(b"\n", end + 1)
        end = len(data) if end < 0 else end
        if not data[start:end].rstrip().endswith(b"}"):
            continue
        try:
            return parse_json(data[start:end])
        except ValueError:
            if end - start > HEAD_BYTES and data[start:start + 2] == b'{"':
                return None
    return None


def _captured(turns: list[Turn], *notes: str) -> Captured:
    if not turns:
        raise UserError(f"expected {FORMS}, found no prompt in it; name another")
    return Captured(turns=tuple(turns), what=_what(turns),
                    notes=(*notes, *_continued(turns)))


def _what(turns: list[Turn]) -> str:
    """What was understood: 14 turns, chat bodies, 3 tools."""
    kinds = Counter(LABELS[turn.kind] for turn in turns)
    said = (next(iter(kinds)) if len(kinds) == 1
            else " and ".join(f"{count} {label}" for label, count in kinds.items()))
    tools = {sum(unit.kind == "tool" for unit in render(turn.body()).units)
             for turn in (turns[0], turns[-1])}
    counted = " to ".join(map(str, sorted(tools)))
    return (f"{len(turns)} turn{'s' * (len(turns) != 1)}, {said}"
            + (f", {counted} tool{'s' * (counted != '1')}" if tools != {0} else ""))


def _continued(turns: list[Turn]) -> list[str]:
    count = sum(b'"previous_response_id"' in turn.raw
                and bool(mapping(turn.body()).get("previous_response_id"))
                for turn in turns if turn.kind == RESPONSES)
    return [f"{count} bodies continue an earlier response that the provider keeps: what came "
            "before is not in them"] * (count > 0)
