"""The kinds of failure, by the words that vendors really use; and how long an answer asks to wait.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from request_timing.servers.failures import ADVICE, kind_of, retry_after_s

# From the vendors' answers to prompts that are too long (earendil-works/pi#129, and the reports
# named beside the others).
TOO_LONG = {
    "openai": "This model's maximum context length is 128000 tokens. However, your messages "
              "resulted in 156847 tokens. Please reduce the length of the messages.",
    "openai_code": "Your input is over (code context_length_exceeded)",
    "openai_responses": "Your input exceeds the context window of this model",
    "anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "anthropic_limit": "input length and `max_tokens` exceed context limit: 178959 + 64000 > "
                       "200000",
    "gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed "
              "(1048575).",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "groq": "Please reduce the length of the messages or completion.",
    "openrouter": "This endpoint's maximum context length is 8192 tokens. However, you requested "
                  "about 9000 tokens",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context "
               "length",
    "bedrock": "Input is too long for requested model.",
    "moonshot": "Your request exceeded model token limit: 262144 (requested: 300000)",
    "copilot": "prompt token count of 150000 exceeds the limit of 128000",
    "dashscope": "Range of input length should be [1, 129024]",
    "poolside": "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "perplexity": "The total length of all messages is too long.",
    "minimax": "invalid params, context window exceeds limit",
    "cohere": "too many tokens: total number of tokens in this prompt cannot exceed 4081",
    "vllm": "'max_tokens' is too large: 8192. This model's maximum context length is 8192 tokens",
    "llama_server": "the request exceeds the available context size, try increasing it",
    "lm_studio": "The number of tokens to keep from the initial prompt is greater than the context "
                 "length",
    "ollama": "input length exceeds the context length",
}


@pytest.mark.parametrize("said", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_prompt_that_is_too_long_in_the_words_of_many_vendors(said: str) -> None:
    for status in (None, 400, 413, 422, 500):
        assert kind_of(status, said) == "context"


@pytest.mark.parametrize(("status", "said", "kind"), [
    (401, "Incorrect API key provided", "key"),
    (401, "no credit: insufficient_quota", "key"),
    (403, "not yours", "key"),
    (403, "Sorry, your account balance is insufficient", "credit"),
    (402, "", "credit"),
    (429, "You exceeded your current quota, please check your plan and billing details.",
     "credit"),
    (429, "insufficient_quota", "credit"),
    (400, "Your credit balance is too low to access the API", "credit"),
    (None, "Insufficient Balance", "credit"),
    (429, "Rate limit reached for requests", "rate_limited"),
    (429, "prompt is too long for your tier", "rate_limited"),  # a limit of tokens a minute
    (None, "Rate limit reached for requests", "rate_limited"),
    (None, "Overloaded (type overloaded_error)", "overloaded"),
    (503, "Loading model", "loading"),
    (503, "The model is currently loading", "loading"),
    (503, "no healthy upstream", "overloaded"),
    (529, "Overloaded", "overloaded"),
    (413, "<h1>413 Request Entity Too Large</h1>", "too_large"),
    (404, "The model `gpt-9` does not exist or you do not have access to it.", "unknown_model"),
    (404, 'model "m" not found, try pulling it first', "unknown_model"),
    (404, "model_not_found", "unknown_model"),
    (400, "Unknown model: m", "unknown_model"),
    (400, "model not found", "unknown_model"),
    (404, "404 page not found", "http"),
    (400, "The model m is not supported", "unknown_model"),
    (422, "Model m is not available in your region", "unknown_model"),
    (400, "Model m: parameter 'temperature' is not supported", "http"),
    (400, "model m: stream_options not supported", "http"),
    (400, "streaming is not supported for this model", "not_streamed"),
    (400, "model m: streaming is not supported", "not_streamed"),
    (422, "This model cannot be streamed", "not_streamed"),
    (400, "stream must be false", "not_streamed"),
    (400, "stream_options is not supported", "http"),  # the field, not streaming itself
    (400, "Unsupported parameter: 'max_tokens' is not supported with this model", "http"),
    (500, "internal error", "http"),
    (502, "upstream connect error", "http"),
    (504, "Gateway Time-out", "http"),
    (None, "out of memory", "error_in_answer"),
    (None, "", "error_in_answer"),
])
def test_kinds_by_status_and_words(status: int | None, said: str, kind: str) -> None:
    assert kind_of(status, said) == kind
    assert kind in ADVICE


def test_every_kind_has_its_advice_in_one_line() -> None:
    for kind, advice in ADVICE.items():
        assert kind == kind.lower() and "\n" not in advice
        assert not advice.endswith(".")


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": " 1.5 "}, 1.5),
    ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
    # A date is counted from the answer's own, whatever this machine's clock says.
    ({"retry-after": "Wed, 21 Oct 2026 07:28:12 GMT", "date": DATE}, 12.0),
    ({"retry-after": "Wed, 21 Oct 2026 09:28:12 +0200", "date": DATE}, 12.0),
    ({"retry-after": "Wednesday, 21-Oct-26 07:28:12 GMT", "date": DATE}, 12.0),
    ({"retry-after": "Wed Oct 21 07:28:12 2026", "date": DATE}, 12.0),
    ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": DATE}, 0.0),
    ({}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "-5"}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "99 Bottles 2026"}, None),
    ({"retry-after": "Wed, 99 Oct 2026 07:28:12 GMT", "date": DATE}, None),
])
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_date_without_the_answers_own_is_counted_from_now() -> None:
    now = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)
    until = {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}
    assert retry_after_s(until, now) == 30.0
    assert retry_after_s(until | {"date": "nonsense"}, now) == 30.0
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
