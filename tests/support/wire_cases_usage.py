"""Wire cases of kind B: what is counted, under which name, where in the stream, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wire_case import (
    ANSWER,
    COUNTED,
    END,
    LAST,
    ONE,
    STREAM,
    TWO,
    USAGE,
    Case,
    Script,
    came,
    chunk,
    extra,
    sse,
)
from wire_stub import DONE

OPENAI = "platform.openai.com/docs/guides/prompt-caching"
XAI = "docs.x.ai/developers/advanced-api-usage/prompt-caching/usage-and-pricing"
PIECES: Script = ((0.2, ONE), (0.4, TWO))


def ends(*chunks: bytes) -> Script:
    """The usual two pieces, and these chunks after them."""
    return (*PIECES, (0.5, b"".join(chunks) + DONE))


def with_usage(data: bytes, usage: Any) -> bytes:
    """A chunk with usage in it."""
    return sse(json.loads(data.removeprefix(b"data: ")) | {"usage": usage})


def counts(prompt: int | None = None, cached: int | None = None, output: int | None = None,
           reasoning: int | None = None, *, raw: Any, **fields: Any) -> dict[str, Any]:
    """The Sample of the usual two pieces, and these counts."""
    return came(0.2, 0.4, prompt_tokens=prompt, cached_tokens=cached, output_tokens=output,
                reasoning_tokens=reasoning, usage_raw=raw, **fields)


def reports(kind: str, name: str, source: str, what: str, usage: Mapping[str, Any], *,
            at: str = "usage", **found: int | None) -> Case:
    """A case whose usage comes in the last chunk, under the name `at`."""
    return Case(kind, name, source, what, ends(END, extra(**{at: usage})),
                counts(**found, raw=dict(usage)))


NESTED = {**USAGE, "prompt_tokens_details": {"cached_tokens": 8}}
DEEPSEEK = {**USAGE, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}
HIT = {"x-openrouter-cache-status": "HIT"}
FIREWORKS = {"fireworks-prompt-tokens": "10", "fireworks-cached-prompt-tokens": "8"}
TIMINGS = {"cache_n": 8, "prompt_n": 2, "prompt_ms": 30.5, "predicted_n": 4, "predicted_ms": 9.0}
GROWING = [{**USAGE, "completion_tokens": n, "total_tokens": 10 + n} for n in (2, 4)]
OUTPUT_ALONE = {"prompt_tokens": 0, "completion_tokens": 16, "total_tokens": 16}
THE_REST = {"input_tokens": 10, "output_tokens": 4}
EDGE = {"cache-status": "Origin; hit; ttl=10", "age": "7"}
NOT_COUNTS = {"prompt_tokens": "10", "completion_tokens": -4,
              "prompt_tokens_details": {"cached_tokens": True}}

USAGES = (
    # Where it stands.
    Case("A2", "usage_unasked", "awslabs/llmeter#34",
         "usage comes in a chunk with no choices", ANSWER, came(0.2, 0.4, **COUNTED)),
    Case("A6", "in_the_choice", "earendil-works/pi#2017",
         "usage lies within the choice",
         ends(sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "length",
                                "usage": NESTED}]})),
         counts(10, 8, 4, raw=NESTED)),
    Case("A6", "middle_then_null", "openai/openai-agents-python#2126",
         "usage comes in a middle chunk, and null in the last",
         ends(with_usage(END, NESTED), extra(usage=None)), counts(10, 8, 4, raw=NESTED)),
    Case("A6", "then_all_zero", "BerriAI/litellm#17136",
         "a last chunk repeats usage with zeros throughout",
         ends(END, extra(usage=NESTED), extra(usage={
             "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})),
         counts(10, 8, 4, raw=NESTED)),
    Case("A6", "null_until_the_last", "platform.openai.com/docs/api-reference/chat-streaming",
         "usage is null in every chunk but the last",
         ((0.2, with_usage(ONE, None)), (0.4, with_usage(TWO, None)), (0.5, END + LAST)),
         came(0.2, 0.4, **COUNTED)),
    Case("A6", "x_groq", "Portkey-AI/gateway#1072",
         "Groq puts usage under a name of its own",
         ends(sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
                   "x_groq": {"id": "r", "usage": USAGE}})),
         came(0.2, 0.4, **COUNTED)),
    Case("A6", "cached_first_then_silent", "pydantic/pydantic-ai#4056",
         "the first usage has cached tokens, the last has none of that name",
         (*PIECES, (0.5, extra(usage=NESTED) + END + LAST)),
         counts(10, 8, 4, raw=USAGE)),
    Case("A6", "then_no_prompt", "envoyproxy/ai-gateway#1631",
         "the first usage counts the prompt, the last has zero for it",
         (*PIECES, (0.5, extra(usage={"prompt_tokens": 634, "prompt_tokens_details": {
             "cached_tokens": 317}}) + END + extra(usage=OUTPUT_ALONE) + DONE)),
         counts(634, 317, 16, raw=OUTPUT_ALONE)),
    Case("A6", "then_the_rest", "8monkey-ai/hebo-gateway#187",
         "an Anthropic stream's last event has no cached tokens, and its input leaves them out",
         (*PIECES, (0.5, sse({"type": "message_start", "message": {"usage": {
             "input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0,
             "output_tokens": 1}}}) + END + extra(usage=THE_REST) + DONE)),
         counts(100, 90, 4, raw=THE_REST)),
    Case("A7", "on_every_chunk", "AtomaAI/atoma-proxy#534",
         "usage comes on every chunk and grows: the last, not the sum",
         ((0.2, with_usage(ONE, GROWING[0])), (0.4, with_usage(TWO, GROWING[1])),
          (0.5, with_usage(END, GROWING[1]) + DONE)),
         counts(10, None, 4, raw=GROWING[1])),
    # Three states.
    reports("B2", "cached", OPENAI, "cached tokens are reported", NESTED,
            prompt=10, cached=8, output=4),
    reports("B2", "reported_zero", "openai/openai-node#1346",
            "a zero is reported: nothing was cached",
            {**USAGE, "prompt_tokens_details": {"cached_tokens": 0}},
            prompt=10, cached=0, output=4),
    reports("B2", "details_null", "sgl-project/sglang#4707",
            "the details are null without --enable-cache-report: not reported, and no zero",
            {**USAGE, "prompt_tokens_details": None}, prompt=10, output=4),
    reports("B2", "details_missing", "vllm-project/vllm#44961",
            "the details are missing without --enable-prompt-tokens-details",
            USAGE, prompt=10, output=4),
    reports("B3", "silent_cache", "lmstudio-ai/lmstudio-bug-tracker#778",
            "LM Studio reuses and reports nothing: the clock alone can tell",
            {**USAGE, "completion_tokens_details": {"reasoning_tokens": 0}},
            prompt=10, output=4, reasoning=0),
    # Spellings.
    reports("B1", "deepseek", "api-docs.deepseek.com/guides/kv_cache",
            "hits and misses, at the top level", DEEPSEEK, prompt=10, cached=8, output=4),
    reports("B5", "moonshot", "promptfoo/promptfoo#10132",
            "cached_tokens at the top level", {**USAGE, "cached_tokens": 8},
            prompt=10, cached=8, output=4),
    reports("B5", "two_spellings", "promptfoo/promptfoo#10132",
            "the same count under two names: not their sum", {**NESTED, "cached_tokens": 8},
            prompt=10, cached=8, output=4),
    reports("B5", "zero_beside_a_count", "ithtelab/workbuddy-manager#39",
            "a gateway's own field is zero, and the provider's beside it is not",
            {**DEEPSEEK, "prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 0},
            prompt=10, cached=8, output=4),
    reports("B5", "mistral", "docs.mistral.ai/studio-api/conversations/advanced/prompt-caching",
            "num_cached_tokens", {**USAGE, "num_cached_tokens": 8},
            prompt=10, cached=8, output=4),
    reports("B5", "cerebras", "inference-docs.cerebras.ai/capabilities/prompt-caching",
            "nested, with counts of accepted predictions beside",
            {**NESTED, "completion_tokens_details": {"accepted_prediction_tokens": 0}},
            prompt=10, cached=8, output=4),
    reports("B5", "responses_api", XAI, "the names of OpenAI's Responses",
            {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14,
             "input_tokens_details": {"cached_tokens": 8},
             "output_tokens_details": {"reasoning_tokens": 1}},
            prompt=10, cached=8, output=4, reasoning=1),
    reports("B5", "anthropic", "genkit-ai/genkit#5412",
            "Anthropic's input_tokens leave out what was read from and written to the cache",
            {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7,
             "output_tokens": 4}, prompt=100, cached=90, output=4),
    reports("B5", "anthropic_within", "larsderidder/context-lens#51",
            "a gateway's prompt_tokens hold what was read, and Anthropic's names stand beside",
            {"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104,
             "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7},
            prompt=100, cached=90, output=4),
    reports("B5", "anthropic_apart", "browser-use/browser-use#4294",
            "a gateway passes Anthropic's count on as prompt_tokens: less than was read",
            {"prompt_tokens": 3, "completion_tokens": 4, "cache_read_input_tokens": 90,
             "cache_creation_input_tokens": 0}, prompt=93, cached=90, output=4),
    reports("B5", "bedrock", "BerriAI/litellm#9221",
            "Bedrock Converse's names; the prompt's count leaves out both cache counts",
            {"inputTokens": 3, "outputTokens": 4, "totalTokens": 104,
             "cacheReadInputTokens": 90, "cacheWriteInputTokens": 7},
            prompt=100, cached=90, output=4),
    reports("B5", "gemini", "computesdk/benchmarks#372",
            "Gemini's names, and thinking counted beside the answer",
            {"promptTokenCount": 10, "cachedContentTokenCount": 8, "candidatesTokenCount": 4,
             "thoughtsTokenCount": 6, "totalTokenCount": 20}, at="usageMetadata",
            prompt=10, cached=8, output=10, reasoning=6),
    reports("B5", "xai_thinking_apart", "vercel/ai#12425",
            "xAI counts thinking beside the output, as its total shows",
            {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 399,
             "completion_tokens_details": {"reasoning_tokens": 386}},
            prompt=12, output=387, reasoning=386),
    reports("B5", "thinking_within", "UKGovernmentBEIS/inspect_ai#5528",
            "OpenAI counts thinking within the output",
            {"prompt_tokens": 12, "completion_tokens": 387, "total_tokens": 399,
             "completion_tokens_details": {"reasoning_tokens": 386}},
            prompt=12, output=387, reasoning=386),
    Case("B5", "fireworks", "docs.fireworks.ai/guides/prompt-caching",
         "Fireworks counts cached tokens in the head of its answer",
         ends(END), came(0.2, 0.4, prompt_tokens=10, cached_tokens=8,
                         response_headers=FIREWORKS), headers=STREAM | FIREWORKS),
    Case("C1", "timings", "ggml-org/llama.cpp#15827",
         "a llama-server puts its own timings beside usage: cache_n is the reuse",
         ends(sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
                   "timings": TIMINGS}), extra(usage=USAGE, timings=TIMINGS)),
         counts(10, 8, 4, raw={**USAGE, "timings": TIMINGS})),
    # Whole answers from a cache.
    Case("B19", "response_cache", "openrouter.ai/docs/guides/features/response-caching",
         "the whole answer comes from a cache of answers: it looks like a hit, and is none",
         ((0.01, chunk(content="one two") + END + LAST),),
         came(0.01, **COUNTED, response_headers=HIT, notes=(
             "response_cache: a whole answer, kept from before (x-openrouter-cache-status: HIT)",
         )), headers=STREAM | HIT),
    Case("B19", "response_cache_standard", "www.rfc-editor.org/rfc/rfc9211",
         "a cache in between says so as the standard has it",
         ((0.01, chunk(content="one two") + END + LAST),),
         came(0.01, **COUNTED, response_headers=EDGE, notes=(
             "response_cache: a whole answer, kept from before (cache-status: Origin; hit; "
             "ttl=10)",)), headers=STREAM | EDGE),
    Case("B19", "response_cache_missed", "openrouter.ai/docs/guides/features/response-caching",
         "the head says that no cache had the answer", ANSWER,
         came(0.2, 0.4, **COUNTED, response_headers={"x-openrouter-cache-status": "MISS"}),
         headers=STREAM | {"x-openrouter-cache-status": "MISS"}),
    # Nonsense.
    reports("B2", "no_counts", "philschmid/easyllm#40",
            "strings, negative numbers and truth values stand where counts should",
            NOT_COUNTS),
    reports("B2", "whole_floats", "BerriAI/litellm#28070",
            "counts come as floats", {"prompt_tokens": 10.0, "completion_tokens": 4.0,
                                      "prompt_tokens_details": {"cached_tokens": 7.5}},
            prompt=10, output=4),
    Case("B2", "not_a_number", "node-fetch/node-fetch#806",
         "a count is NaN, which is no JSON", ends(END, extra(usage={
             **USAGE, "prompt_tokens_details": {"cached_tokens": float("nan")}})),
         counts(10, None, 4, raw={**USAGE, "prompt_tokens_details": {"cached_tokens": "nan"}})),
    reports("B2", "more_than_the_prompt", "Helicone/helicone#5652",
            "more is cached than the prompt has: kept as reported, and the verdict says so",
            {**USAGE, "prompt_tokens_details": {"cached_tokens": 90}},
            prompt=10, cached=90, output=4),
)
