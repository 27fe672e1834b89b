"""Wire cases of failures: what a request that is refused, cut or lied to leaves in the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wire_case import (
    END,
    HTML,
    JSON,
    ONE,
    ROLE,
    TWO,
    Case,
    Script,
    chunk,
    extra,
    failed,
    refused,
    sse,
)
from wire_stub import DONE, SILENT, STALLED

LATER: Script = ((0.2, ONE), (0.4, TWO))
WHOLE_ANSWER = {"id": "c", "object": "chat.completion", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"}]}
PAGE = b"<!doctype html>\n<title>Welcome</title>"
SHOWN_PAGE = "<!doctype html> <title>Welcome</title>"
BROKEN_OFF = "the answer was broken off: it ends with finish_reason "
NO_FINISH = "the stream ended without a finish_reason"
DATE = {"date": "Wed, 21 Oct 2026 07:28:00 GMT"}
NO_JSON = "no_json: a line of the stream is no JSON: "


def status(kind: str, name: str, source: str, what: str, code: int, said: Any, message: str, *,
           headers: Mapping[str, str] = JSON, retry_after_s: float | None = None) -> Case:
    """An answer with an error status; `said` is its body, as bytes or as JSON."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Case(kind, name, source, what, ((0.1, body),) if body else (),
                refused(kind, f"HTTP {code}: {message}", code, retry_after_s),
                says="", status=code, headers=headers)


def error(message: str, **fields: Any) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, **fields}}


def in_stream(kind: str, name: str, source: str, what: str, data: bytes, message: str, *,
              code: int = 200, before: Script = (), says: str = "") -> Case:
    """An error within the stream, after these pieces."""
    arrivals_s = tuple(at_s for at_s, _ in before)
    return Case(kind, name, source, what, (*before, (0.5, data)),
                failed(kind, message, code, *arrivals_s, first_byte_s=(*arrivals_s, 0.5)[0]),
                says=says)


OVERFLOW = ("This model's maximum context length is 16384 tokens. However, you requested 122946 "
            "tokens (112946 in the messages, 10000 in the completion).")
LLAMA_OVERFLOW = error("the request exceeds the available context size, try increasing it",
                       code=400, type="exceed_context_size_error", n_prompt_tokens=6009,
                       n_ctx=4096)
SHOWN_OVERFLOW = ("the request exceeds the available context size, try increasing it (type "
                  "exceed_context_size_error)")
QUOTA = "You exceeded your current quota, please check your plan and billing details."

