"""Traffic files as people write them, and the line that says what is wrong with one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from request_timing.errors import UserError
from request_timing.findings.rates import load
from request_timing.findings.traffic import read_traffic


def read(folder: Path, text: str | bytes) -> dict[str, object]:
    path = folder / "mix.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_traffic(str(path))


def test_the_sums_of_two_requests(tmp_path: Path) -> None:
    told = read(tmp_path, "100,60,5\n10,10,1\n")
    assert told == {
        "file": "mix.csv", "requests": 2, "tokens": {"prompt": 110, "cached": 70, "output": 6},
        "cold": asdict(load(100, 0, 5) + load(10, 0, 1)),
        "warm": asdict(load(100, 60, 5) + load(10, 10, 1)),
        "full": asdict(load(100, 100, 5) + load(10, 10, 1))}


@pytest.mark.parametrize("text", [
    "100;60;5", "100\t60\t5", " 100 , 60 , 5 \r\n", "# mine\n\n100,60,5\n", "\ufeff100,60,5",
    "prompt,cached,output\n100,60,5", "Output,Model,Cached,Prompt\n5,gpt,60,100",
    '"100","60","5"'])
def test_the_same_request_in_many_forms(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text)["cold"] == asdict(load(100, 0, 5))


@pytest.mark.parametrize(("text", "said"), [
    ("1,2", "line 1"), ("100,60,5\n100,x,5", "line 2"), ("100,101,5", "cached no more"),
    ("0,0,5", "line 1"), ("100,60,0", "line 1"), ("1.5,0,5", "line 1"), ("-1,0,5", "line 1"),
    ("in,out\n1,2", "line 1"), ("", "found none"), ("# all comments\n", "found none"),
    (b"\xff\xfe1\x00", "UTF-8"), ("prompt,cached,output", "found none")])
def test_what_is_no_traffic_is_one_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, text)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for name in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(UserError, match="--traffic"):
            read_traffic(str(name))
