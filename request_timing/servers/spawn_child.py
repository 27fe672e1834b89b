"""The program that `spawn.py` runs: a llama-server that ends when its standard input closes.

Run by its path, so it imports the standard library, and xllamacpp where that serves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

PORT_CHECK_S = 0.5
URL_MARK = "listening on "


def _serve_xllamacpp(model: str, context_tokens: int, slot_folder: str) -> None:
    """Serve in this process until standard input closes."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {Path(model).stem}  # a set: a model may have several names
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # a free one
    params.n_ctx = context_tokens
    params.n_parallel = 1
    params.slot_save_path = slot_folder
    threads = _usable_cpus()
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = threads
        pool.poll = 0  # spinning threads would take the cores from the measuring process
    server = xllamacpp.Server(params)
    print(f"{URL_MARK}{server.listening_address}", flush=True)
    _wait_for_parent()
    os._exit(0)  # a server in mid-prefill would not let the interpreter end


def _serve_binary(argv: list[str]) -> None:
    """Run a llama-server until standard input closes, or it ends by itself.

    It listens at once and answers 503 while it loads, so its URL is told straight away.
    """
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    host, port = (argv[argv.index(flag) + 1] for flag in ("--host", "--port"))

    def stop() -> None:
        _wait_for_parent()
        server.kill()

    threading.Thread(target=stop, daemon=True).start()
    if _listens(server, host, int(port)):
        print(f"{URL_MARK}http://{host}:{port}", flush=True)
    sys.exit(server.wait())


def _listens(server: subprocess.Popen[bytes], host: str, port: int) -> bool:
    """Whether the server came to listen before it ended."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 0.5):
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(PORT_CHECK_S)  # it could not bind: somebody else listens there
                return False
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
            return False


def _usable_cpus() -> int:
    """Processors this process may use; llama.cpp by itself counts the machine's."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _wait_for_parent() -> None:
    while os.read(0, 1024):
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[1] == "xllamacpp":
        _serve_xllamacpp(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        _serve_binary(sys.argv[1:])
