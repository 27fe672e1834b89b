"""Where two texts part and meet, exactly; and both sides in one line that hides nothing."""

from __future__ import annotations

import itertools
import random

import pytest

from explain_cases import DOC, Q1, chat
from request_timing.explain.align import (
    Beginnings,
    columns,
    common_prefix_bytes,
    divergence,
    meeting,
    parting,
    side,
)
from request_timing.prompts.lossless_json import parse_json, to_json
from request_timing.prompts.rendering import render


def same_letters(a: str | bytes, b: str | bytes) -> int:
    """The obvious way."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 70_000])
def test_the_common_prefix(size: int) -> None:
    a = b"x" * size
    assert common_prefix_bytes(a + b"1", a + b"2") == size
    assert common_prefix_bytes(a, a + b"2") == size
    assert common_prefix_bytes(b"__" + a + b"1", a + b"2", 2, 0) == size


def test_texts_part_at_a_character() -> None:
    rng = random.Random(3)
    for _ in range(300):
        a, b = ("".join(rng.choices("aé€😀", k=rng.randint(0, 6))) for _ in "ab")
        at, same = parting(a.encode(), b.encode())
        assert at == same == len(a[:same_letters(a, b)].encode())


def test_the_sides_mark_what_differs_and_show_what_cannot_be_seen() -> None:
    found = divergence(render("ein\tTag\r\n10:41\n" + DOC), render("ein\tTag\r\n10:42\n" + DOC))
    assert (found.offset_bytes, found.shared_chars, found.line, found.place) == (
        13, 13, 2, "prompt")
    assert found.before == "ein⇥Tag␍␊10:4«1»␊The lighthouse keeper writes every evening what th…"
    assert found.after == "ein⇥Tag␍␊10:4«2»␊The lighthouse keeper writes every evening what th…"


def test_offsets_are_bytes_and_shared_is_characters() -> None:
    found = divergence(render("é😀: a"), render("é😀: b"))
    assert (found.offset_bytes, found.shared_chars) == (8, 4)


@pytest.mark.parametrize("text", ["a" * 500, "\x1b[31m" * 90, "漢字" * 300, "😀" * 300,
                                  "\u202e\0" * 99, "é" * 500])
def test_no_side_is_wider_than_a_terminal(text: str) -> None:
    data = text.encode()
    middle = len(text[:30].encode()), len(text[:60].encode())
    for start, end in ((0, 0), (0, len(data)), middle):
        shown = side(data, start, end)
        assert columns(shown) <= 70
        assert shown.isprintable()
        assert "\ufffd" not in shown


def test_texts_meet_behind_the_nearest_change() -> None:
    a, b = b"It is 10:41 now.\n" + DOC.encode(), b"It is 10:42:07 now.\n" + DOC.encode()
    assert meeting(a, 10, len(a), b, 10, len(b)) == (11, 14)
    assert meeting(b"abc", 0, 3, b"xyz", 0, 3) is None
    block = b"A new block of text, put in front.\n"
    assert meeting(DOC.encode(), 0, len(DOC), block + DOC.encode(), 0, len(block + DOC.encode())
                   ) == (0, len(block))


def test_the_best_earlier_turn_is_that_of_a_search_through_all() -> None:
    rng, held = random.Random(1), Beginnings()
    texts = ["".join(rng.choices("ab", k=rng.randint(1, 12))).encode() for _ in range(200)]
    for number, text in enumerate(texts):
        best = max((same_letters(text, old) for old in texts[:number]), default=0)
        assert held.longest(text)[0] == best
        held.add(text, number)


def test_the_order_of_a_chat_template_and_the_places() -> None:
    rendering = render({"messages": [{"role": "system", "content": "s"}, Q1 | {"content": [
        {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d"}}]})
    assert rendering.data == (
        b'{"type": "function", "function": {"name": "f", "description": "d"}}\n'
        b"<|system|>\ns\n<|user|>\none\ntwo\n")
    places = {b'"d"': "tools[0].function.description", b"s\n<": "messages[0].content",
              b"two": "messages[1].content[1].text"}
    for text, place in places.items():
        assert rendering.place(rendering.data.index(text)) == place


def test_json_keeps_the_order_of_keys_and_the_spelling_of_numbers() -> None:
    text = '{"b": 1.50, "a": [1e3, 1, -0.0, true, null, "\\u00e9\\n"]}'
    assert to_json(parse_json(text)) == '{"b": 1.50, "a": [1e3, 1, -0.0, true, null, "é\\n"]}'
    orders = ['{"x": 1, "y": 2}', '{"y": 2, "x": 1}']
    assert len({render({"tools": [parse_json(order)], "messages": []}).data
                for order in orders}) == 2


def test_a_lone_surrogate_is_no_trouble() -> None:
    found = divergence(render(chat(Q1 | {"content": "\ud800a"})),
                       render(chat(Q1 | {"content": "\ud800b"})))
    assert (found.offset_bytes, found.after) == (12, "<|user|>␊\\ud800«b»␊")


def test_responses_and_anthropic_bodies() -> None:
    rendering = render({"instructions": "be", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c1", "id": "fc_9", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"}]})
    assert rendering.data == (b"<|system|>\nbe\n<|user|>\nhi\n<|function_call|>\nf\n\n{}\nc1\n"
                              b"<|function_call_output|>\n42\nc1\n")
    rendering = render({"system": [{"type": "text", "text": "be"}], "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f",
                                           "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                      "content": [{"type": "text", "text": "42"}]}]}]})
    assert rendering.data == (b"<|system|>\nbe\n<|assistant|>\nf\n{\"a\": 1}\nt\n<|user|>\nt\n42\n")
