"""What holds of every wire case however its bytes are cut, joined or mixed with noise, and of bytes
and values that no server should send.

Everything is drawn from fixed seeds, so a failure here is the same failure everywhere.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from request_timing.records.sample import Sample
from request_timing.servers.failures import ADVICE
from request_timing.servers.llama_stream import events as llama_events
from request_timing.servers.openai_stream import decode, error_of, finish_reason, read_usage
from request_timing.servers.sanitize import plain_json
from request_timing.servers.sse import payloads
from request_timing.servers.timing import Event, RequestFailed, Sent, measure
from wire_case import BLANK, STREAM, Case, extra
from wire_cases_llama import LLAMA
from wire_players import (
    API,
    bare,
    llama_on_the_fake_clock,
    on_the_fake_clock,
    without_times,
)
from wire_stub import RESET, SILENT, WHOLE

reproducible = settings(derandomize=True, deadline=None, database=None, max_examples=100,
                        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

Player = Callable[[Case], tuple[Sample, str]]
PLAYED: list[tuple[Player, Case]] = [
    *((bare, case) for case in API), *((llama_on_the_fake_clock, case) for case in LLAMA)]
# Of the others there is nothing to cut, or the moments are what the case is about.
CASES = [(play, case) for play, case in PLAYED
         if case.body and case.status == 200 and case.ends != SILENT and case.stall_s > 1]
# What is no event stream has no place for noise; what is all noise is shown whole.
NOISY = [(play, case) for play, case in CASES
         if case.headers.get("content-type") == STREAM["content-type"] and b"\r" not in case.body
         and "content-encoding" not in case.headers and case.name not in (
             "no_json_at_all", "wrong_server")]
NOISE = (b": ping\n\n", b":\n", b"\n", b"event: message\n\n", b"id: 7\n", b"retry: 3000\n\n",
         b"data:\n\n", b"data: \n", b"data: : PROCESSING\n\n", extra(), extra(usage=None))
SAID_NO_JSON = "no_json: "
# Cut behind an end that is named and is none, they are answers that came to their end.
GOES_ON = {"reason_on_every_chunk", "goes_on", "goes_on_and_is_cut", "goes_on_and_stops"}


def ids(played: tuple[Player, Case]) -> str:
    return f"{played[1].kind}-{played[1].name}"


def cut(case: Case, size: int, ends: str) -> Case:
    """The case with only the first `size` bytes, in the reads that they came in."""
    script, left = [], size
    for at_s, data in case.script:
        if left > 0:
            script.append((at_s, data[:left]))
        left -= len(data)
    return replace(case, script=tuple(script), ends=ends)


def heard(sample: Sample) -> Sample:
    """The sample without its notes of noise, which a line cut short is too."""
    return replace(sample, notes=tuple(
        note for note in sample.notes if not note.startswith(SAID_NO_JSON)))


def check_cut(part: Sample, whole: Sample) -> None:
    """What came before the cut is kept; what did not come is a failure of a kind, or a count that
    comes after the end of an answer."""
    n = len(part.arrivals_s)
    assert part.arrivals_s == whole.arrivals_s[:n]
    assert part.arrival_kinds == whole.arrival_kinds[:n]
    assert part.first_byte_s in (None, whole.first_byte_s)
    if part.error is not None:
        assert part.error.kind in ADVICE
        assert part.error.message.isprintable()
        return
    assert whole.error is None
    counts = {name: getattr(whole, name) for name in (
        "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "usage_raw")}
    assert heard(replace(part, **counts)) == heard(whole)


@pytest.mark.parametrize("ends", [WHOLE, RESET])
@pytest.mark.parametrize("played", [p for p in CASES if p[1].name not in GOES_ON], ids=ids)
def test_cut_at_any_byte(played: tuple[Player, Case], ends: str) -> None:
    play, case = played
    whole, _ = play(case)
    for size in range(len(case.body) + 1):
        check_cut(play(cut(case, size, ends))[0], whole)


def test_cut_within_the_sdk() -> None:
    # As above, but with the openai SDK and httpx around it.
    rng = random.Random("cuts")
    cases = [case for play, case in CASES if play is bare]
    for case in rng.choices(cases, k=80):
        part = cut(case, rng.randrange(len(case.body) + 1), rng.choice([WHOLE, RESET]))
        through_sdk, said = on_the_fake_clock(part)
        alone, said_alone = bare(part)
        assert replace(through_sdk, connection=alone.connection) == alone
        assert said == said_alone


def partitioned(case: Case, cuts: list[int]) -> Case:
    """The case's bytes, read in other pieces; `cuts` are places in its body."""
    places = sorted({0, len(case.body), *cuts})
    return replace(case, script=tuple(
        (float(n), case.body[start:end]) for n, (start, end) in enumerate(pairwise(places))))


