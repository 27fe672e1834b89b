"""The README's help is the scripts' own, and `uv run` finds what requirements.txt says."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT, environment, run_script

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- help: (\S+) -->\n```\n(.*?)```\n<!-- /help -->", README, re.S)
SCRIPTS = ("local_cache.py", "api_timing.py")
# argparse wraps and groups otherwise from release to release; the words are the same in all.
MADE_BY = (3, 11)
# As PEP 723 gives it.
METADATA = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def test_the_help_of_both_scripts_is_shown() -> None:
    assert [name for name, _ in SHOWN] == list(SCRIPTS)
    assert README.count("<!-- help:") == len(SHOWN)


@pytest.mark.parametrize(("script", "shown"), SHOWN)
def test_the_help_shown_is_the_real_one(tmp_path: Path, script: str, shown: str) -> None:
    done = run_script(script, "--help", cwd=tmp_path, save=False, env=environment(COLUMNS="80"))
    assert done.status == 0
    assert shown.split() == done.out.split()
    if sys.version_info[:2] == MADE_BY:
        assert shown == done.out
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_inline_metadata_is_requirements_txt(script: str) -> None:
    found = [match for match in METADATA.finditer((ROOT / script).read_text(encoding="utf-8"))
             if match["type"] == "script"]
    assert len(found) == 1  # more is an error, says the PEP
    lines = found[0]["content"].splitlines()
    metadata = tomllib.loads("\n".join(line[2:] if line.startswith("# ") else line[1:]
                                       for line in lines))
    required = [line for line in (ROOT / "requirements.txt").read_text().splitlines()
                if line and not line.startswith("#")]
    assert required
    assert metadata == {"requires-python": ">=3.11",
                        "dependencies": required if script == "api_timing.py" else []}


COMPLETIONS = [
    ("local_cache.py --what", {"--what-if"}),
    ("local_cache.py --price", {"--price-in", "--price-cached", "--price-out"}),
    ("api_timing.py --provider open", {"openai", "openrouter"}),
    ("request-timing plot --o", {"--out"}), ("request-timing report --o", {"--out"}),
    ("request-timing compare --he", {"--help"}), ("request-timing ex", {"explain"}),
]


@pytest.mark.parametrize(("line", "expected"), COMPLETIONS)
def test_a_shell_completes_the_flags(tmp_path: Path, line: str, expected: set[str]) -> None:
    """As argcomplete's shell function calls a script that it has found the mark in."""
    script = line.split()[0]
    file = ROOT / "request_timing" / "__main__.py" if script == "request-timing" else ROOT / script
    assert "PYTHON_ARGCOMPLETE_OK" in file.read_text(encoding="utf-8")[:1024]
    answer = tmp_path / "completions"
    command = "show" if script == "request-timing" else script
    done = run_script(command, cwd=tmp_path, save=False, env=environment(
        _ARGCOMPLETE="1", _ARGCOMPLETE_IFS="\n", _ARGCOMPLETE_STDOUT_FILENAME=str(answer),
        COMP_LINE=line, COMP_POINT=str(len(line)), COMP_TYPE="9"))
    assert done.out == "", done
    assert {word.strip() for word in answer.read_text().splitlines()} == expected
