"""What the package asks for is what requirements*.txt and the scripts' own headers ask for."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from conftest import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("plot", "report", "record")


def required(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines()
            if line and not line.startswith("#")]


def test_the_dependencies_are_requirements_txt_and_the_header_of_api_timing() -> None:
    assert PROJECT["dependencies"] == required("requirements.txt")
    header = (ROOT / "api_timing.py").read_text().partition("# ///\n\"\"\"")[0]
    assert all(f'#     "{line}",' in header for line in PROJECT["dependencies"])


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_its_requirements_file(extra: str) -> None:
    assert PROJECT["optional-dependencies"][extra] == required(f"requirements-{extra}.txt")


def test_the_extras_without_a_file_of_their_own() -> None:
    assert PROJECT["optional-dependencies"]["demo"][0] in required("requirements-demo.txt")
    assert PROJECT["optional-dependencies"]["prices"][0] in required("requirements-dev.txt")
