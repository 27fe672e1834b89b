"""What was done to one text: from the first byte that differs to where the texts meet again.

The order of the questions is the order of how sure their answers are: the same thinking aside, the
same JSON, the same characters, the same items, a thing that changes by itself; then the shape.
"""

from __future__ import annotations

import re

from request_timing.explain import volatile
from request_timing.explain.align import character_start, common_prefix_bytes, meeting
from request_timing.explain.kinds import (
    COMPACTION,
    CUT,
    EDITED,
    ID,
    INSERTED,
    SYSTEM,
    THINKING,
    TIME,
    UNKNOWN,
    Edit,
    time_detail,
)
from request_timing.explain.sameness import (
    LINE_BYTES,
    decoded,
    json_form,
    line_start,
    order,
    text_form,
)

THINK_BYTES = 1 << 18
BLOCK_CHARS = 40  # a replaced part of at least this many characters is a block
PRUNED_CHARS, SHRUNK = 200, 2
THOUGHT = re.compile(
    r"\s*(?:<(think|thinking|reasoning|thought)>.*?(?:</\1>|\Z)"
    r"|\[THINK\].*?(?:\[/THINK\]|\Z)"
    r"|<\|channel\|>analysis<\|message\|>.*?(?:<\|end\|>(?:<\|start\|>assistant)?|\Z))\s*", re.S)
# Of an answer only what it begins with, and what is closed before anything is opened again, may be
# taken out of it: a tag may be what the answer is about.
CLOSED_THOUGHT = re.compile(
    r"\s*(?:<(think|thinking|reasoning|thought)>(?:(?!<\1>).)*?</\1>"
    r"|\[THINK\](?:(?!\[THINK\]).)*?\[/THINK\]"
    r"|<\|channel\|>analysis<\|message\|>(?:(?!<\|message\|>).)*?<\|end\|>"
    r"(?:<\|start\|>assistant)?)\s*", re.S)
THOUGHT_MARKS = ("<think", "<reasoning>", "<thought>", "[THINK]", "<|channel|>analysis")
BLOCK_WORDS = re.compile(
    r"memor|context|retriev|document|knowledge|relevant|recall|search result|snippet|passage|"
    r"note|source|fact|excerpt|chunk|reminder|profile", re.I)
MEDIA_HASH, MEDIA_BYTES = re.compile(rb"\[(\w+) [0-9a-f]{8}\]"), 24
SUMMARY_WORDS = re.compile(
    r"summar|so far|compact|condens|recap|conversation history|previous(?:ly)? |earlier ", re.I)


def edit(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int, role: str) -> Edit:
    """The change at a_at and b_at, where two texts part that end at a_end and b_end.

    role: whose text it is: "system", "user", "assistant", "tool"; "" for a plain prompt, and
    "tools" for the definition of one.
    """
    for ask in (_media, _thinking, json_form, text_form, order):
        found = ask(a, a_at, a_end, b, b_at, b_end)
        if found is not None:
            return found
    return (_volatile(a, a_at, a_end, b, b_at, b_end, role)
            or _shape(a, a_at, a_end, b, b_at, b_end, role))


def _media(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int) -> Edit | None:
    """Other data of an image or a file, which a rendering holds as a hash."""
    ends = []
    for data, at, end in ((a, a_at, a_end), (b, b_at, b_end)):
        start = data.rfind(b"[", max(0, at - MEDIA_BYTES), at)
        found = MEDIA_HASH.match(data, start, end) if start >= 0 else None
        if found is None or found.end() <= at:
            return None
        ends.append((found.end(), found[1].decode()))
    return Edit(kind=EDITED, detail=f"other data of the {ends[1][1]}", before_end=ends[0][0],
                after_end=ends[1][0])


def without_thinking(answer: str) -> str:
    """The answer without the thinking that it begins with, and the white space around that."""
    found = CLOSED_THOUGHT.match(answer)
    return answer[found.end():] if found else answer


def less_thinking(text: str) -> str:
    """The text without all that could be thinking: to compare two turns, and for nothing else."""
    return THOUGHT.sub("", text) if any(mark in text for mark in THOUGHT_MARKS) else text


