"""The rooms of the package: imports go down, never up, and a module is one concept."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from conftest import ROOT

PACKAGE = "request_timing"
# Lowest first. The modules named together in the first row are files, the others are folders.
ROOMS = ("errors", "formats", "untrusted", "stats", "records", "prompts", "servers", "findings",
         "explain", "repair", "costs", "experiments", "report", "pictures", "recorder", "cli",
         "__main__")
MEASURING, PRESENTING = {"servers", "experiments"}, {"report", "pictures"}
MOST_LINES = 500
FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path
         for path in sorted((ROOT / PACKAGE).rglob("*.py"))}
MODULES = [name for name in FILES if not name.endswith("__init__")]


def imported(name: str) -> Iterator[str]:
    """The modules of the package that a module imports, wherever in it the import is."""
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in FILES else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith(PACKAGE))


def room(module: str) -> str:
    """errors of request_timing.errors, stats of request_timing.stats.ranks."""
    return module.split(".")[1]


def test_every_module_is_in_a_room() -> None:
    assert {room(name) for name in MODULES} == set(ROOMS)


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    own = room(name)
    others = {other for other in imported(name) if other != PACKAGE}
    assert [o for o in others if ROOMS.index(room(o)) > ROOMS.index(own)] == []
    for one, other in ((MEASURING, PRESENTING), (PRESENTING, MEASURING)):
        assert own not in one or [o for o in others if room(o) in other] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {name: {o for o in imported(name) if o in FILES} - {name} for name in MODULES}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == []


@pytest.mark.parametrize("name", FILES)
def test_a_module_is_not_long_and_an_init_is_empty(name: str) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert not name.endswith("__init__") or name == f"{PACKAGE}.__init__" or text == ""
