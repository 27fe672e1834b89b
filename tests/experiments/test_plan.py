"""What is going to be sent, and what does not fit, worked out by hand."""

from __future__ import annotations

from request_timing.experiments.plan import (
    context_needed,
    describe,
    estimate_tokens,
    fit_context,
    plan,
)
from scripted_backend import Scripted, ran, settings


def test_the_plan_is_what_is_then_sent() -> None:
    backend = Scripted()
    samples = ran(backend)
    for planned in plan(settings(), len):
        sent = [s for s in samples if s.experiment == planned.experiment]
        tokens = sum(s.prompt_tokens or 0 for s in sent)
        assert planned.requests == len(sent)
        assert planned.output_tokens == sum(s.asked_output_tokens for s in sent)
        # "About" how many input tokens: a token is a character here, which is hard on the short
        # texts of output, whose words are counted at three tokens each.
        assert abs(planned.input_tokens - tokens) <= (0.5 if planned.experiment == "output" else 0.1
                                                      ) * tokens


def test_blocks_have_fewer_controls() -> None:
    backend = Scripted(interleave=False)
    samples = ran(backend, experiments=("cache",))
    assert plan(settings(experiments=("cache",)), len, interleave=False)[0].requests == len(samples)


def test_the_document_counts_instead_of_the_context() -> None:
    own = settings(document="x" * 9000, experiments=("cache",), turns=1)
    assert plan(own, len)[0].input_tokens > 2 * 9000


def test_the_plan_in_lines_for_people() -> None:
    text = describe(plan(settings(experiments=("length",)), len), rough=True)
    assert text == ("plan: 4 requests, about 1,200 input tokens, at most 64 output tokens\n"
                    "      length: 4 requests, 1,200 input tokens")


def test_what_does_not_fit_is_left_out_with_the_context_it_needs() -> None:
    fitting, lines = fit_context(settings(lengths=(200, 2000)), 1000, 1, len)
    assert fitting.lengths == (200,)
    assert fitting.experiments == ("length", "output", "cache")
    assert lines == ["length 2,000 left out: needs 2,056 tokens of context, the server has 1,000 "
                     "a slot; start it with -c 2304, or give other --lengths"]


def test_slots_share_the_context_so_four_need_four_times_as_much() -> None:
    _, lines = fit_context(settings(lengths=(200, 2000)), 1000, 4, len)
    assert "-c 9216 (or 2304 with -np 1)" in lines[0]


def test_a_server_of_our_own_is_not_for_the_user_to_restart() -> None:
    _, lines = fit_context(settings(lengths=(2000,)), 1000, 1, len, can_restart=False)
    assert lines[0].endswith("a slot; give other --lengths")


def test_nothing_is_left_where_nothing_fits() -> None:
    fitting, lines = fit_context(settings(), 10, 1, len)
    assert fitting.experiments == ()
    assert len(lines) == 5  # two lengths, two outputs, cache


def test_a_document_too_long_leaves_cache_out() -> None:
    fitting, lines = fit_context(settings(document="x" * 5000), 1000, 1, len)
    assert "cache" not in fitting.experiments
    assert "cache left out" in lines[0] and "shorter --doc" in lines[0]


def test_a_server_started_for_the_settings_holds_them() -> None:
    wanted = settings(context=5000, turns=9)
    _, lines = fit_context(wanted, context_needed(wanted), 1, len)
    assert lines == []


def test_the_estimate_counts_bytes() -> None:
    assert estimate_tokens("a" * 400) == 100
    assert estimate_tokens("語" * 400) == 300
    assert estimate_tokens("") == 1
