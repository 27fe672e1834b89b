"""The kinds of cause for which a prompt misses, with a remedy each, and one change of a text."""

from __future__ import annotations

from dataclasses import dataclass

from request_timing.explain.volatile import HOUR, MINUTE, SECOND, Volatile

(TIME, ID, ORDER, JSON, FORM, INSERTED, CUT, COMPACTION, THINKING, EDITED, SYSTEM, MODEL, APPEND,
 UNKNOWN) = KINDS = (
    "time", "id", "order", "json", "form", "inserted", "cut", "compaction", "thinking", "edited",
    "system", "model", "append", "unknown")

COARSER = {SECOND: "hour or day", MINUTE: "hour or day", HOUR: "day"}

REMEDIES = {
    TIME: "move it behind all that stays, to the end of the last user message",
    ID: "leave it out, or move it to the end of the last user message",
    ORDER: "sort the list before it is sent, always by the same key",
    JSON: "write the JSON once, or always with the same serialiser and sorted keys",
    FORM: "normalise once where the text comes in: one Unicode form, one line end, one spacing",
    INSERTED: "put the block behind what stays, into the last user message",
    CUT: "cut rarely and in large steps: each cut makes all behind it new",
    COMPACTION: "this costs one whole prompt; compact late, and keep the summary as it is after",
    THINKING: "send earlier thinking as it was, or never; see what the chat template does with it",
    EDITED: "leave what was sent as it was, and add the correction behind it",
    SYSTEM: "keep system prompt and tools for the whole conversation; say what changes at the end",
    MODEL: "stay with one model for a conversation: no cache is shared between two",
    APPEND: "",
    UNKNOWN: "compare the two sides above; the turns may belong to different conversations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change between two texts: what kind, in words, and where both go on.

    same_content: what was passed over on the new side is what the old side had, arranged anew.
    """

    kind: str
    detail: str
    before_end: int
    after_end: int
    same_content: bool = False
    stamp: Volatile | None = None


def remedy(kind: str, stamp: Volatile | None) -> str:
    """What to do against a change, in one line."""
    if kind == TIME and stamp is not None and stamp.detail in COARSER:
        return f"send it to the {COARSER[stamp.detail]} only, or {REMEDIES[kind]}"
    return REMEDIES[kind]


def time_detail(granularity: str) -> str:
    """What is said of a time that changes each second, minute, hour, day or month."""
    return f"a time that changes each {granularity}"
