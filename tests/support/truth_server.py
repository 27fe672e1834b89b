"""A server of known truth: what the scripts measure on it is held to what it really did.

It speaks OpenAI's chat completions and a llama-server's own API, takes exactly the time that its
Config says, reuses exactly what its Config says, and logs of every request when its last byte
came and when each token was handed to the transport, on the clock that all processes of a
machine share (`time.perf_counter`, on Linux CLOCK_MONOTONIC).

    python tests/support/truth_server.py --config '{"fixed_s": 0.05, "cache": "prefix"}'

prints its URL and ends when its standard input closes. A token is four characters of the prompt, a
chat being rendered as "<role>content" joined. Token k of an answer is due at an absolute moment,
so that no lateness adds up; the first costs no step, as on a llama-server:

    received + (fixed + prefill * computed tokens + prefill squared * (prompt² - reused²))
             * noise * drift + the first k - 1 steps
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

from truth_model import CHARS_PER_TOKEN, Config, Entry, Model

NAME = "truth"
CONTEXT_TOKENS = 1 << 20
COARSE_S = 0.003  # the event loop wakes up to about 1 ms late: it sleeps to this far before
SPIN_S = 0.0002  # the system's sleep is about 0.06 ms late: the rest is spun away
BODY_LIMIT_BYTES = 1 << 26
PROGRESS_SHARES = (0.25, 0.5, 0.75, 1.0)
now = time.perf_counter


def sse(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


# Both protocols: `opening` goes out before prefill, `piece` is one token, `closing` comes after the
# last one, and `whole` is an answer that was not streamed.


class Chat:
    """/v1/chat/completions; `opening` has a role and no text."""

    may_reuse, wants_progress = True, False
    answer_prefix = "<assistant>"  # between a prompt and its answer, in the next turn's prompt

    def __init__(self, body: dict[str, Any], report_cached: bool) -> None:
        self.text = "".join(f"<{m['role']}>{m['content']}" for m in body["messages"])
        self.output_tokens: int = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        self.stream = bool(body.get("stream"))
        self._wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._report_cached = report_cached
        self.opening = self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return sse({"id": NAME, "object": "chat.completion.chunk", "created": 1, "model": NAME,
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def piece(self, word: str, number: int) -> bytes:
        return self._chunk({"content": word})

    def closing(self, entry: Entry) -> bytes:
        usage = {"object": "chat.completion.chunk", "choices": []}
        told = sse(self.whole(entry, "") | usage) if self._wants_usage else b""
        return self._chunk({}, "length") + told + b"data: [DONE]\n\n"

    def whole(self, entry: Entry, answer: str) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "prompt_tokens": entry.prompt_tokens, "completion_tokens": entry.output_tokens,
            "total_tokens": entry.prompt_tokens + entry.output_tokens}
        if self._report_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": entry.cached_tokens}
        message = {"role": "assistant", "content": answer}
        return {"id": NAME, "object": "chat.completion", "created": 1, "model": NAME,
                "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
                "usage": usage}


class Completion:
    """A llama-server's /completion."""

    opening = b""
    answer_prefix = ""

    def __init__(self, body: dict[str, Any]) -> None:
        self.text: str = body["prompt"]
        self.output_tokens = max(body.get("n_predict", -1), 0) or 16
        self.stream = bool(body.get("stream"))
        self.may_reuse = bool(body.get("cache_prompt", True))
        self.wants_progress = bool(body.get("return_progress"))

    def progress(self, entry: Entry, share: float) -> bytes:
        done = entry.cached_tokens + round(share * (entry.prompt_tokens - entry.cached_tokens))
        return sse({"content": "", "stop": False, "prompt_progress": {
            "total": entry.prompt_tokens, "cache": entry.cached_tokens, "processed": done,
            "time_ms": round(1000 * (now() - entry.received_at_s))}})

    def piece(self, word: str, number: int) -> bytes:
        return sse({"index": 0, "content": word, "stop": False, "tokens_predicted": number})

    def closing(self, entry: Entry) -> bytes:
        return sse(self.whole(entry, ""))

    def whole(self, entry: Entry, answer: str) -> dict[str, Any]:
        computed = entry.prompt_tokens - entry.cached_tokens
        return {"index": 0, "content": answer, "stop": True, "stop_type": "limit", "id_slot": 0,
                "tokens_predicted": entry.output_tokens, "tokens_evaluated": entry.prompt_tokens,
                "tokens_cached": entry.prompt_tokens + entry.output_tokens, "truncated": False,
                "timings": {"cache_n": entry.cached_tokens, "prompt_n": computed,
                            "prompt_ms": 1000 * entry.prefill_s,
                            "predicted_n": entry.output_tokens,
                            "predicted_ms": 1000 * entry.decode_s}}


class DatedReader(asyncio.StreamReader):
    """A stream that knows when its last bytes came in, before anything wakes up for them."""

    fed_at_s = 0.0

    def feed_data(self, data: Any) -> None:
        """Called by the transport with what came."""
        self.fed_at_s = now()
        super().feed_data(data)


async def until(moment: float) -> None:
    """Return at `moment`, some microseconds late at most, or at once if it is past.

    The last COARSE_S hold up every other request, so only one at a time is served to the
    microsecond: finer than the loop's own clock is only a sleep that blocks it.
    """
    await asyncio.sleep(max(0.0, moment - now() - COARSE_S))
    if (left := moment - now() - SPIN_S) > 0:
        time.sleep(left)
    while now() < moment:
        pass