FAILURES = (
    # By status.
    status("key", "wrong_key", "continuedev/continue#11010", "the key is wrong", 401,
           error("Incorrect API key provided", code="invalid_api_key"),
           "Incorrect API key provided (code invalid_api_key)"),
    status("key", "forbidden", "platform.openai.com/docs/guides/error-codes",
           "the key may not be used from there", 403,
           error("Country, region, or territory not supported"),
           "Country, region, or territory not supported"),
    status("credit", "billing_403", "anomalyco/opencode#18853",
           "long prompts cost extra, and the account has none of that", 403,
           error("Extra usage is required for long context requests", type="billing_error"),
           "Extra usage is required for long context requests (type billing_error)"),
    status("credit", "no_balance", "continuedev/continue#9942", "the account is empty", 402,
           error("Insufficient Balance", type="unknown_error"),
           "Insufficient Balance (type unknown_error)"),
    status("credit", "no_quota", "langchain-ai/langchainjs#1929",
           "the quota is used up, under the status of a rate limit: waiting would not help", 429,
           error(QUOTA, code="insufficient_quota"), f"{QUOTA} (code insufficient_quota)"),
    status("rate_limited", "retry_after", "agentjido/req_llm#522",
           "too many requests, with seconds to wait", 429, error("slow down"), "slow down",
           headers=JSON | {"retry-after": "7"}, retry_after_s=7.0),
    status("rate_limited", "retry_after_ms", "techlab-innov/llmtrace#75",
           "too many requests, with milliseconds to wait", 429, error("slow down"), "slow down",
           headers=JSON | {"retry-after-ms": "250", "retry-after": "1"}, retry_after_s=0.25),
    status("rate_limited", "retry_after_date", "duolahypercho/codex-router#573",
           "too many requests, with a date to wait for: counted from the answer's own date", 429,
           error("slow down"), "slow down", retry_after_s=12.0,
           headers=JSON | DATE | {"retry-after": "Wed, 21 Oct 2026 07:28:12 GMT"}),
    status("rate_limited", "retry_after_nonsense", "interviewstreet/hiring-agent#386",
           "too many requests, and nobody can tell until when", 429, error("slow down"),
           "slow down", headers=JSON | {"retry-after": "soon"}),
    status("rate_limited", "gemini_list", "gke-labs/gemini-for-kubernetes-development#1215",
           "Gemini's error object lies in a list", 429,
           [error("Resource exhausted", status="RESOURCE_EXHAUSTED")], "Resource exhausted"),
    status("overloaded", "no_upstream", "librefang/librefang#4257",
           "nothing answers behind the gateway, which says when to come again", 503,
           error("no healthy upstream"), "no healthy upstream",
           headers=JSON | {"retry-after": "30"}, retry_after_s=30.0),
    status("overloaded", "529", "anthropics/claude-code#35792", "the provider is overloaded", 529,
           {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
           "Overloaded (type overloaded_error)"),
    status("loading", "loading", "ggml-org/llama.cpp tools/server/README.md",
           "the model is being loaded", 503,
           error("Loading model", code=503, type="unavailable_error"),
           "Loading model (type unavailable_error)"),
    status("context", "vllm_overflow", "vllm-project/vllm#20409", "the prompt is too long", 400,
           {"object": "error", "message": OVERFLOW, "type": "BadRequestError", "code": 400},
           f"{OVERFLOW} (type BadRequestError)"),
    status("context", "llama_overflow", "ggml-org/llama.cpp#19774",
           "the prompt is too long for the server's context", 400, LLAMA_OVERFLOW,
           SHOWN_OVERFLOW),
    status("context", "gemini_overflow", "earendil-works/pi#129",
           "the prompt is too long, in Gemini's words", 400, [error(
               "The input token count (1196265) exceeds the maximum number of tokens allowed "
               "(1048575).", code=400, status="INVALID_ARGUMENT")],
           "The input token count (1196265) exceeds the maximum number of tokens allowed "
           "(1048575)."),
    status("too_large", "nginx_limit", "ChronoAIProject/NyxID#957",
           "nginx takes no body of more than a megabyte", 413,
           b"<html>\r\n<center><h1>413 Request Entity Too Large</h1></center>\r\n</html>\r\n",
           "<html> <center><h1>413 Request Entity Too Large</h1></center> </html>",
           headers=HTML),
    status("unknown_model", "ollama_model", "netease-youdao/QAnything#555",
           "there is no such model", 404,
           error('model "m" not found, try pulling it first', type="api_error"),
           'model "m" not found, try pulling it first (type api_error)'),
    status("unknown_model", "fastapi_detail", "theodo-group/GenossGPT#2",
           "there is no such model, in FastAPI's shape", 404, {"detail": "Model not found"},
           "Model not found"),
    status("not_streamed", "no_stream_400", "earendil-works/pi#1125",
           "the model does not stream", 400,
           error("streaming is not supported for this model"),
           "streaming is not supported for this model"),
    status("no_api", "page_404", "tsundereraws/aisub-translator#2",
           "the base URL lacks its /v1, and nginx has a page for that", 404,
           b"<h1>404 Not Found</h1>", "<h1>404 Not Found</h1>", headers=HTML),
    status("proxy", "proxy_password", "encode/httpx#3283", "a proxy wants a password", 407,
           b"Proxy Authentication Required", "Proxy Authentication Required", headers={}),
    status("http", "cloudflare_524", "misospace/pr-reviewer-action#23",
           "a gateway in between gives up waiting, with a page", 524,
           b"<title>524: A timeout occurred</title>", "<title>524: A timeout occurred</title>",
           headers=HTML),
    status("http", "stream_options", "openai/openai-agents-python#442",
           "an optional field is refused: a probe before the run goes without it", 422,
           {"detail": [{"loc": ["body", "stream_options", "include_usage"],
                        "msg": "extra fields not permitted"}]},
           '{"detail": [{"loc": ["body", "stream_options", "include_usage"], "msg": "extra '
           'fields not permitted"}]}'),
    status("http", "max_tokens", "SilasMarvin/lsp-ai#95",
           "the limit is refused under its name: a probe before the run takes the other", 400,
           error("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                 "'max_completion_tokens' instead.", param="max_tokens"),
           "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
           "'max_completion_tokens' instead."),
    status("http", "no_body", "earendil-works/pi#129",
           "an error with no body, as Cerebras answers a prompt that is too long", 400, b"",
           "Error code: 400", headers={}),
    Case("no_api", "moved", "mostlygeek/llama-swap#322", "the address has moved", (),
         refused("no_api", "HTTP 308: the address has moved to https://there/v1", 308),
         says="", status=308, headers={"location": "https://there/v1?key=secret"}),
    # Under HTTP 200.
    Case("no_api", "page_200", "openclaw/openclaw#84697",
         "the base URL lacks its /v1, and a page answers", ((0.1, PAGE),),
         failed("no_api", f"an HTML page: {SHOWN_PAGE}", 200), says="", headers=HTML),
    Case("not_streamed", "whole", "diegosouzapw/OmniRoute#3112", "the answer comes in one piece",
         ((0.1, json.dumps(WHOLE_ANSWER).encode()),),
         failed("not_streamed", f"an answer in one piece: {json.dumps(WHOLE_ANSWER)}", 200),
         says="", headers=JSON),
    Case("credit", "error_200", "Aider-AI/aider#4851", "an error object, under HTTP 200",
         ((0.1, json.dumps(error("Insufficient Balance")).encode()),),
         failed("credit", "an error: Insufficient Balance", 200), says="", headers=JSON),
    # Within the stream.
    in_stream("error_in_answer", "error_event", "open-jarvis/OpenJarvis#970",
              "an error comes instead of the next piece", sse(error("out of memory")),
              "out of memory", before=LATER[:1], says="one"),
    in_stream("error_in_answer", "error_string", "huggingface/text-generation-inference#1896",
              "the error is a bare string", sse({"error": "out of memory"}), "out of memory"),
    in_stream("error_in_answer", "error_beside_a_choice", "damianvtran/local-operator#223",
              "OpenRouter's upstream broke off: an error, and a finish_reason of that name",
              sse(error("Provider disconnected", code=502) | {
                  "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}),
              "Provider disconnected", before=LATER[:1], says="one"),
    in_stream("error_in_answer", "error_without_choices", "diegosouzapw/OmniRoute#8210",
              "no choices, and an error beside them",
              extra(**error("Worker local total request limit reached (33/32)")),
              "Worker local total request limit reached (33/32)"),
    in_stream("context", "bare_error", "lemonade-sdk/lemonade#2826",
              "the error comes with no `data:` before it, in an event stream",
              json.dumps(LLAMA_OVERFLOW).encode(), SHOWN_OVERFLOW),
    in_stream("context", "error_field", "coddy-project/coddy-agent#106",
              "llama-server of 2025 sends the error in a field of that name",
              b"error: " + json.dumps(LLAMA_OVERFLOW["error"]).encode() + b"\n\n" + DONE,
              SHOWN_OVERFLOW),
    in_stream("rate_limited", "code_429", "damianvtran/local-operator#223",
              "a rate limit comes within the stream, with its status in the error object",
              sse(error("Too many requests", code=429)), "Too many requests"),
    in_stream("overloaded", "overloaded_event", "Doriandarko/claude-engineer#161",
              "Anthropic's event of an overload",
              b"event: error\n" + sse({"type": "error", "error": {
                  "type": "overloaded_error", "message": "Overloaded"}}),
              "Overloaded (type overloaded_error)"),
    Case("no_json", "no_json_at_all", "amd/gaia#3501", "the stream holds nothing but noise",
         ((0.1, b"data: oops\n\n" + DONE),),
         failed("no_json", "the stream holds no piece of an answer: data: oops data: [DONE]", 200,
                first_byte_s=0.1, notes=(NO_JSON + "oops",)), says=""),
    # An end that is none.
    in_stream("incomplete", "abort", "vllm-project/vllm#57082",
              "the server gave the request up, and ends the stream as if it were whole",
              chunk("abort") + DONE, BROKEN_OFF + "abort", before=LATER[:1], says="one"),
    in_stream("overloaded", "insufficient", "api-docs.deepseek.com/api/create-chat-completion",
              "DeepSeek broke the answer off for want of resources",
              chunk("insufficient_system_resource") + DONE,
              BROKEN_OFF + "insufficient_system_resource", before=LATER[:1], says="one"),
    in_stream("error_in_answer", "network_error", "NousResearch/hermes-agent#92161",
              "the answer ends with network_error", chunk("network_error") + DONE,
              BROKEN_OFF + "network_error", before=LATER[:1], says="one"),
    # Nothing to time.
    Case("empty", "zero_deltas", "lmstudio-ai/lmstudio-bug-tracker#2339",
         "the prompt is too long, and a proper stream with no text in it says so",
         ((0.1, ROLE), (0.2, END), (0.3, extra(usage={"prompt_tokens": 36_000}) + DONE)),
         failed("empty", "the answer has no text in it", first_byte_s=0.1, prompt_tokens=36_000,
                usage_raw={"prompt_tokens": 36_000}) | {"finish_reason": "length"}, says=""),
    Case("incomplete", "empty_body", "BerriAI/litellm#33222", "the stream is empty", (),
         failed("incomplete", NO_FINISH), says=""),
    Case("incomplete", "role_only", "ranxianglei/billion-context-omp#105",
         "the stream ends after its first, empty chunk", ((0.1, ROLE),),
         failed("incomplete", NO_FINISH, first_byte_s=0.1), says=""),
    Case("reset", "no_answer", "containers/ramalama#752",
         "the server takes the request and closes the connection", (),
         refused("reset", "the connection broke: Server disconnected without sending a response."),
         says="", ends=SILENT),
    Case("stalled", "stalled", "ggml-org/llama.cpp#22907",
         "the server sends nothing more, and does not close", LATER,
         failed("stalled", "the server sent nothing for too long", None, 0.2, 0.4), ends=STALLED),
    Case("stalled", "alive_and_stuck", "QuackbackIO/quackback#456",
         "comments keep the connection alive, and no piece comes any more",
         ((0.02, ONE), (0.1, b": alive\n\n"), (1.3, b": alive\n\n"), (1.4, END + DONE)),
         failed("stalled", "the server keeps the stream open, and sent no piece of the answer for "
                "1 s", None, 0.02), says="one", stall_s=1.0),
    Case("error_in_answer", "message_alone", "zhuweiyou/chatgpt-api#29",
         "a message stands where choices should be",
         ((0.1, sse({"message": "timed out waiting for response"})),),
         failed("error_in_answer", "timed out waiting for response", 200, first_byte_s=0.1),
         says=""),
)
