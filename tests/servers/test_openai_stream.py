"""Chunks and usage objects of many shapes, decoded without any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from request_timing.servers.openai_stream import decode, finish_reason, read_usage
from request_timing.servers.timing import Chunk, Note, Usage


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


@pytest.mark.parametrize(("chunk", "pieces"), [
    (delta(role="assistant", content=None), []),
    (delta(role="assistant", content=""), []),
    (delta(role="assistant"), []),
    (delta(), []),
    ({"choices": []}, []),
    ({"choices": None}, []),
    ({}, []),
    ({"choices": [None]}, []),
    ({"choices": [{"delta": None}]}, []),
    (delta(content="a"), [("text", "a")]),
    (delta(reasoning_content="hm"), [("reasoning", "hm")]),
    (delta(reasoning="hm"), [("reasoning", "hm")]),
    (delta(reasoning_content="hm", reasoning="hm"), [("reasoning", "hm")]),
    (delta(reasoning="hm", content="a"), [("reasoning", "hm"), ("text", "a")]),
    (delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": ""}]), [("text", "a")]),
    (delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
     [("reasoning", "hm")]),
    (delta(content=True), []),
    (delta(content=[True, None, [], {}]), []),
    (delta(content=0), [("text", "0")]),
    (delta(content=["a", {"text": "b"}]), [("text", "a"), ("text", "b")]),
    (delta(content={"type": "text", "text": "a"}), [("text", "a")]),
    (delta(reasoning={"content": "hm"}), [("reasoning", "hm")]),
    (delta(reasoning={"text": "hm"}), [("reasoning", "hm")]),
    (delta(reasoning=["h", "m"]), [("reasoning", "h"), ("reasoning", "m")]),
    (delta(reasoning_text="hm"), [("reasoning", "hm")]),
    (delta(thinking="hm"), [("reasoning", "hm")]),
    (delta(thinking_blocks=[{"type": "thinking", "thinking": "hm"}]), [("reasoning", "hm")]),
    (delta(reasoning_content="hm", thinking_blocks=[{"thinking": "hm"}]), [("reasoning", "hm")]),
    (delta(reasoning_summary="so"), [("reasoning", "so")]),
    (delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}], thinking="hm"),
     [("reasoning", "hm")]),
    (delta(audio={"id": "a", "transcript": "a"}), [("text", "a")]),
    (delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]), [("tool", "f")]),
    (delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), [("tool", "{}")]),
    (delta(tool_calls=[{"index": 0, "function": None}, None]), []),
    (delta(tool_calls={"function": {"name": "f"}}), [("tool", "f")]),
    (delta(tool_calls=[{"function": {"arguments": {"a": 1}}}]), [("tool", '{"a": 1}')]),
    (delta(tool_calls=[{"type": "custom", "custom": {"name": "f", "input": "x"}}]),
     [("tool", "fx")]),
    (delta(tool_calls=[{"name": "f", "arguments": {}}]), [("tool", "f")]),
    (delta(function_call={"name": "f", "arguments": ""}), [("tool", "f")]),
    # Where there is no delta.
    ({"choices": [{"index": 0, "text": "a"}]}, [("text", "a")]),
    ({"choices": [{"message": {"role": "assistant", "content": "a"}}]}, [("text", "a")]),
    ({"choices": [{"message": {"content": "a"}, "delta": {}}]}, [("text", "a")]),
    # The end, with all of the answer again; the same text beside a delta.
    ({"choices": [{"message": {"content": "a"}, "delta": {}, "finish_reason": "stop"}]}, []),
    ({"choices": [{"text": "a", "delta": {"content": "a"}}]}, [("text", "a")]),
    # Of several answers the first, wherever it stands.
    ({"choices": [{"index": 1, "delta": {"content": "x"}}]}, []),
    ({"choices": [{"index": 1, "delta": {"content": "x"}},
                  {"index": 0, "delta": {"content": "a"}}]}, [("text", "a")]),
    ({"choices": [{"index": None, "delta": {"content": "a"}}]}, [("text", "a")]),
])
def test_pieces(chunk: dict[str, Any], pieces: list[tuple[str, str]]) -> None:
    found = [event for event in decode(chunk, 1.5) if isinstance(event, Chunk)]
    assert [(p.kind, p.text) for p in found] == pieces
    assert all(p.at_s == 1.5 for p in found)


@pytest.mark.parametrize(("chunk", "names"), [
    (delta(speech="one"), ["speech"]),
    (delta(parts=[{"text": "one"}], role="assistant"), ["parts"]),
    (delta(speech={"text": "one"}, parts="two"), ["speech", "parts"]),
    # Nothing in it, nothing of an answer, known, or beside a piece.
    (delta(speech="", parts=[], other={}, more=None), []), (delta(score=0.5, done=True), []),
    (delta(role="assistant", content="", reasoning_opaque="x", tool_calls=None), []),
    (delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]), []),
    (delta(content="one", speech="one"), []),
])
def test_what_may_have_been_a_piece_is_noted(chunk: dict[str, Any], names: list[str]) -> None:
    noted = [event.text for event in decode(chunk, 1.5) if isinstance(event, Note)]
    assert [note.split(": ")[:2] for note in noted] == [["unknown_delta", name] for name in names]


def test_an_unknown_name_is_shown_without_the_key() -> None:
    (note,) = decode(delta(**{"sk-secret\n\x1b": "one"}), 1.5, "sk-secret")
    assert isinstance(note, Note) and "sk-secret" not in note.text and note.text.isprintable()


@pytest.mark.parametrize(("chunk", "is_summary"), [
    (delta(reasoning_details=[{"type": "reasoning.summary", "summary": "so"}]), True),
    (delta(reasoning="so", reasoning_details=[{"type": "reasoning.summary", "summary": "so"}]),
     True),
    (delta(reasoning_summary="so"), True),
    (delta(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), False),
    (delta(reasoning_content="hm"), False), (delta(content="one"), False),
])
def test_a_summary_of_thinking_is_known_as_one(chunk: dict[str, Any], is_summary: bool) -> None:
    assert [event.summary for event in decode(chunk, 1.5) if isinstance(event, Chunk)] == [
        is_summary]


OPENAI = {"prompt_tokens": 100, "completion_tokens": 8,
          "prompt_tokens_details": {"cached_tokens": 64},
          "completion_tokens_details": {"reasoning_tokens": 3}}


@pytest.mark.parametrize(("usage", "cached"), [
    (OPENAI, 64),
    ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}, 0),
    ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": None}}, None),
    ({"prompt_tokens": 100, "prompt_tokens_details": None}, None),
    ({"prompt_tokens": 100}, None),
    # DeepSeek
    ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, 64),
    ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 100}, 0),
    # Moonshot, alone and beside the nested spelling: one count, not two
    ({"prompt_tokens": 100, "cached_tokens": 64}, 64),
    ({"prompt_tokens": 100, "cached_tokens": 64, "prompt_tokens_details": {"cached_tokens": 64}},
     64),
    ({"prompt_tokens": 100, "cached_tokens": 64, "prompt_tokens_details": {"cached_tokens": None}},
     64),
    # A gateway's own field is zero, and the provider's beside it is not; whichever comes first.
    ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0},
      "prompt_cache_hit_tokens": 64}, 64),
    ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}, "cached_tokens": 0},
     64),
    ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": -1}, 0),
])
def test_cached_tokens_are_a_count_a_zero_or_unknown(usage: dict[str, Any], cached: int | None
                                                     ) -> None:
    assert read_usage(usage).cached_tokens == cached


def test_all_counts_of_one_usage() -> None:
    assert read_usage(OPENAI) == Usage(prompt_tokens=100, cached_tokens=64, output_tokens=8,
                                       reasoning_tokens=3, raw=OPENAI)
    nonsense = {"prompt_tokens": "100", "completion_tokens": -1}
    assert read_usage(nonsense) == Usage(raw=nonsense)


def test_thinking_counted_beside_the_output_is_counted_within() -> None:
    beside = {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 399,
              "completion_tokens_details": {"reasoning_tokens": 386}}
    assert read_usage(beside).output_tokens == 387
    within = beside | {"completion_tokens": 387}
    assert read_usage(within).output_tokens == 387


def test_usage_is_read_with_no_choices_and_from_within_a_choice() -> None:
    assert list(decode({"choices": [], "usage": OPENAI}, 0)) == [read_usage(OPENAI)]
    assert list(decode({"choices": [{"usage": OPENAI}]}, 0)) == [read_usage(OPENAI)]
    assert list(decode({"choices": [], "usage": None}, 0)) == []


def test_the_finish_reason() -> None:
    assert finish_reason({"choices": [{"finish_reason": "length"}]}) == "length"
    assert finish_reason(delta(content="a")) is None
    assert finish_reason({"choices": []}) is None
    no_reasons: list[Any] = ["", "null", "NULL", "none", None, False, {}]
    for no_reason in no_reasons:
        assert finish_reason({"choices": [{"finish_reason": no_reason}]}) is None
    assert finish_reason({"choices": [{"index": 1, "finish_reason": "stop"}]}) is None
