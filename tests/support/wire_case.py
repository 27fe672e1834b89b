"""A wire case: what a server sends, when, and how it ends; and the exact Sample of it.

The tables are in wire_cases_*.py; test_wire_cases.py plays them, OUTCOMES.md is made of them. A
case is written as the fields of its Sample that differ from a blank one. Moments are seconds
after the request's last byte.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from request_timing.records.sample import REASONING, TEXT, TOOL, Failure, Sample
from wire_stub import DONE, EVENT_STREAM, WHOLE

# What comes when; each part is one read.
Script = tuple[tuple[float, bytes], ...]
STREAM = {"content-type": EVENT_STREAM}
JSON = {"content-type": "application/json"}
HTML = {"content-type": "text/html; charset=utf-8"}
KINDS = {"T": TEXT, "R": REASONING, "L": TOOL}


@dataclass(frozen=True, slots=True)
class Case:
    """kind: its letter in the list of what goes wrong (A1 role-only first chunk, …), or a kind of
    failure; source: a public report, or the documentation, of a server that does this."""

    kind: str
    name: str
    source: str
    what: str
    script: Script
    sample: Mapping[str, Any]
    _: KW_ONLY
    says: str = "one two"  # the visible answer
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: STREAM)
    ends: str = WHOLE
    stall_s: float = math.inf

    @property
    def expected(self) -> Sample:
        """The whole Sample; a case through a real client has a connection beside it."""
        return replace(BLANK, **self.sample)

    @property
    def body(self) -> bytes:
        """All bytes of the answer."""
        return b"".join(data for _, data in self.script)


BLANK = Sample(experiment="length", arm="1", turn=1, repeat=1, sent_at="", prompt_chars=5,
               prompt_hash="", asked_output_tokens=4)


def sse(data: Any) -> bytes:
    """One server-sent event; not ASCII-only, so that characters are several bytes."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    """One chunk of a streamed chat completion."""
    return sse({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def extra(**fields: Any) -> bytes:
    """A chunk with no choices, and something beside them."""
    return sse({"id": "c", "choices": []} | fields)


ROLE = chunk(role="assistant", content="")
ONE, TWO = chunk(content="one"), chunk(content=" two")
END = chunk("length")
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
COUNTED: Mapping[str, Any] = {"prompt_tokens": 10, "output_tokens": 4, "usage_raw": USAGE}
LAST = extra(usage=USAGE) + DONE
# The usual answer, and its end: late and apart, so that no part of it can pass for a piece.
TAIL: Script = ((0.5, END), (0.6, LAST))
ANSWER: Script = ((0.2, ONE), (0.4, TWO), *TAIL)


def came(*arrivals_s: float, kinds: str = "", first_byte_s: float | None = None,
         finish: str | None = "length", **fields: Any) -> dict[str, Any]:
    """The Sample of pieces that came at these moments; kinds: T text, R reasoning, L tool."""
    first = arrivals_s[0] if arrivals_s and first_byte_s is None else first_byte_s
    return {"arrivals_s": arrivals_s, "first_byte_s": first, "finish_reason": finish,
            "arrival_kinds": tuple(KINDS[k] for k in kinds or "T" * len(arrivals_s)),
            "response_headers": {}} | fields


def failed(kind: str, message: str, status: int | None = None, *arrivals_s: float,
           retry_after_s: float | None = None, **fields: Any) -> dict[str, Any]:
    """The Sample of a failure under way, with the arrivals so far."""
    error = Failure(kind=kind, message=message, http_status=status, retry_after_s=retry_after_s)
    return came(*arrivals_s, finish=None, error=error, **fields)


def refused(kind: str, message: str, status: int | None = None,
            retry_after_s: float | None = None) -> dict[str, Any]:
    """The Sample of a request whose answer was refused, or none, by its head."""
    return {"error": Failure(kind=kind, message=message, http_status=status,
                             retry_after_s=retry_after_s)}
