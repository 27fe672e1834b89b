"""Headless Chromium over its own pipe: a page opened, measured and photographed.

The DevTools protocol on file descriptors 3 and 4, JSON messages that end with a zero byte, so
that no driver has to be installed. The browser is a child that ends with the context.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no chromium on this machine (Debian: apt-get install chromium)"
END_LIMIT_S = 20


class Browser:
    """One tab. `requests` and `console` are what the page asked for and said since `open`."""

    def __init__(self, to_browser: IO[bytes], from_browser: IO[bytes]) -> None:
        self._to, self._from = to_browser, from_browser
        self._id = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.console: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; raises AssertionError where the browser refuses it."""
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while (answer := self._read()).get("id") != self._id:
            self._note(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser went away"
            data += byte
        message: dict[str, Any] = json.loads(data)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.console.append(json.dumps(params))
            case "Page.loadEventFired":
                self._loaded = True

    def open(self, path: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Load a file at that many CSS pixels, and wait until it is whole."""
        self.requests, self.console, self._loaded = [], [], False
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setScrollbarsHidden", hidden=True)  # they would take of the width
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._note(self._read())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


def _pipe() -> tuple[int, int]:
    """Both ends of a pipe, neither of them at 3 or 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A Chromium with a profile of its own; it ends with the context."""
    assert CHROMIUM is not None, MISSING
    child_reads, we_write = _pipe()
    we_read, child_writes = _pipe()
    # 3 and 4 are the browser's; a shell puts the pipes there.
    command = [
        "bash", "-c", f'exec "$@" 3<&{child_reads} 4>&{child_writes}', "bash", CHROMIUM,
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    child = subprocess.Popen(command, pass_fds=(child_reads, child_writes),
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    os.close(child_reads)
    os.close(child_writes)
    try:
        with os.fdopen(we_write, "wb") as to_browser, os.fdopen(we_read, "rb") as from_browser:
            yield Browser(to_browser, from_browser)
        child.wait(END_LIMIT_S)  # it ends when its pipe is closed
    finally:
        child.kill()
        child.wait()
