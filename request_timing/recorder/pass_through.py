"""The HTTP of `--record`: every request passes to the upstream, every answer back, as they are.

aiohttp is both the server and the client: one parser in C on either side, raw bytes where
decompression is off, and a handler that is cancelled when its client hangs up. Each read of the
answer is written on at once, before the next one is awaited.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from request_timing.errors import UserError, one_line
from request_timing.prompts.bodies import RECORDED
from request_timing.recorder.redaction import NotRecorded, masked, record_line, secrets_of
from request_timing.servers.urls import is_loopback

# Called with the line of a recorded body, returns how many there are now; raises OSError where it
# cannot be written.
Keep = Callable[[bytes], int]
Say = Callable[[str], None]

# RFC 9110, 7.6.1: for one connection alone, and so not passed on.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
              "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
CONNECT_TIMEOUT_S = 30.0
# Servers close an idle connection after 5 s or more (uvicorn, cpp-httplib, Node): let go before
# they do, since a POST that meets a connection being closed must not be sent twice.
IDLE_S = 4.0
STOP_S = 0.1
READ_BYTES = 1 << 20  # a prompt of 1 MB takes 1 ms less than in the 64 KB that are usual
HEAD_BYTES = 1 << 16  # a line of the head may be so long: some keys are tokens of many kilobytes


class Failed(NamedTuple):
    """Why there is no answer of the upstream's: for the client, and for the person."""

    status: int
    code: str
    message: str


def upstream_target(base_path: str, target: str) -> str:
    """The path and query to ask the upstream for.

    The client's base URL may hold all of the upstream's base path, its end or nothing of it: with
    a base path of /backend/v1, /backend/v1/models, /v1/models and /models are all one.
    """
    path, mark, query = target.partition("?")
    base, asked = base_path.strip("/").split("/"), path.removeprefix("/").split("/")
    if base == [""]:
        return target
    shared = next((n for n in range(min(len(base), len(asked)), 0, -1)
                   if base[-n:] == asked[:n]), 0)
    return "/" + "/".join([*base[:len(base) - shared], *asked]) + mark + query


def passed_on(headers: MultiMapping[str], raw: tuple[tuple[bytes, bytes], ...],
              *also_dropped: str) -> CIMultiDict[str]:
    """The end-to-end headers of a message, in their order and with their case."""
    named = {name.strip().lower() for value in headers.getall("Connection", ())
             for name in value.split(",")}
    dropped = HOP_BY_HOP | named | set(also_dropped)
    return CIMultiDict((name, value) for name, value in
                       ((_text(name), _text(value)) for name, value in raw)
                       if name.lower() not in dropped)


