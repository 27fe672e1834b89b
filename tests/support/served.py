"""A real llama-server with manners of its own: a key, a prefix, several slots, a fixed port.

`spawn.serve` starts what users start; this starts what they meet. Run as a program it serves
until its standard input closes, as `spawn_child.py` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 16_384


@contextlib.contextmanager
def served(model: Path, **manners: Any) -> Iterator[str]:
    """The URL (without any prefix) of a server with these xllamacpp parameters."""
    child = subprocess.Popen(
        [sys.executable, __file__, str(model), json.dumps(manners)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin is not None and child.stdout is not None
    try:
        url = child.stdout.readline().decode().strip()
        assert url, "the server did not start"
        yield url
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def _serve(model: str, manners: dict[str, Any]) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {Path(model).stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads, pool.poll = 1, 0
    for name, value in manners.items():
        setattr(params, name, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