@pytest.mark.parametrize("played", CASES, ids=ids)
def test_read_byte_by_byte_or_all_at_once(played: tuple[Player, Case]) -> None:
    play, case = played
    whole, said = play(case)
    for cuts in ([], list(range(len(case.body)))):
        sample, said_again = play(partitioned(case, cuts))
        assert without_times(sample) == without_times(whole)
        assert said_again == said


@reproducible
@given(st.data())
def test_read_in_any_pieces(data: st.DataObject) -> None:
    play, case = data.draw(st.sampled_from(CASES))
    cuts = data.draw(st.lists(st.integers(0, len(case.body)), max_size=12))
    sample, said = play(partitioned(case, cuts))
    whole, whole_said = play(case)
    assert without_times(sample) == without_times(whole)
    assert said == whole_said


@reproducible
@given(st.data())
def test_noise_between_events(data: st.DataObject) -> None:
    play, case = data.draw(st.sampled_from(NOISY))
    places = [0, *(match.end() for match in re.finditer(b"\n\n", case.body))]
    body, before = b"", 0
    for place in places:
        noise = data.draw(st.lists(st.sampled_from(NOISE), max_size=3))
        if play is llama_on_the_fake_clock:
            noise = [line for line in noise if b"choices" not in line]
        body += case.body[before:place] + b"".join(noise)
        before = place
    noisy = replace(case, script=((0.5, body + case.body[before:]),))
    sample, said = play(noisy)
    whole, whole_said = play(case)
    assert without_times(heard(sample)) == without_times(heard(whole))
    assert said == whole_said


@pytest.mark.parametrize("change", [
    lambda body: body.replace(b"\n", b"\r\n"), lambda body: body.replace(b"\n", b"\r"),
    lambda body: b"\xef\xbb\xbf" + body,
], ids=["crlf", "cr", "byte_order_mark"])
@pytest.mark.parametrize("played", NOISY, ids=ids)
def test_line_ends_and_a_byte_order_mark(played: tuple[Player, Case],
                                         change: Callable[[bytes], bytes]) -> None:
    play, case = played
    if case.name == "byte_order_mark":
        return  # a second one is no mark
    sample, said = play(replace(case, script=((0.5, change(case.body)),)))
    whole, whole_said = play(case)
    assert without_times(sample) == without_times(whole)
    assert said == whole_said


# --- What no server should send -------------------------------------------------------------------

NAMES = ("choices", "delta", "content", "reasoning", "reasoning_content", "tool_calls", "function",
         "name", "arguments", "text", "thinking", "finish_reason", "usage", "x_groq", "message",
         "usageMetadata", "timings", "error", "code", "detail", "object", "prompt_tokens",
         "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens", "cache_n",
         "prompt_n", "stop", "prompt_progress", "processed", "total", "tokens_predicted", "choice",
         "completion_tokens_details", "reasoning_tokens", "cache_read_input_tokens",
         "cache_creation_input_tokens", "input_tokens", "output_tokens", "stop_type", "truncated")
numbers = st.one_of(st.integers(-(10 ** 25), 10 ** 25), st.floats(), st.just(10 ** 400))
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(st.characters(), max_size=8),
                    st.sampled_from(["stop", "one", "429", "\ud83d", "[DONE]"]))
