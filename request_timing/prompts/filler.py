"""Filler text, and texts of a given number of tokens: pure functions, standard library only.

Filler is what the experiments send when the user brings no document: sentences of invented
lower-case words, so that no model has seen them and no two prompts begin alike.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_CONSONANTS = "bcdfghjklmnprstvwz"
_VOWELS = "aeiou"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_VOCABULARY_WORDS = 3000
_NONCE_LETTERS = 16
_TOLERANCE = 0.005  # of a count that a text is to have
_FIT_ROUNDS = 8
_FIT_GROWTH = 9


def filler(seed: int | str, words: int) -> str:
    """`words` invented words in sentences of 6 to 14, the same for the same seed.

    Lower-case ASCII letters, spaces, full stops and nothing else. A longer text of one seed begins
    with the shorter one, but for that one's last full stop. Raises ValueError below one word.
    """
    if words < 1:
        raise ValueError(f"filler needs at least 1 word, was asked for {words}")
    rng, breaks = random.Random(seed), random.Random(f"{seed}/sentences")
    vocabulary = [_invent_word(rng) for _ in range(_VOCABULARY_WORDS)]
    chosen = rng.choices(vocabulary, k=words)
    start = 0
    while start < words:
        end = min(start + breaks.randint(6, 14), words)
        chosen[end - 1] += "."
        start = end
    return " ".join(chosen)


def _invent_word(rng: random.Random) -> str:
    syllables = rng.randint(1, 4)
    word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(syllables))
    return word + (rng.choice(_CONSONANTS) if rng.random() < 0.4 else "")


def nonces(rng: random.Random | None = None) -> Iterator[str]:
    """An endless series of words to put in front of prompts that must begin like no other.

    A prefix cache matches from the first token, so the *first letters* must differ: the first
    letter runs through a shuffled alphabet and repeats only after 26 nonces; the rest is random.
    The default source is the operating system's, so that two runs with one seed share nothing
    either.
    """
    rng = rng or random.SystemRandom()
    alphabet = list(_ALPHABET)
    rng.shuffle(alphabet)
    for first in itertools.cycle(alphabet):
        yield first + "".join(rng.choices(_ALPHABET, k=_NONCE_LETTERS - 1))


def fit_text(
    target_tokens: int,
    build: Callable[[int], str],
    count_tokens: Callable[[str], int],
) -> str:
    """The text `build(words)` whose `count_tokens` is nearest to `target_tokens`.

    Walks from a first guess by the tokens per word seen so far, which for filler converges in
    two or three rounds, and stops when the count is within 0.5 % of the target or within
    one token. Where the frame around the filler alone is larger than the target, that is the
    text with one word; the caller sees it in the count.
    """
    words = max(1, target_tokens // 3)
    best_text, best_miss = "", float("inf")
    for _ in range(_FIT_ROUNDS):
        text = build(words)
        tokens = count_tokens(text)
        miss = abs(tokens - target_tokens)
        if miss < best_miss:
            best_text, best_miss = text, miss
        if miss <= max(1.0, _TOLERANCE * target_tokens):
            break
        step = round((target_tokens - tokens) * words / max(tokens, 1))
        step = min(step, _FIT_GROWTH * words)  # a count that stands still must not run away
        if step == 0:
            step = 1 if tokens < target_tokens else -1
        words = max(1, words + step)
    return best_text


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many items (characters, tokens) two sequences share from the start: by bisection over
    slices, which are compared at once."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def cut_text(text: str, target_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """The longest beginning of `text` with at most `target_tokens`; the whole where it has fewer.

    By bisection between whole lines of characters; a count is asked of texts up to about twice
    the result, however long the text is.
    """
    low, high = 0, min(len(text), max(1, target_tokens))
    while high < len(text) and count_tokens(text[:high]) <= target_tokens:
        low, high = high, min(len(text), 2 * high)
    if high == len(text) and count_tokens(text) <= target_tokens:
        return text
    while high - low > 1:
        middle = (low + high) // 2
        if count_tokens(text[:middle]) <= target_tokens:
            low = middle
        else:
            high = middle
    return text[:low]
