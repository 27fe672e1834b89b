"""The one clock: events by hand, and the exact Sample that must come of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from blank_sample import blank
from request_timing.records.sample import REASONING, TEXT, Sample, ServerTimings
from request_timing.servers.timing import (
    Alive,
    Chunk,
    End,
    Event,
    Note,
    Progress,
    RequestFailed,
    Sent,
    Unread,
    Usage,
    measure,
    merged,
)


def text(at_s: float, what: str = "x", **known: Any) -> Chunk:
    return Chunk(at_s=at_s, kind=TEXT, text=what, **known)


WHOLE: list[Event] = [
    Sent(at_s=100.0), Alive(at_s=100.25), text(100.5, "one"), text(101.0, " two"),
    Usage(prompt_tokens=7, cached_tokens=0, output_tokens=2), End(finish_reason="length"),
]


def test_a_whole_answer() -> None:
    sample, answer = measure(WHOLE, blank())
    assert answer == "one two"
    assert sample.arrivals_s == (0.5, 1.0)
    assert sample.arrival_kinds == (TEXT, TEXT)
    assert (sample.first_byte_s, sample.ttft_s, sample.total_s) == (0.25, 0.5, 1.0)
    assert (sample.prompt_tokens, sample.cached_tokens, sample.output_tokens) == (7, 0, 2)
    assert sample.finish_reason == "length"
    assert sample.error is None and sample.counts


def test_an_empty_piece_starts_no_clock() -> None:
    events: list[Event] = [Sent(at_s=0), text(0.005, ""), text(0.214), End(finish_reason="stop")]
    assert measure(events, blank())[0].ttft_s == 0.214


def test_thinking_counts_for_ttft_and_is_no_part_of_the_answer() -> None:
    events: list[Event] = [Sent(at_s=0), Chunk(at_s=1, kind=REASONING, text="hm"), text(3, "yes"),
              End(finish_reason="stop")]
    sample, answer = measure(events, blank())
    assert (sample.ttft_s, answer) == (1, "yes")
    assert sample.arrival_kinds == (REASONING, TEXT)


def test_progress_is_passed_on_and_is_no_arrival() -> None:
    seen: list[Progress] = []
    step = Progress(at_s=1, processed_tokens=5, total_tokens=10)
    sample, _ = measure([Sent(at_s=0), step, text(2), End(finish_reason="stop")], blank(),
                        on_progress=seen.append)
    assert seen == [step]
    assert sample.ttft_s == 2


def test_a_later_usage_replaces_an_earlier_one() -> None:
    events: list[Event] = [
        Sent(at_s=0), text(1), Usage(output_tokens=1), text(2), Usage(output_tokens=2),
        End(finish_reason="stop")]
    assert measure(events, blank())[0].output_tokens == 2


def test_a_later_silence_or_zero_erases_no_count() -> None:
    full = Usage(prompt_tokens=90, cached_tokens=0, output_tokens=8)
    for later in (Usage(), Usage(prompt_tokens=0, output_tokens=0), Usage(prompt_tokens=90)):
        events: list[Event] = [Sent(at_s=0), text(1), full, later, End(finish_reason="stop")]
        sample, _ = measure(events, blank())
        assert (sample.prompt_tokens, sample.cached_tokens, sample.output_tokens) == (90, 0, 8)


APART = Usage(prompt_tokens=100, cached_tokens=90, output_tokens=1)  # as an Anthropic stream begins


@pytest.mark.parametrize(("first", "last", "counts"), [
    (Usage(prompt_tokens=634, cached_tokens=317), Usage(prompt_tokens=0, output_tokens=16),
     (634, 317, 16)),
    (Usage(prompt_tokens=634, cached_tokens=317),
     Usage(prompt_tokens=0, cached_tokens=0, output_tokens=16), (634, 317, 16)),
    (APART, Usage(prompt_tokens=10, output_tokens=4), (100, 90, 4)),
    (APART, Usage(prompt_tokens=0, output_tokens=4), (100, 90, 4)),
    (APART, Usage(output_tokens=4), (100, 90, 4)),
    (Usage(prompt_tokens=100), Usage(prompt_tokens=10, output_tokens=4), (100, None, 4)),
    (Usage(prompt_tokens=100, output_tokens=9), Usage(prompt_tokens=100, output_tokens=0),
     (100, None, 9)),
    # All of it again, and otherwise: the later one.
    (APART, Usage(prompt_tokens=80, cached_tokens=0, output_tokens=4), (80, 0, 4)),
    (APART, Usage(prompt_tokens=120, output_tokens=4), (120, 90, 4)),
    (Usage(prompt_tokens=0, output_tokens=0), Usage(prompt_tokens=7, output_tokens=4),
     (7, None, 4)),
    (Usage(cached_tokens=8), Usage(prompt_tokens=10, output_tokens=4), (10, 8, 4)),
])
def test_a_later_usage_that_tells_less(first: Usage, last: Usage,
                                       counts: tuple[int | None, ...]) -> None:
    found = merged(first, last)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == counts


def test_a_note_is_kept_once() -> None:
    sample, _ = measure([*WHOLE, *[Note(text="odd: a thing")] * 2], blank())
    assert sample.notes == ("odd: a thing",)


@pytest.mark.parametrize(("line", "before", "counts"), [
    ('{"choices": [{"delta": {"content": "on', False, False),
    ('oices": [{"delta"', False, False), ('"one', False, False),
    ('{"choices": [{"delta": {"content": "on', True, True),
    # No object, and so no piece; a comment.
    ("ping", False, True), (": OPENROUTER PROCESSING", False, True), (':{"a"', False, True),
])
def test_a_line_that_may_have_been_the_first_piece(line: str, before: bool, counts: bool) -> None:
    odd: list[Event] = [Unread(text=line)]
    events = [WHOLE[0], *([] if before else odd), *WHOLE[1:3], *(odd if before else []), *WHOLE[3:]]
    sample, _ = measure(events, blank())
    assert sample.error is None and sample.counts is counts
    assert len(sample.notes) == 1 and line in sample.notes[0]


@pytest.mark.parametrize(("events", "kind"), [
    (WHOLE[:-1], "incomplete"),
    ([Sent(at_s=0)], "incomplete"),
    ([Sent(at_s=0), End(finish_reason="stop")], "empty"),
    ([Sent(at_s=0), Usage(output_tokens=0), End(finish_reason="stop")], "empty"),
    ([Sent(at_s=0), Usage(output_tokens=5), End(finish_reason="stop")], "empty"),
])
def test_success_is_a_token_and_a_regular_end(events: list[Event], kind: str) -> None:
    sample, _ = measure(events, blank())
    assert sample.error is not None and sample.error.kind == kind
    assert not sample.counts


def test_counted_tokens_without_text_are_an_answer_whose_ttft_is_unknown() -> None:
    # A llama-server may write tokens that have no text of their own.
    sample, _ = measure([Sent(at_s=0), Usage(output_tokens=3, server=ServerTimings(predicted_n=3)),
                         End(finish_reason="limit")], blank())
    assert sample.error is None
    assert (sample.ttft_s, sample.total_s, sample.inter_token_s) == (None, None, None)


def test_a_failure_keeps_the_arrivals_before_it() -> None:
    def cut() -> Iterator[Event]:
        yield Sent(at_s=1)
        yield text(1.5)
        raise RequestFailed("connection", "reset by peer", 200)

    sample, _ = measure(cut(), blank())
    assert sample.error is not None
    assert (sample.error.kind, sample.error.http_status) == ("connection", 200)
    assert sample.ttft_s == 0.5
    assert not sample.counts


def of(arrivals: tuple[float, ...], **known: Any) -> Sample:
    return blank(arrivals_s=arrivals,
                 arrival_kinds=known.pop("kinds", (TEXT,) * len(arrivals)), **known)


@pytest.mark.parametrize(("sample", "seconds"), [
    # One token a piece: three gaps of 10 ms.
    (of((1.0, 1.01, 1.02, 1.03), output_tokens=4), 0.01),
    # Two tokens a piece: eight tokens, of which the first piece held two.
    (of((1.0, 1.02, 1.04, 1.06), output_tokens=8), 0.01),
    # The server says that the first piece came with the third token.
    (of((1.0, 1.01, 1.02), output_tokens=5, first_piece_tokens=3), 0.01),
    # Twelve tokens, ten of them thinking that was never streamed.
    (of((1.0, 1.01), output_tokens=12, reasoning_tokens=10), 0.01),
    # A thousand tokens of thinking in a summary: the text alone, ten pieces of ten tokens.
    (of((0.5, *(1.5 + n * 0.1 for n in range(10))), output_tokens=1010, reasoning_tokens=1000,
        thinking_chars=0, kinds=(REASONING, *(TEXT,) * 10)), 0.1),
    (of((0.5, *(1.5 + n * 0.1 for n in range(10))), output_tokens=1010, reasoning_tokens=1000,
        thinking_chars=999, kinds=(REASONING, *(TEXT,) * 10)), 0.1),
    # Thinking that was streamed is part of the stream.
    (of((1.0, 1.01, 1.02, 1.03), output_tokens=4, reasoning_tokens=2, thinking_chars=2,
        kinds=(REASONING, REASONING, TEXT, TEXT)), 0.01),
    (of((1.0, 1.01, 1.02, 1.03), output_tokens=4, reasoning_tokens=2,
        kinds=(REASONING, REASONING, TEXT, TEXT)), 0.01),
])
def test_inter_token_latency_by_hand(sample: Sample, seconds: float) -> None:
    assert sample.inter_token_s == pytest.approx(seconds)


@pytest.mark.parametrize("sample", [
    of((1.0, 1.1)),  # no tokens reported
    of((1.0,), output_tokens=1),
    of((), output_tokens=0),
    of((1.0, 1.1), output_tokens=2, first_piece_tokens=2),
    of((1.0, 1.1), output_tokens=5, reasoning_tokens=5),
    of((1.0,) * 6, output_tokens=60),  # in one read
    of((0.5, 1.0, 1.0), output_tokens=60, reasoning_tokens=50, thinking_chars=0,
       kinds=(REASONING, TEXT, TEXT)),
])
def test_inter_token_latency_that_nothing_tells(sample: Sample) -> None:
    assert sample.inter_token_s is None


def test_a_stream_in_bursts_has_no_decode_rate() -> None:
    # 40 pieces in four reads, as behind a 16 KB buffer; then 40 pieces let through one by one.
    held = of(tuple(1 + n // 10 * 0.1 for n in range(40)), output_tokens=40)
    assert held.came_in_bursts
    assert (held.inter_token_s, held.inter_chunk_s) == (None, None)
    through = of(tuple(1 + n * 0.01 for n in range(40)), output_tokens=40)
    assert not through.came_in_bursts
    # Two pieces a read, now and then, are no burst; a short answer in one read is one.
    assert not of(tuple(1 + n // 2 * 0.01 for n in range(40)), output_tokens=40).came_in_bursts
    for pieces in (2, 6, 7):
        held = of((1.0,) * pieces, output_tokens=pieces)
        assert held.came_in_bursts
        assert (held.inter_token_s, held.inter_chunk_s) == (None, None)
    assert not of((1.0,), output_tokens=1).came_in_bursts
    assert not of((), output_tokens=0).came_in_bursts
    assert not of((1.0, 1.0, 1.1), output_tokens=3).came_in_bursts


def test_thinking_is_hidden_where_its_characters_cannot_hold_it() -> None:
    streamed = of((1.0, 2.0), kinds=(REASONING, TEXT), reasoning_tokens=40, output_tokens=44)
    assert streamed.hidden_thinking_tokens == 0  # of an older record: unknown
    assert replace(streamed, thinking_chars=40).hidden_thinking_tokens == 0
    assert replace(streamed, thinking_chars=39).hidden_thinking_tokens == 40
    events: list[Event] = [
        Sent(at_s=0), Chunk(at_s=1, kind=REASONING, text="so", summary=True),
        Chunk(at_s=2, kind=REASONING, text="hmm"), text(3), End(finish_reason="stop")]
    assert measure(events, blank())[0].thinking_chars == 3
    assert measure(WHOLE, blank())[0].thinking_chars is None


def test_inter_chunk_latency_needs_no_tokens() -> None:
    assert of((1.0, 1.1, 1.4)).inter_chunk_s == pytest.approx(0.2)
    assert of((1.0,)).inter_chunk_s is None


def test_a_sample_that_was_not_cold_leaves_the_averages() -> None:
    sample, _ = measure(WHOLE, blank(notes=("not_cold: 5 of 7 tokens reused",)))
    assert sample.error is None
    assert not sample.counts


def test_server_timings_travel_unchanged() -> None:
    timings = ServerTimings(cache_n=3, prompt_n=4, prompt_ms=5.5, predicted_n=2, predicted_ms=1.5)
    events = [*WHOLE[:-2], Usage(output_tokens=2, server=timings), End(finish_reason="limit")]
    assert measure(events, blank())[0].server == timings
