"""Wire cases of kind C: a llama-server's /completion, of several builds, and what goes wrong."""

from __future__ import annotations

import json
from typing import Any

from request_timing.records.sample import ServerTimings
from request_timing.servers.llama_stream import RAW
from wire_case import JSON, STREAM, Case, Script, came, failed, sse
from wire_stub import CUT, RESET, STALLED

NO_JSON = "no_json: a line of the stream is no JSON: "
OVERFLOW = "the request exceeds the available context size, try increasing it"
TIMINGS: dict[str, Any] = {"cache_n": 8, "prompt_n": 2, "prompt_ms": 30.5, "predicted_n": 2,
                           "predicted_ms": 9.25}
LAST: dict[str, Any] = {
    "content": "", "stop": True, "id_slot": 1, "tokens_evaluated": 10, "tokens_predicted": 2,
    "tokens_cached": 11, "stop_type": "limit", "truncated": False, "timings": TIMINGS}


def piece(text: str, so_far: int | None = None) -> bytes:
    return sse({"content": text, "stop": False} | (
        {} if so_far is None else {"tokens_predicted": so_far}))


def progress(processed: int) -> bytes:
    return sse({"content": "", "stop": False, "prompt_progress": {
        "total": 10, "cache": 8, "processed": processed, "time_ms": 3}})


def last(**changed: Any) -> bytes:
    return sse(LAST | changed)


LATER: Script = ((0.2, piece("one", 1)), (0.4, piece(" two", 2)))
ANSWER: Script = (*LATER, (0.5, last()))


def whole(*arrivals_s: float, cached: int | None = 8, prompt_n: int | None = 2,
          prompt_ms: float | None = 30.5, output: int | None = 2,
          predicted_ms: float | None = 9.25, prompt: int | None = 10, slot: int | None = 1,
          finish: str | None = "limit", first_piece_tokens: int | None = 1,
          raw: dict[str, Any] = LAST, **fields: Any) -> dict[str, Any]:
    """The Sample of an answer with the usual last event; `raw` is that event."""
    return came(*arrivals_s, finish=finish, prompt_tokens=prompt, cached_tokens=cached,
                output_tokens=output, first_piece_tokens=first_piece_tokens,
                server=ServerTimings(cache_n=cached, prompt_n=prompt_n, prompt_ms=prompt_ms,
                                     predicted_n=output, predicted_ms=predicted_ms, id_slot=slot),
                usage_raw={"timings": raw.get("timings", {})} | {
                    name: raw[name] for name in RAW if name in raw}, **fields)


def ends_with(kind: str, name: str, source: str, what: str, event: dict[str, Any],
              **fields: Any) -> Case:
    """The usual two pieces, and this last event."""
    return Case(kind, name, source, what, (*LATER, (0.5, sse(event))),
                whole(0.2, 0.4, raw=event, **fields))


def refused(kind: str, fault: str, name: str, source: str, what: str, status: int,
            error: dict[str, Any], message: str, **headers: str) -> Case:
    """An answer with an error status."""
    asked = float(headers["retry_after"]) if headers else None
    return Case(kind, name, source, what, ((0.1, json.dumps(error).encode()),),
                failed(fault, message, status, retry_after_s=asked,
                       response_headers={"retry-after": headers["retry_after"]} if headers else {}),
                says="", status=status, headers=JSON | {
                    name.replace("_", "-"): value for name, value in headers.items()})


OLD = LAST | {"timings": {name: value for name, value in TIMINGS.items() if name != "cache_n"}}
FULL_HIT = LAST | {"timings": TIMINGS | {"cache_n": 9, "prompt_n": 1, "prompt_ms": 7.5}}
UNTIMED = {name: value for name, value in LAST.items() if name != "timings"}
OLDEST = {"content": "", "stop": True, "stopped_limit": True, "tokens_evaluated": 10,
          "tokens_predicted": 2, "tokens_cached": 11, "truncated": False, "slot_id": 0,
          "timings": OLD["timings"]}