def _text(value: bytes) -> str:
    """A header's text; aiohttp writes UTF-8, so what is none passes as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def proxy_for(upstream: SplitResult) -> str | None:
    """The environment's proxy for this upstream; none for this machine's own.

    Raises UserError for a kind of proxy that aiohttp does not speak.
    """
    host = upstream.hostname or ""
    known = getproxies()
    proxy = known.get(upstream.scheme) or known.get("all")
    if not proxy or is_loopback(host) or proxy_bypass(host):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise UserError(
            f"expected an http proxy in the environment, found {proxy.split('://')[0]}; "
            f"unset it, or add {host} to NO_PROXY"
        )
    return proxy


def _trusted() -> ssl.SSLContext:
    """The system's certificates, and certifi's where the system may have none (macOS, Windows)."""
    context = ssl.create_default_context()
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & set(os.environ):
        try:
            import certifi
        except ModuleNotFoundError:
            pass
        else:
            context.load_verify_locations(certifi.where())
    return context


class PassThrough:
    """One upstream, its pool of connections, and the server in front of it."""

    def __init__(self, upstream: SplitResult, *, say: Say, key: str | None) -> None:
        self._upstream = upstream
        self._origin = f"{upstream.scheme}://{upstream.netloc}"
        self._say = say
        self._keep: Keep | None = None
        self._kept: set[int] = set()  # hashes of the bodies
        self._own_secrets = secrets_of([("key", key or "")])
        self._proxy = proxy_for(upstream)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    async def start(self, port: int, *, keep: Keep) -> int:
        """Serve on 127.0.0.1, and return the port (0 takes a free one). Raises OSError."""
        self._keep = keep
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=IDLE_S,
                ssl=_trusted() if self._upstream.scheme == "https" else True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            max_line_size=HEAD_BYTES, max_field_size=HEAD_BYTES,
        )
        quiet = logging.Logger("pass_through")  # a client that breaks off is no news
        quiet.addHandler(logging.NullHandler())
        server = web.Server(
            self._handle, handler_cancellation=True, auto_decompress=False, access_log=None,
            logger=quiet, read_bufsize=READ_BYTES, max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES)
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Cut what is under way, and close everything."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        secrets = self._own_secrets | secrets_of([*request.headers.items(), *parse_qsl(query)])
        what = one_line(masked(f"{request.method} {path}", secrets))
        if not request.raw_path.startswith("/"):
            return self._refused(what, secrets, Failed(
                400, "not_a_forward_proxy", "this is one upstream's stand-in, no forward proxy: "
                "make it the base URL"))
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return self._refused(what, secrets, Failed(
                501, "no_websocket", "WebSocket is not passed on; use HTTP"))
        try:
            answer = await self._ask(request, what, secrets)
        except web.RequestPayloadError:
            return self._refused(what, secrets, Failed(
                400, "broken_request", "the request's body is broken"))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._refused(what, secrets, Failed(
                502, "upstream_failed", f"{self._origin} {_why(error)}"))
        async with answer:
            return await self._pass_back(request, answer, what)

    async def _ask(self, request: web.BaseRequest, what: str, secrets: Collection[str]
                   ) -> aiohttp.ClientResponse:
        """The upstream's answer, its head read; the body goes up as it comes in."""
        assert self._session is not None
        path = request.raw_path.partition("?")[0].rstrip("/")
        records = request.method == "POST" and path.endswith(RECORDED)
        expects = request.headers.get("Expect", "").lower() == "100-continue"
        # What the SDKs of OpenAI and Anthropic say of a request that they send once more.
        retry = request.headers.get("X-Stainless-Retry-Count", "0") != "0"
        broken: list[Exception] = []

        async def body() -> AsyncIterator[bytes]:
            kept: list[bytes] = []
            if expects:
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0  # no part of the answer yet
            try:
                async for data in request.content.iter_any():
                    if records:
                        kept.append(data)
                    yield data
            except web.RequestPayloadError as error:
                broken.append(error)
                raise
            if records:
                # In the loop's next round: the last bytes are with the upstream first.
                asyncio.get_running_loop().call_soon(
                    self._record, b"".join(kept), what, secrets, retry)

        try:
            return await self._session.request(
                request.method,
                URL(self._origin + upstream_target(self._upstream.path, request.raw_path),
                    encoded=True),
                headers=passed_on(request.headers, request.raw_headers, "host",
                                  *(["expect"] if expects else [])),
                data=body() if request.can_read_body else None,
                allow_redirects=False, proxy=self._proxy)
        except aiohttp.ClientError:
            if broken:
                raise broken[0] from None
            raise

    async def _pass_back(self, request: web.BaseRequest, answer: aiohttp.ClientResponse, what: str
                         ) -> web.StreamResponse:
        """The answer's head, and then each read of its body as it comes."""
        response = web.StreamResponse(
            status=answer.status, reason=answer.reason,
            headers=passed_on(answer.headers, answer.raw_headers))
        try:
            await response.prepare(request)
        except ConnectionError:
            return response  # the client has left
        try:
            async for data, _ in answer.content.iter_chunks():
                try:
                    if data:
                        await response.write(data)
                except ConnectionError:
                    return response
        except (aiohttp.ClientError, OSError) as error:
            # Broken off there, so broken off here: no proper end that the upstream did not send.
            self._say(f"{what}: {self._origin} {_why(error)} in the middle of its answer")
            if request.transport is not None:
                request.transport.close()
        return response

    def _record(self, body: bytes, what: str, secrets: Collection[str], retry: bool) -> None:
        assert self._keep is not None
        if retry and hash(body) in self._kept:  # a turn of its own it is not
            self._say(f"{what}: a retry of a recorded request, not recorded again")
            return
        try:
            line = record_line(body, secrets)
            number = self._keep(line.data)
        except NotRecorded as reason:
            self._say(f"{what}: passed on, not recorded: {reason}")
        except OSError as error:
            self._say(f"{what}: passed on, not recorded: cannot be written ({error.strerror})")
        else:
            self._kept.add(hash(body))
            self._say(f"{number}: {what}, {len(body):,} bytes"
                      + (", a key in it replaced by ***" if line.had_key else ""))

    def _refused(self, what: str, secrets: Collection[str], failed: Failed) -> web.Response:
        """An error as OpenAI's API words it, and one line for the person."""
        message = one_line(masked(failed.message, secrets))
        self._say(f"{what}: answered {failed.status}: {message}")
        return web.json_response(status=failed.status, data={"error": {
            "message": message, "type": "recorder_error", "param": None, "code": failed.code}})


def _why(error: BaseException) -> str:
    """What went wrong at the upstream; never the URL, which may hold a key."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"has a certificate that is not trusted ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"is behind a proxy, which answered {error.status}"
    if isinstance(error, TimeoutError):
        return "did not take the connection in time"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"answered with something that is no HTTP ({error.message})"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "broke off"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be reached ({error.strerror})"
    return f"failed ({type(error).__name__})"