values = st.recursive(scalars, lambda inner: st.one_of(
    st.lists(inner, max_size=3),
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=4)), inner, max_size=5),
), max_leaves=25)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=5)
# As deep as a chunk is, with anything in the places where a server puts something.
shaped = st.fixed_dictionaries({}, optional={
    "choices": st.lists(st.fixed_dictionaries({}, optional={
        "delta": st.one_of(objects, values), "finish_reason": values, "usage": objects,
        "error": values}), max_size=2),
    "usage": st.one_of(objects, values), "timings": st.one_of(objects, values), "error": values,
    "stop": values, "content": values})


def body_of(chunks: list[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in chunks)


def check_any(sample: Sample) -> None:
    """A Sample that a record can hold, whatever it was made of."""
    json.dumps(sample.to_json(), allow_nan=False)
    assert Sample.from_json(json.loads(json.dumps(sample.to_json()))) == sample
    assert sample.error is None or sample.error.kind in ADVICE
    for count in (sample.prompt_tokens, sample.cached_tokens, sample.output_tokens,
                  sample.reasoning_tokens):
        assert count is None or (type(count) is int and count >= 0)


def answer(body: bytes) -> Case:
    return Case("A11", "anything", "", "", ((0.1, body),), {})


@reproducible
@given(st.lists(st.one_of(values, objects, shaped), max_size=4))
def test_any_values_as_chunks(chunks: list[Any]) -> None:
    check_any(bare(answer(body_of(chunks)))[0])
    check_any(llama_on_the_fake_clock(answer(body_of(chunks)))[0])


@reproducible
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from([
    b"data:", b" ", b"\n", b"\r", b"{", b"}", b"[DONE]", b'"choices"', b":", b"[", b"]", b"\xff",
    b"null", b"error: ", b'"a"', b",", b"\xef\xbb\xbf", b"1e999"]), max_size=40).map(b"".join)))
def test_any_bytes(body: bytes) -> None:
    check_any(bare(answer(body))[0])
    check_any(llama_on_the_fake_clock(answer(body))[0])


@reproducible
@given(st.one_of(objects, shaped))
def test_the_decoder_raises_nothing(chunk: dict[str, Any]) -> None:
    def events() -> Iterator[Event]:
        yield Sent(at_s=0.0)
        yield from decode(chunk, 1.0)

    check_any(measure(events(), BLANK)[0])
    assert finish_reason(chunk) is None or isinstance(finish_reason(chunk), str)
    error_of(chunk)


@reproducible
@given(objects, st.one_of(st.none(), objects))
def test_any_usage_gives_counts_or_nothing(usage: dict[str, Any], timings: dict[str, Any] | None
                                           ) -> None:
    found = read_usage(usage, timings)
    for count in (found.prompt_tokens, found.cached_tokens, found.output_tokens,
                  found.reasoning_tokens):
        assert count is None or (type(count) is int and count >= 0)
    json.dumps(found.raw, allow_nan=False)


@reproducible
@given(st.lists(objects, max_size=3))
def test_a_llama_server_raises_nothing_but_a_failure(chunks: list[dict[str, Any]]) -> None:
    try:
        list(llama_events(payloads([(0.0, body_of(chunks))])))
    except RequestFailed as failed:
        assert failed.failure.kind in ADVICE


KEY = "sk-stub-0123456789"


@reproducible
@given(st.recursive(
    st.one_of(scalars, st.text(max_size=8).map(lambda text: text + KEY), st.just("x" * 290 + KEY)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(
        st.one_of(st.text(max_size=4), st.just(KEY), st.just("x" * 90 + KEY)), inner,
        max_size=4)), max_leaves=40))
def test_what_is_kept_is_plain_and_has_no_key(value: Any) -> None:
    kept = json.dumps(plain_json(value, KEY), allow_nan=False, ensure_ascii=False)
    assert KEY[:-2] not in kept
    kept.encode()  # no half of a surrogate pair