LLAMA = (
    Case("C1", "whole", "ggml-org/llama.cpp#15827", "cache_n says what was reused", ANSWER,
         whole(0.2, 0.4)),
    Case("C1", "progress", "ggml-org/llama.cpp#15827", "prefill tells of its progress: no piece",
         ((0.05, progress(8)), (0.1, progress(10)), *ANSWER),
         whole(0.2, 0.4, first_byte_s=0.05)),
    ends_with("C1", "before_cache_n", "ggml-org/llama.cpp#14566",
              "a build before September 2025 has no cache_n: evaluated less computed", OLD),
    ends_with("C1", "oldest_names", "ggml-org/llama.cpp#4790",
              "a build of 2024 names neither the slot nor why it stopped", OLDEST,
              slot=None, finish=None),
    ends_with("C1", "full_hit", "ggml-org/llama.cpp#16391",
              "a full hit still computes one token", FULL_HIT,
              cached=9, prompt_n=1, prompt_ms=7.5),
    ends_with("C1", "no_timings", "ggml-org/llama.cpp#12137",
              "no timings at all: nothing is known of the reuse", UNTIMED,
              cached=None, prompt_n=None, prompt_ms=None, predicted_ms=None),
    ends_with("C1", "no_durations", "ml-explore/mlx-lm#1279",
              "another server's timings have rates and no durations",
              LAST | {"timings": {"prompt_n": 2, "predicted_n": 2, "prompt_per_second": 65.6,
                                  "predicted_per_second": None}},
              prompt_ms=None, predicted_ms=None),
    ends_with("C4", "another_slot", "ggml-org/llama.cpp#28139", "another slot answers",
              LAST | {"id_slot": 3}, slot=3),
    ends_with("C7", "truncated", "ggml-org/llama.cpp#10547",
              "the server cut the prompt to its context, and says so in one word",
              LAST | {"truncated": True},
              notes=("truncated: the server cut the prompt or the answer to its context",)),
    ends_with("C16", "more_than_asked", "ggml-org/llama.cpp#4047",
              "an old build writes more tokens than were asked for",
              LAST | {"timings": TIMINGS | {"predicted_n": 6}}, output=6),
    Case("C16", "text_in_the_last_event", "ggml-org/llama.cpp#4036",
         "the last event brings the rest of a character that was held back",
         ((0.2, piece("one", 1)), (0.3, piece("", 2)), (0.4, last(content=" two"))),
         whole(0.2, 0.4, raw=LAST)),
    Case("C16", "no_text", "unslothai/llama.cpp#202",
         "the tokens have no text: written, counted and timed, though none could be shown",
         ((0.3, piece("", 1)), (0.5, last())),
         whole(first_byte_s=0.3, first_piece_tokens=None), says=""),
    Case("C12", "comments", "coddy-project/coddy-agent#106",
         "`: ping` and empty `data:` keep the connection alive",
         ((0.05, b": ping\n\ndata:\n\n"), *ANSWER, (0.6, b"data: [DONE]\n\n")),
         whole(0.2, 0.4, first_byte_s=0.05)),
    Case("A12", "noise", "mnfst/llm-gateway#2053", "a proxy's comment comes as data",
         ((0.05, b"data: : PROCESSING\n\n"), *ANSWER),
         whole(0.2, 0.4, first_byte_s=0.05, notes=(NO_JSON + ": PROCESSING",))),
    # Failures.
    refused("C6", "context", "overflow", "ggml-org/llama.cpp#19774",
            "the prompt is too long for a slot's context", 400,
            {"error": {"code": 400, "message": OVERFLOW, "type": "exceed_context_size_error",
                       "n_prompt_tokens": 6009, "n_ctx": 4096}}, OVERFLOW),
    refused("C6", "context", "overflow_500", "ggml-org/llama.cpp#15780",
            "the same from a build that called it a server's error", 500,
            {"error": {"code": 500, "message": OVERFLOW, "type": "exceed_context_size_error"}},
            OVERFLOW),
    Case("C6", "overflow_field", "ggml-org/llama.cpp#16109",
         "a build before September 2025 says so under HTTP 200, in a field of its own",
         ((0.1, b"error: " + json.dumps({"code": 400, "message": OVERFLOW, "type":
                                         "invalid_request_error"}).encode() + b"\n\n"),),
         failed("context", OVERFLOW, 400, first_byte_s=0.1), says=""),
    Case("C6", "context_filled", "ggml-org/llama.cpp#16983",
         "the context is full in the middle of the answer",
         (*LATER, (0.5, sse({"error": {"code": 500, "message": "context shift is disabled",
                                       "type": "server_error"}}))),
         failed("http", "context shift is disabled", 500, 0.2, 0.4, first_piece_tokens=1)),
    refused("C8", "loading", "model_loading", "ggml-org/llama.cpp tools/server/README.md",
            "the model is being loaded", 503,
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
            "Loading model"),
    refused("C9", "unknown_model", "router_model", "ggml-org/llama.cpp#17968",
            "a router knows no such model", 400,
            {"error": {"code": 400, "message": "model not found",
                       "type": "invalid_request_error"}}, "model not found"),
    refused("key", "key", "no_key", "ggml-org/llama.cpp#14352", "the server wants a key", 401,
            {"error": {"code": 401, "message": "Invalid API Key",
                       "type": "authentication_error"}}, "Invalid API Key"),
    refused("overloaded", "overloaded", "no_slot", "librefang/librefang#4257",
            "a proxy in front says when to come again", 503,
            {"error": {"code": 503, "message": "no slot available"}}, "no slot available",
            retry_after="2"),
    Case("C9", "closed_in_mid_answer", "lemonade-sdk/lemonade#745",
         "the server dies in the middle of the answer", LATER,
         failed("reset", "the server closed in mid-answer", None, 0.2, 0.4,
                first_piece_tokens=1), ends=CUT),
    Case("C9", "reset", "BerriAI/litellm#33222", "the connection is reset", LATER,
         failed("reset", "[Errno 104] Connection reset by peer", None, 0.2, 0.4,
                first_piece_tokens=1), ends=RESET),
    Case("C9", "reset_after_the_end", "BerriAI/litellm#33222",
         "the connection is reset after the last event: the answer is whole", ANSWER,
         whole(0.2, 0.4), ends=RESET),
    Case("C9", "closed_after_the_end", "npuichigo/openai_trtllm#31",
         "the server closes without the body's end, after the last event: the answer is whole",
         ANSWER, whole(0.2, 0.4), ends=CUT),
    Case("C9", "held_open", "diegosouzapw/OmniRoute#6777",
         "the connection stays open after the last event: the answer is whole", ANSWER,
         whole(0.2, 0.4), ends=STALLED),
    Case("C9", "no_end", "can1357/oh-my-pi#9433", "the stream ends cleanly with no last event",
         LATER, failed("incomplete", "the stream stopped before its end", None, 0.2, 0.4,
                       first_piece_tokens=1)),
    Case("C12", "stalled", "ggml-org/llama.cpp#22907",
         "the server sends nothing more, and does not close", LATER,
         failed("stalled", "the server sent nothing for too long", None, 0.2, 0.4,
                first_piece_tokens=1), ends=STALLED),
    Case("C9", "wrong_server", "openclaw/openclaw#84697", "a page answers",
         ((0.1, b"<!doctype html>\n<title>Welcome</title>"),),
         failed("incomplete", "the stream stopped before its end", first_byte_s=0.1), says="",
         headers=STREAM),
)