def _thinking(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int) -> Edit | None:
    a_back, b_back = (character_start(data, max(0, at - THINK_BYTES))
                      for data, at in ((a, a_at), (b, b_at)))
    opened, on_b = (
        max(data.rfind(mark.encode(), back, at + len(mark) + 4) for mark in THOUGHT_MARKS)
        for data, back, at in ((a, a_back, a_at), (b, b_back, b_at)))
    if opened < 0 and on_b < 0:
        return None
    a_from = min(x for x in (opened, a_at) if x >= 0)
    b_from = min(x for x in (on_b, b_at) if x >= 0)
    back = max(a_at - a_from, b_at - b_from, 0)
    a_from, b_from = a_at - back, b_at - back
    ends = []
    for data, start, stop in ((a, a_from, a_end), (b, b_from, b_end)):
        window = decoded(data[start:character_start(data, min(stop, start + THINK_BYTES))])
        found = THOUGHT.search(window)
        shift = found.start() if found else 0
        # Thinking that is not where the texts part is another matter.
        near = found is not None and len(window[:shift].encode()) <= back + 8
        ends.append(start + len(window[:found.end()].encode()) if found and near else start)
    a_next, b_next = ends
    if (a_next, b_next) == (a_from, b_from):
        return None
    a_next = max(a_next, a_at) if a_next != a_from else _past_space(a, a_at, a_end)
    b_next = max(b_next, b_at) if b_next != b_from else _past_space(b, b_at, b_end)
    run = common_prefix_bytes(a[a_next:a_end], b[b_next:b_end])
    if run < min(8, a_end - a_next, b_end - b_next):
        return None
    return Edit(kind=THINKING, detail="earlier thinking is removed or rendered again",
                before_end=a_next, after_end=b_next)


def _past_space(data: bytes, at: int, end: int) -> int:
    while at < end and data[at] in b" \t\r\n":
        at += 1
    return at


def _volatile(
    a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int, role: str
) -> Edit | None:
    start = max(line_start(a, a_at), a_at - (b_at - line_start(b, b_at)))
    back = a_at - start
    lead = decoded(b[b_at - back:b_at])
    texts = [lead + decoded(data[at:character_start(data, min(end, at + LINE_BYTES))])
             for data, at, end in ((a, a_at, a_end), (b, b_at, b_end))]
    found = volatile.volatile(texts[0], texts[1], len(lead), prose=role in ("user", "assistant"))
    if found is None:
        return None
    details = {volatile.TIME: time_detail(found.detail),
               volatile.COUNTER: f"a {found.detail}"}
    return Edit(
        kind=TIME if found.kind == volatile.TIME else ID, stamp=found,
        detail=details.get(found.kind, f"a {found.detail} that changes"),
        before_end=a_at + len(texts[0][len(lead):max(found.before_end, len(lead))].encode()),
        after_end=b_at + len(texts[1][len(lead):max(found.after_end, len(lead))].encode()))


def _shape(a: bytes, a_at: int, a_end: int, b: bytes, b_at: int, b_end: int, role: str) -> Edit:
    """What the sizes of the two sides say, and the words around them."""
    met = meeting(a, a_at, a_end, b, b_at, b_end)
    a_to, b_to = met or (a_end, b_end)
    old, new = decoded(a[a_at:a_to]), decoded(b[b_at:b_to])
    meets = met is not None and a_to < a_end and common_prefix_bytes(a, b, a_to, b_to) >= 16
    lead = decoded(b[character_start(b, max(0, b_at - LINE_BYTES)):b_at])
    kind, detail = _named(old, new, lead, role, meets)
    return Edit(kind=kind, detail=detail, before_end=a_to, after_end=b_to)


def _named(old: str, new: str, lead: str, role: str, meets: bool) -> tuple[str, str]:
    around = lead + old[:300] + new[:300]
    block = len(old.strip()) >= BLOCK_CHARS or len(new.strip()) >= BLOCK_CHARS
    mostly_time = _is_stamp(old) if old.strip() and not new.strip() else (
        _is_stamp(new) if new.strip() and not old.strip() else "")
    if mostly_time:
        return TIME, f"{time_detail(mostly_time)}, there in one turn only"
    if role == "tools":
        return SYSTEM, "another definition of a tool"
    if role == "tool" and len(old) >= PRUNED_CHARS and len(new) * SHRUNK < len(old):
        return CUT, "an earlier tool result is pruned"
    if not old.strip() and meets and (block or BLOCK_WORDS.search(around) or not role):
        return INSERTED, f"a block of {len(new):,} characters is put in front of what was there"
    if role == "" and meets and not new.strip():
        return CUT, f"{len(old):,} characters are cut off in front of what stays"
    shorter = len(old) >= PRUNED_CHARS and len(new) * SHRUNK <= len(old)
    if role == "" and shorter and (meets or SUMMARY_WORDS.search(new[:2000])):
        return COMPACTION, f"{len(old):,} characters became {len(new):,}"
    named = BLOCK_WORDS.search(around)
    if block and role == "user" and not new.strip() and named:
        return INSERTED, "a block (memory, retrieved text) that was in front is gone"
    if block and (meets or role == "user") and (role == "" or (
            role in ("system", "user") and named)) and old.strip():
        return INSERTED, "another block (memory, retrieved text) in front of what was there"
    if role == "system":
        return SYSTEM, "another system prompt"
    if role:
        return EDITED, f"an edited message of the {role}"
    return (EDITED, "an edited part of the prompt") if meets else (UNKNOWN, "unknown")


def _is_stamp(text: str) -> str:
    """How often a text changes that is little more than a time; "" for any other."""
    found = list(volatile.stamps(text))
    return found[0][2] if found and len(text.strip()) <= 40 + found[0][1] - found[0][0] else ""
