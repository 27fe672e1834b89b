"""Filler and statistics, held to answers worked out by hand."""

from __future__ import annotations

import random
import string

import pytest

from request_timing.prompts.filler import filler, fit_text, nonces
from request_timing.stats.compare import Spread, ratio, spread
from request_timing.stats.fits import Line, fit_line, typical_line


def test_filler_is_lower_case_sentences_of_exactly_so_many_words() -> None:
    text = filler(7, 500)
    assert set(text) <= set(string.ascii_lowercase + " .")
    assert len(text.split()) == 500
    assert text.endswith(".")
    sentences = text.removesuffix(".").split(". ")
    assert all(len(sentence.split()) <= 14 for sentence in sentences)
    assert all(len(sentence.split()) >= 6 for sentence in sentences[:-1])


def test_filler_is_the_same_for_a_seed_and_another_for_another() -> None:
    assert filler("a", 50) == filler("a", 50)
    assert filler("a", 50) != filler("b", 50)
    assert filler("a", 500).startswith(filler("a", 50).removesuffix("."))


def test_filler_needs_a_word() -> None:
    assert filler(0, 1).count(" ") == 0
    with pytest.raises(ValueError, match="at least 1 word"):
        filler(0, 0)


def test_nonces_begin_with_another_letter_26_times_in_a_row() -> None:
    series = nonces(random.Random(1))
    first = [next(series)[0] for _ in range(52)]
    assert sorted(first[:26]) == sorted(first[26:]) == list(string.ascii_lowercase)


def test_nonces_of_two_runs_share_nothing() -> None:
    first, second = nonces(), nonces()
    assert not {next(first) for _ in range(100)} & {next(second) for _ in range(100)}


@pytest.mark.parametrize("tokens", [120, 1000, 17_000])
@pytest.mark.parametrize("chars_per_token", [1, 2.3, 4.7])
def test_fit_text_hits_the_target_within_two_percent(tokens: int, chars_per_token: float) -> None:
    def count(text: str) -> int:
        return round(len(text) / chars_per_token) + 12

    text = fit_text(tokens, lambda words: "abc.\n" + filler(3, words), count)
    assert abs(count(text) - tokens) <= 0.02 * tokens


def test_fit_text_below_the_frame_gives_the_smallest_text() -> None:
    text = fit_text(3, lambda words: "frame " * 10 + filler(3, words), lambda text: len(text))
    assert len(text.split()) == 11


def test_spread_by_hand() -> None:
    # Inclusive quartiles of 1 2 3 4: positions 0.75, 1.5 and 2.25 of the sorted values.
    assert spread([4, 1, 3, 2]) == Spread(
        n=4, median=2.5, q1=1.75, q3=3.25, minimum=1, maximum=4)


def test_spread_of_one_value_is_that_value() -> None:
    assert spread([5.0]) == Spread(n=1, median=5, q1=5, q3=5, minimum=5, maximum=5)


def test_spread_leaves_out_what_is_unknown_and_keeps_zero() -> None:
    assert spread([None, 0.0, None, 2.0]) == Spread(
        n=2, median=1, q1=0.5, q3=1.5, minimum=0, maximum=2)
    assert spread([None]) is None
    assert spread([]) is None


def test_one_slow_request_moves_no_median() -> None:
    quiet, loud = spread([1, 2, 3, 4, 5]), spread([1, 2, 3, 4, 500])
    assert quiet is not None and loud is not None
    assert (quiet.median, quiet.q3) == (loud.median, loud.q3) == (3, 4)


def test_fit_line_by_hand() -> None:
    # y = 2 + 3x exactly; then (0,0) (1,2) (2,1): slope cov/var = 1/2, through the means (1, 1).
    assert fit_line([1, 2, 4], [5, 8, 14]) == Line(slope=3, intercept=2, n=3)
    assert fit_line([0, 1, 2], [0, 2, 1]) == Line(slope=0.5, intercept=0.5, n=3)


def test_typical_line_by_hand() -> None:
    assert typical_line([1, 2, 4], [5, 8, 14]) == Line(slope=3, intercept=2, n=3)
    # Slopes 2, 0.5 and -1; what is left: 0, 1.5 and 0.
    assert typical_line([0, 1, 2], [0, 2, 1]) == Line(slope=0.5, intercept=0, n=3)
    # Two of the same x have no slope between them.
    assert typical_line([0, 0, 2], [1, 3, 4]) == Line(slope=1, intercept=2, n=3)


def test_a_few_slow_requests_do_not_move_the_typical_line() -> None:
    xs = [16, 32, 64, 128] * 3
    ys = [0.2 + 0.008 * x for x in xs]
    slow = [y + (5 if n in (7, 11) else 0) for n, y in enumerate(ys)]
    found, pulled = typical_line(xs, slow), fit_line(xs, slow)
    assert found is not None and pulled is not None
    assert found.slope == pytest.approx(0.008) and found.intercept == pytest.approx(0.2)
    assert pulled.slope > 3 * found.slope


def test_typical_line_needs_two_different_x_that_are_known() -> None:
    assert typical_line([1, 1], [2, 3]) is None
    assert typical_line([1, 2], [2, None]) is None
    assert typical_line([], []) is None
    with pytest.raises(ValueError):
        typical_line([1], [])


def test_fit_line_needs_two_different_x_that_are_known() -> None:
    assert fit_line([1, 1], [2, 3]) is None
    assert fit_line([1, 2], [2, None]) is None
    assert fit_line([], []) is None
    with pytest.raises(ValueError, match="zip"):
        fit_line([1], [])


def test_ratio_is_unknown_over_unknown_or_zero() -> None:
    assert ratio(6, 3) == 2
    assert ratio(0, 3) == 0
    assert ratio(None, 3) is None
    assert ratio(6, None) is None
    assert ratio(6, 0) is None
