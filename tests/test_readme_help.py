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
