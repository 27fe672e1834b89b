"""Chunks and usage objects of many shapes, decoded without any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from openai_stream import decode, finish_reason, read_usage
from timing import Piece, Usage


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
    (delta(content=5), []),
    (delta(content=[5, None]), []),
    (delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]), [("tool", "f")]),
    (delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), [("tool", "{}")]),
    (delta(tool_calls=[{"index": 0, "function": None}, None]), []),
])
def test_pieces(chunk: dict[str, Any], pieces: list[tuple[str, str]]) -> None:
    found = [event for event in decode(chunk, 1.5) if isinstance(event, Piece)]
    assert [(p.kind, p.text) for p in found] == pieces
    assert all(p.at_s == 1.5 for p in found)


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
