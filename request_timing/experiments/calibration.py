"""Before the run, outside every clock: what the endpoint takes, and how its tokens count.

A few small requests, not counted. They warm the connection; the first also finds out which
optional fields the endpoint refuses; from their reported sizes come tokens a character.
"""

from __future__ import annotations

from request_timing.experiments.plan import CALIBRATION_OUTPUT_TOKENS, DOCUMENT_SAMPLE_CHARS
from request_timing.prompts.filler import filler, nonces
from request_timing.servers.backend import USER, Message
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.openai_models import choose_model, trouble
from request_timing.servers.patience import Patience
from request_timing.servers.timing import RequestFailed, Usage, merged

TOKENS_PER_CHAR = 0.1, 1.5  # of filler, for any tokenizer from words to bytes
DOCUMENT_TOKENS_PER_CHAR = 0.01, 4.0  # of any text: a token of a byte makes 4 of an emoji
# Filler's characters a token where no usage is reported: of SmolLM2's tokenizer, measured.
FILLER_CHARS_PER_TOKEN = 2.5


def calibrate(
    endpoint: OpenAIEndpoint, words: tuple[int, int], patience: Patience,
    document: str | None = None,
) -> list[str]:
    """Ask texts of so many words, and a piece of the document; set the endpoint's tokens a
    character, and return notes for the reader.

    Sizes stay estimates where no usage is reported, or it does not grow with the prompt. Raises
    UserError where the endpoint does not answer: nothing could be measured.
    """
    endpoint.tokens_per_char = 1 / FILLER_CHARS_PER_TOKEN
    if not endpoint.model:
        patience.call(lambda: choose_model(endpoint))
    nonce = nonces()
    texts = [f"{next(nonce)}.\n{filler(size, size)}" for size in words]
    if document is not None:
        texts.append(f"{next(nonce)}.\n{_middle(document)}")
    counted: list[int] = []
    for text in texts:
        usage = _probe(endpoint, text, patience)
        if not usage.prompt_tokens:
            return [*endpoint.learnt, "the endpoint reports no usage: sizes are estimated at "
                    f"{FILLER_CHARS_PER_TOKEN} characters a token"]
        counted.append(usage.prompt_tokens)
    short, long = texts[:2]
    per_char = (counted[1] - counted[0]) / (len(long) - len(short))
    if not TOKENS_PER_CHAR[0] <= per_char <= TOKENS_PER_CHAR[1]:
        return [*endpoint.learnt, "the endpoint's usage does not grow with the prompt as tokens "
                f"do: sizes are estimated at {FILLER_CHARS_PER_TOKEN} characters a token"]
    endpoint.tokens_per_char = per_char
    endpoint.head_tokens = max(0, round(counted[0] - len(short) * per_char))
    if document is None:
        return endpoint.learnt
    own = (counted[2] - endpoint.head_tokens) / len(texts[2])
    low, high = DOCUMENT_TOKENS_PER_CHAR
    endpoint.document_tokens_per_char = own if low <= own <= high else None
    return endpoint.learnt


def _probe(endpoint: OpenAIEndpoint, text: str, patience: Patience) -> Usage:
    """The usage of one request, repeated without what the endpoint refuses."""

    def ask() -> Usage:
        usage = Usage()
        for event in endpoint.stream((Message(USER, text),), CALIBRATION_OUTPUT_TOKENS):
            if isinstance(event, Usage):
                usage = merged(usage, event)
        return usage

    while True:
        try:
            return patience.call(ask)
        except RequestFailed as failed:
            if not endpoint.adapt(failed):
                raise trouble(endpoint, failed) from None


def _middle(document: str) -> str:
    """A piece of the document from its middle, where it is most like itself."""
    start = max(0, (len(document) - DOCUMENT_SAMPLE_CHARS) // 2)
    return document[start:start + DOCUMENT_SAMPLE_CHARS]
