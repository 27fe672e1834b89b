"""The README holds: its commands are real, its file tree is whole, its sample is the saved one."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable

import pytest

import api_timing
import local_cache
from conftest import ROOT
from request_timing.cli import saved_files
from request_timing.servers.providers import PROVIDERS

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SHELL_LINES = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S)
               for line in block.splitlines() if line and not line.startswith("#")]
PARSERS: dict[str, Callable[[list[str] | None], argparse.Namespace]] = {
    "local_cache.py": local_cache.parse, "api_timing.py": api_timing.parse,
    **dict.fromkeys(("plot", "compare", "report", "show", "explain"), saved_files.parse)}
SCRIPT_LINES = [line for line in SHELL_LINES
                if any(script in line.split() for script in PARSERS)]
MAKE_LINES = [line for line in SHELL_LINES if line.startswith("make ")]


@pytest.mark.parametrize("line", SCRIPT_LINES)
def test_every_command_line_is_understood(line: str) -> None:
    words = line.replace("uv run", "uv", 1).replace("-m request_timing ", "", 1)
    _, script, *flags = shlex.split(words)
    given = flags if script.endswith(".py") else [script, *flags]
    assert PARSERS[script](given).command[1:] == given


def test_there_are_commands_of_both_scripts_and_of_make() -> None:
    assert all(any(script in line.split() for line in SCRIPT_LINES)
               for script in ("local_cache.py", "api_timing.py", "plot", "compare", "report"))
    assert "make demo" in MAKE_LINES


@pytest.mark.parametrize("target", [*re.findall(r"`make ([a-z-]+)", README), "demo"])
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, re.M)


def test_the_file_tree_names_every_module_and_nothing_else() -> None:
    section = README.split("## Files")[1]
    assert sorted(re.findall(r"^(\w+\.py) ", section, re.M)) == sorted(
        path.name for path in ROOT.glob("*.py"))
    package = ROOT / "request_timing"
    rooms = [path.name + "/" * path.is_dir() for path in package.iterdir()]
    assert sorted(re.findall(r"^  (\w+(?:\.py|/)) ", section, re.M)) == sorted(
        name for name in rooms if not name.startswith(("__init__", "__pycache__")))


def test_every_provider_is_named() -> None:
    assert all(f"`{name}`" in README for name in PROVIDERS)


def test_every_link_into_the_repository_leads_somewhere() -> None:
    links = [target for target in re.findall(r"\]\(([^)#]+)", README) if "://" not in target]
    assert links
    assert [target for target in links if not (ROOT / target).exists()] == []


def test_the_samples_shown_are_the_saved_ones() -> None:
    shown = re.findall(r"<!-- sample: (\S+) -->\n```\n(.*?)```\n<!-- /sample -->", README, re.S)
    assert len(shown) == README.count("<!-- sample:") >= 2
    for name, text in shown:
        assert text == (ROOT / "sample_output" / name).read_text(encoding="utf-8")


def test_the_figures_on_what_caching_can_do_are_those_of_the_saved_run() -> None:
    section = README.split("## What caching can and can't do for you")[1].split("\n## ")[0]
    saved = (ROOT / "sample_output" / "demo_all.txt").read_text(encoding="utf-8")
    cells = [cell.strip() for line in section.splitlines() if line.startswith("| ")
             for cell in line.strip("|").split("|") if re.search(r"\d", cell)]
    assert len(cells) > 70
    assert [cell for cell in cells if cell not in saved] == []
