"""Real gateways on loopback for the tests: nginx (Debian) and LiteLLM's proxy (PyPI).

Each is a context manager that starts one on a free port with its files in a temporary folder,
and stops it whatever happens: the gateway's parent is this file run as a program, which ends it
when its standard input closes, and that it does with the tests, even where they are killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LITELLM = ROOT / ".venv-gateway" / "bin" / "litellm"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
NOTHING_IS_SKIPPED = "CI"  # the variable under which a missing gateway is a failure
START_LIMIT_S, POLL_S = 120, 0.1

# One process: killed, it leaves no worker behind that goes on listening.
NGINX_CONF = """
daemon off;
master_process off;
pid {folder}/pid;
events {{ }}
http {{
    log_format routes "$uri $upstream_addr";
    access_log {folder}/access.log routes;
    client_body_temp_path {folder}/client_body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream models {{ {routing} {servers} }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 64m;
        location / {{
            proxy_pass http://models;
            {directives}
        }}
    }}
}}
"""

# model_name: what a client asks for; model: "openai/" and what the upstream calls it.
LITELLM_CONF = """
model_list:{models}
litellm_settings:
  telemetry: false
  num_retries: 0
"""
LITELLM_MODEL = """
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: {upstream}/v1
      api_key: none"""


class Gateway(NamedTuple):
    """A gateway that runs, the key that it wants, if any, and nginx's log of its requests."""

    url: str
    key: str | None = None
    access_log: Path | None = None

    def routes(self, path: str) -> list[str]:
        """Which upstream, as host:port, answered each request of this path, in order."""
        assert self.access_log is not None
        lines = (line.split() for line in self.access_log.read_text().splitlines())
        return [upstream for uri, upstream in lines if uri == path]


def missing(name: str) -> str | None:
    """Why this gateway cannot be started here, and what to do; None where it can."""
    if name == "nginx" and NGINX is None:
        return "expected nginx, found none; run: apt-get install nginx"
    if name == "litellm" and not LITELLM.exists():
        return f"expected LiteLLM in {LITELLM.parents[2].name}, found none; run: make gateway"
    return None


@contextlib.contextmanager
def nginx(*upstreams: str, directives: str = "", routing: str = "") -> Iterator[Gateway]:
    """nginx in front of these URLs, in turn where there are several and `routing` is empty.

    `directives` go into the location, `routing` into the upstream block; all else is nginx's
    default, but for a body limit that lets long prompts through.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        conf = Path(folder, "nginx.conf")
        servers = " ".join(f"server {url.removeprefix('http://')};" for url in upstreams)
        conf.write_text(NGINX_CONF.format(folder=folder, servers=servers, port=port,
                                          directives=directives, routing=routing))
        command = [str(NGINX), "-e", f"{folder}/error.log", "-p", folder, "-c", str(conf)]
        with _running(command, f"http://127.0.0.1:{port}/", dict(os.environ)) as url:
            yield Gateway(url, access_log=Path(folder, "access.log"))


@contextlib.contextmanager
def litellm(**upstreams: str) -> Iterator[Gateway]:
    """LiteLLM's proxy in front of OpenAI-compatible servers, with no database, offline.

    upstreams: the URL of each model's server. It refuses to start without a key; this one is made
    up for it.
    """
    with tempfile.TemporaryDirectory() as folder:
        port, key = free_port(), f"sk-{secrets.token_hex(16)}"
        conf = Path(folder, "litellm.yaml")
        models = (LITELLM_MODEL.format(model=name, upstream=url) for name, url in upstreams.items())
        conf.write_text(LITELLM_CONF.format(models="".join(models)))
        command = [str(LITELLM), "--config", str(conf), "--host", "127.0.0.1",
                   "--port", str(port), "--telemetry", "False"]
        # Costs of models come with the package; without this they are fetched at each start.
        env = os.environ | {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                            "HOME": folder, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
        with _running(command, f"http://127.0.0.1:{port}/health/liveliness", env) as url:
            yield Gateway(url, key)


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(command: Sequence[str], probe: str, env: dict[str, str]) -> Iterator[str]:
    """The URL of a gateway that answers at `probe`; AssertionError where it does not start."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen([sys.executable, __file__, *command], env=env, stdout=log,
                                 stderr=log, stdin=subprocess.PIPE, start_new_session=True)
        assert child.stdin is not None
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not _answers(probe):
                if child.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read().decode(errors="replace")[-2000:]
                    raise AssertionError(f"{Path(command[0]).name} did not start: {said}")
                time.sleep(POLL_S)
            scheme, _, host = probe.split("/")[:3]
            yield f"{scheme}//{host}"
        finally:
            child.stdin.close()
            child.wait()


def _answers(url: str) -> bool:
    """Whether something answers there, if only with an error of its own."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _supervise(command: Sequence[str]) -> int:
    """Run a gateway until standard input closes, or it ends by itself."""
    gateway = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end_with_parent() -> None:
        while os.read(0, 1024):
            pass
        gateway.kill()

    threading.Thread(target=end_with_parent, daemon=True).start()
    return gateway.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(_supervise(sys.argv[1:]))
