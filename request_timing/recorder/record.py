"""`--record PORT`: stands on loopback in front of a server or a provider, and keeps every prompt.

An agent whose base URL is changed to this address works as before, and each request body that
asks for a completion becomes a line of a .jsonl, as it was sent, with its keys removed, ready for
--replay and --explain. The HTTP is in pass_through.py, what a line is in redaction.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from urllib.parse import SplitResult, urlsplit

from request_timing.errors import UserError, one_line
from request_timing.records.journal import numbered
from request_timing.servers.urls import is_loopback

LAST_PORT = 65535
PRIVATE = 0o600  # prompts hold what a person's files hold


class Recording:
    """The .jsonl that grows: a whole line for each body, in the system's hands when `add` returns.

    Never over an existing file; with `may_rename`, the next free name is used. Raises UserError
    where it cannot be made.
    """

    def __init__(self, out: Path, *, may_rename: bool = False) -> None:
        self.lines = 0
        self._end_bytes = 0
        for name in numbered(out):
            try:
                self._file = open(  # noqa: SIM115 (closed by close)
                    name, "xb", buffering=0,
                    opener=lambda path, flags: os.open(path, flags, PRIVATE))
            except FileExistsError:
                if may_rename:
                    continue
                raise UserError(f"{name} exists, and a recording is never overwritten: give "
                                "another name, or move the file") from None
            except OSError as error:
                raise UserError(f"{name}: cannot write there ({error.strerror}); give a path in a "
                                "folder that exists and is writable") from None
            self.out = name
            return

    def add(self, line: bytes) -> int:
        """Append the line, and return how many there are now.

        Raises OSError where it does not fit; nothing of it is left then.
        """
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end_bytes)
                self._file.seek(self._end_bytes)
            raise
        self._end_bytes += written
        self.lines += 1
        return self.lines

    def close(self) -> None:
        """Close the file, and leave none where nothing was recorded."""
        self._file.close()
        if not self.lines:
            self.out.unlink(missing_ok=True)


def serve(upstream_url: str, port: int, out: Path, *, say: Callable[[str], None],
          key: str | None, may_rename: bool = False) -> None:
    """Stand on 127.0.0.1:`port` for `upstream_url`, and record to `out`, until a stop signal.

    port: 0 takes a free one, which is said; say: called with each line for the person; key: a
    secret that must not be written, beside those that the clients send. Raises UserError, before
    the first request, where the URL, the port or the file will not do.
    """
    upstream = _checked(upstream_url, port)
    pass_through = _import_pass_through()
    asyncio.run(_serve(pass_through, upstream, port,
                       lambda: Recording(out, may_rename=may_rename), say, key))


async def _serve(pass_through: ModuleType, upstream: SplitResult, port: int,
                 new_recording: Callable[[], Recording], say: Callable[[str], None],
                 key: str | None) -> None:
    stopped = _stop_signals()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: say("a defect of this tool, please report it: " + one_line(
            context.get("exception") or context["message"])))
    through = pass_through.PassThrough(upstream, say=say, key=key)
    recording = new_recording()
    try:
        try:
            port = await through.start(port, keep=recording.add)
        except OSError as error:
            reason = "one in use" if error.errno == errno.EADDRINUSE else f"{error.strerror}"
            raise UserError(f"expected a free port on 127.0.0.1, found {port}: {reason}; give "
                          "another") from None
        say(f"recording to {recording.out}; give your agent the base URL http://127.0.0.1:{port}"
            f"{upstream.path} instead of {upstream.geturl()}; Ctrl-C ends it")
        await stopped.wait()
    finally:
        await through.stop()
        recording.close()
    say(f"{recording.lines:,} request{'s' * (recording.lines != 1)} recorded: {recording.out}"
        if recording.lines else "nothing was recorded, and nothing was written")


def _stop_signals() -> asyncio.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, stopped.set)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    return stopped


def _checked(url: str, port: int) -> SplitResult:
    """The parts of the upstream's base URL; UserError where it is none, or this very port."""
    if not 0 <= port <= LAST_PORT:
        raise UserError(f"expected a port from 1 to {LAST_PORT}, found {port}")
    try:
        parts = urlsplit(url.rstrip("/").removesuffix("/chat/completions"))
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or "@" in parts.netloc:
        raise UserError("expected the upstream's base URL, such as http://127.0.0.1:8080/v1, found "
                      "something else; begin it with http:// or https://, and leave off any query "
                      "or password (the agent sends its key itself)")
    if port and port == parts.port and is_loopback(parts.hostname or ""):
        raise UserError(f"the upstream is at port {port} of this machine, where the recorder is to "
                      "stand; give the recorder another port")
    return parts


def _import_pass_through() -> ModuleType:
    try:
        from request_timing.recorder import pass_through
    except ModuleNotFoundError as missing:
        raise UserError(f"expected the package aiohttp, found no {missing.name}; run: "
                      "python3 -m pip install -r requirements-record.txt") from None
    return pass_through
