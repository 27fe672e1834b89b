"""The record of a run: one Sample per request, one Run per file.

Raw is stored, the rest is derived: a Sample keeps when each piece arrived and what the server
counted; TTFT, totals and summaries are computed from that and written for the reader's
convenience only. `load_run` ignores what is derived and computes it again, so that a mended
formula reaches old files. Seconds and tokens throughout; None is unknown, 0 is zero.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from request_timing import VERSION
from request_timing.errors import UserError, one_line
from request_timing.records.sample import Sample

# 1: the first version.
SCHEMA_VERSION = 1


class RecordError(UserError):
    """A file that is no record of ours, or cannot be written; the message is for the user."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of one script: the facts around it, and its samples in the order they were made."""

    tool: str
    command: list[str]
    created_at: str
    environment: dict[str, Any]
    endpoint: dict[str, Any]
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    complete: bool = False
    version: str = VERSION
    schema_version: int = SCHEMA_VERSION

    def header(self) -> dict[str, Any]:
        """Everything but the samples and what is derived from them."""
        names = ("schema_version", "complete", "tool", "version", "command", "created_at",
                 "environment", "endpoint", "settings", "notes")
        return {name: getattr(self, name) for name in names}


def flat(facts: Mapping[str, Any], joint: str = ".", prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Facts about a run as names and values, those within others by the whole way to them."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from flat(value, joint, f"{prefix}{name}{joint}")
        else:
            yield f"{prefix}{name}", value


def dumps(value: Any) -> str:
    """Strict JSON on one line: a NaN or an infinity is a defect of ours and raises ValueError."""
    return json.dumps(value, allow_nan=False)


def load_run(path: Path) -> Run:
    """A Run from its JSON file, or from the journal that a killed run left.

    Raises RecordError, in one line, for a file that cannot be read, is no record, or has a
    schema version that this program does not know.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); give the path of a run's "
                          "JSON, as a run has said it") from None
    except UnicodeDecodeError:
        raise RecordError(f"{path}: expected a run's JSON, found bytes that are no UTF-8") from None
    header, sample_data = _parse(path, text)
    version = header.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RecordError(f"{path}: expected schema_version {SCHEMA_VERSION}, found {version!r}; "
                          "use the version of this tool that wrote it")
    known = {f.name: header[f.name] for f in fields(Run) if f.name in header}
    try:
        known["samples"] = [Sample.from_json(data) for data in sample_data]
        return Run(**known)
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path}: expected a run's JSON, but {error}") from None


@contextlib.contextmanager
def sound(names: object) -> Iterator[None]:
    """Around what reads runs of these names: a value of the wrong type becomes a UserError."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise UserError(f"{names}: expected a run's JSON, found values of another kind "
                      f"({one_line(error)})") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _parse(path: Path, text: str) -> tuple[dict[str, Any], list[Any]]:
    """Header and sample objects of either form of file."""
    try:
        whole = json.loads(text, parse_constant=_no_number)
    except ValueError:
        lines = []
        for line in text.split("\n"):
            try:
                lines.append(json.loads(line, parse_constant=_no_number))
            except ValueError:
                break  # the line that the kill cut short
        whole = lines[0] | {"samples": lines[1:]} if lines and isinstance(lines[0], dict) else None
    if not isinstance(whole, dict) or "schema_version" not in whole:
        raise RecordError(f"{path}: expected a run's JSON or journal, found something else; if "
                          "these are prompts, --explain reads them")
    samples = whole.get("samples", [])  # a journal of the header alone has none
    return whole, samples if isinstance(samples, list) else []