class Client:
    """One client's connection: its requests, one after the other."""

    def __init__(self, model: Model, reader: DatedReader, writer: asyncio.StreamWriter) -> None:
        self._model, self._reader, self._writer = model, reader, writer

    async def serve(self) -> None:
        """Answer until the client leaves."""
        self._writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with (contextlib.closing(self._writer),
              contextlib.suppress(ConnectionError, asyncio.IncompleteReadError)):
            while True:
                head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in
                           (line.partition(": ") for line in head[1:])}
                body = await self._reader.readexactly(int(headers.get("content-length", "0")))
                received_at_s = self._reader.fed_at_s
                await self._answer(head[0].split(" ")[1], json.loads(body or "{}"), received_at_s)

    async def _answer(self, path: str, body: dict[str, Any], received_at_s: float) -> None:
        config, log = self._model.config, self._model.log
        if path == "/v1/chat/completions":
            return await self._generate(Chat(body, config.report_cached), path, received_at_s)
        if path == "/completion":
            return await self._generate(Completion(body), path, received_at_s)
        if path.startswith("/log"):
            await self._say([asdict(entry) for entry in log])
            return log.clear() if path.endswith("?clear") else None
        said = {
            "/v1/models": {"object": "list", "data": [
                {"id": NAME, "object": "model", "created": 1, "owned_by": NAME}]},
            # add_special adds nothing: there is no BOS token
            "/tokenize": {"tokens": [ord(c) for c in body.get("content", "")[::CHARS_PER_TOKEN]]},
            "/health": {"status": "ok"},
            "/props": {"default_generation_settings": {"n_ctx": CONTEXT_TOKENS},
                       "total_slots": 1, "model_path": f"{NAME}.gguf", "build_info": NAME},
        }
        missing = {"error": {"message": f"no {path} here"}}
        return await self._say(said.get(path, missing), 200 if path in said else 404)

    async def _generate(self, asked: Chat | Completion, path: str, received_at_s: float) -> None:
        entry, words, steps_s = self._model.plan(asked, path, received_at_s)
        config = self._model.config
        headers = [f"X-Cache-Status: {'HIT' if entry.response_hit else 'MISS'}"
                   ] if config.cache == "response" and config.report_cached else []
        if asked.stream:
            self._head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked",
                       *headers)
            self._chunk(asked.opening)
        if isinstance(asked, Completion) and asked.stream and asked.wants_progress:
            for share in PROGRESS_SHARES:
                await until(received_at_s + share * entry.planned_prefill_s)
                self._chunk(asked.progress(entry, share))
        due = received_at_s + entry.planned_prefill_s
        events = [(step_s, asked.piece(word, number), 1)
                  for number, (word, step_s) in enumerate(zip(words, steps_s, strict=True), 1)]
        if entry.response_hit:
            events = [(0.0, b"".join(event for _, event, _ in events), len(events))]
        ready_at_s: list[float] = []
        for step_s, event, count in events:
            await until(due := due + step_s)
            ready_at_s.append(now())
            entry.output_tokens += count
            if asked.stream:
                self._chunk(event)
                await self._writer.drain()
                entry.sent_at_s += [now()] * count
        entry.prefill_s = ready_at_s[0] - received_at_s
        entry.decode_s = ready_at_s[-1] - ready_at_s[0]
        self._model.keep(asked, entry, words)
        entry.complete = True
        if asked.stream:
            self._chunk(asked.closing(entry))
            self._writer.write(b"0\r\n\r\n")
            await self._writer.drain()
        else:
            await self._say(asked.whole(entry, "".join(words)), 200, *headers)

    def _head(self, status: int, *lines: str) -> None:
        self._writer.write("\r\n".join((f"HTTP/1.1 {status} Truth", *lines, "", "")).encode())

    def _chunk(self, data: bytes) -> None:
        if data:  # an empty chunk would end the body
            self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def _say(self, data: Any, status: int = 200, *headers: str) -> None:
        body = json.dumps(data).encode()
        self._head(status, "Content-Type: application/json", f"Content-Length: {len(body)}",
                   *headers)
        self._writer.write(body)
        await self._writer.drain()


async def serve(config: Config) -> None:
    """Serve on a free port, and print its URL, until the parent closes standard input."""
    model = Model(config)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Client(model, cast(DatedReader, reader), writer).serve()

    def end_with_parent() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    server = await asyncio.get_running_loop().create_server(
        lambda: asyncio.StreamReaderProtocol(DatedReader(limit=BODY_LIMIT_BYTES), connected),
        "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    gc.freeze()  # no later collection walks what is there already
    await server.serve_forever()


@dataclass(frozen=True, slots=True)
class Truth:
    """A truth server that runs; its OpenAI-compatible API is at url + "/v1"."""

    url: str

    def log(self, *, clear: bool = False) -> list[dict[str, Any]]:
        """One dict of Entry's fields for each request answered, in order; `clear` empties it."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{self.url}/log{'?clear' if clear else ''}", timeout=60) as response:
            return cast(list[dict[str, Any]], json.load(response))


@contextlib.contextmanager
def truth(**config: Any) -> Iterator[Truth]:
    """A truth server with this Config, in a process of its own, as long as the context lasts."""
    checked = json.dumps(asdict(Config(**config)))
    with subprocess.Popen([sys.executable, __file__, "--config", checked], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          start_new_session=True) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            url = child.stdout.readline().strip()
            assert url, "the truth server did not start; what it says is above"
            yield Truth(url)
        finally:
            child.stdin.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--config", default="{}", help="Config's fields, as a JSON object")
    asyncio.run(serve(Config(**json.loads(options.parse_args().config))))
