"""depth, workload, restore and fit as commands against real llama-servers of the tiny models.

Everything is proved by the server's own counts: a hit in the slot, one from host memory, one from
disk and a recomputation are told apart by what was reused, and never by a time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Outcome, assert_one_line, run_script
from request_timing.experiments.lab import COLD_TOKENS
from request_timing.experiments.restore import SLOT_FILE
from truth_server import truth

API, LOCAL = "api_timing.py", "local_cache.py"
SIZES = ("--lengths", "400,800,1600", "--context", "2000", "--repeats", "2")

# A llama-server with what no flag of ours sets: slots, host memory, a place for slots.
SERVER = """
import os, sys, xllamacpp
model, context, slots, ram, folder = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx, params.n_parallel, params.cache_ram_mib = int(context), int(slots), int(ram)
params.slot_save_path = folder
for pool in (params.cpuparams, params.cpuparams_batch):
    pool.n_threads, pool.poll = 1, 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
os.read(0, 1)
os._exit(0)
"""


@contextlib.contextmanager
def server(model: Path, *, context: int = 8192, slots: int = 1, ram_mib: int = 8192,
           folder: str = "") -> Iterator[str]:
    """The URL of a llama-server of these settings."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model), str(context), str(slots), str(ram_mib), folder],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            url = child.stdout.readline().strip()
            assert url
            yield url
        finally:
            child.stdin.close()


def finding(outcome: Outcome, experiment: str, arm: str) -> dict[str, Any]:
    assert outcome.record is not None, outcome.err
    (found,) = (f for f in outcome.record["findings"]
                if (f["experiment"], f["arm"]) == (experiment, arm))
    return dict(found)


def counts(outcome: Outcome, way: str) -> list[tuple[int, int]]:
    """(reused, recomputed) of every request of a way."""
    return [(s["server"]["cache_n"], s["server"]["prompt_n"])
            for s in outcome.samples("restore") if s["arm"].startswith(way)]


def test_the_four_ways_back_are_told_apart_by_counts(dense_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    with server(dense_model, folder=f"{folder}{os.sep}") as url:
        outcome = run_script(LOCAL, "--url", url, "--only", "restore", *SIZES, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    samples = outcome.samples("restore")
    whole = {s["arm"].rpartition("/")[2]: s["prompt_tokens"]
             for s in samples if s["arm"].startswith("recompute/")}
    assert len(whole) == 4
    for s in samples:
        way, _, length = s["arm"].rpartition("/")
        if way == "recompute":
            # A token of this model is a byte, and first letters come again after 26 prompts: a
            # prompt may share some with an old one in host memory, and is cold all the same.
            assert s["server"]["cache_n"] <= COLD_TOKENS
        elif way != "other":  # all but the last token, which makes the first of the answer
            assert (s["cached_tokens"], s["server"]["prompt_n"]) == (whole[length] - 1, 1)
        assert (s["restored"] is not None) is (way == "disk")
        if way == "disk":
            assert s["restored"]["tokens"] >= whole[length] and s["restored"]["size_bytes"] > 0
    assert len(counts(outcome, "disk")) == len(counts(outcome, "host")) == 8
    assert [finding(outcome, "restore", w)["code"] for w in ("slot", "host", "disk")] == [
        "restored"] * 3
    # What is left behind is a slot of some letters.
    assert [path.name for path in folder.iterdir()] == [SLOT_FILE]
    assert (folder / SLOT_FILE).stat().st_size < 64 * 1024


def test_a_server_without_host_memory_recomputes(dense_model: Path, tmp_path: Path) -> None:
    with server(dense_model, ram_mib=0) as url:
        outcome = run_script(LOCAL, "--url", url, "--only", "restore", *SIZES, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert all(reused == 0 for reused, _ in counts(outcome, "host"))
    assert all(recomputed == 1 for _, recomputed in counts(outcome, "slot"))
    assert counts(outcome, "disk") == []
    assert [finding(outcome, "restore", w)["code"] for w in ("slot", "host", "disk")] == [
        "restored", "not_restored", "not_offered"]
    assert "start it with --slot-save-path" in outcome.out.replace("\n ", "")


def test_disk_alone_brings_a_prompt_back(dense_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    with server(dense_model, ram_mib=0, folder=f"{folder}{os.sep}") as url:
        outcome = run_script(LOCAL, "--url", url, "--only", "restore", *SIZES, cwd=tmp_path)
    assert all(reused == 0 for reused, _ in counts(outcome, "host"))
    assert [recomputed for _, recomputed in counts(outcome, "disk")] == [1] * 8


def test_eight_slots_are_all_taken_before_a_prompt_is_asked_for_again(
    dense_model: Path, tmp_path: Path
) -> None:
    with server(dense_model, context=32_768, slots=8, ram_mib=0) as url:
        outcome = run_script(LOCAL, "--url", url, "--only", "restore,depth", *SIZES, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    before: dict[str, Any] = {}
    others: list[int] = []
    for s in outcome.samples("restore"):
        slot = s["server"]["id_slot"]
        if s["arm"].startswith("other/"):
            others.append(slot)
        elif s["arm"].startswith("host/"):
            # The slot of the prompt is the last that is taken, and then nothing of it is left.
            assert sorted(others) == list(range(8))
            assert others[-1] == before["server"]["id_slot"]
            assert (s["server"]["cache_n"], s["notes"]) == (0, [])
            others = []
        before = s if not s["arm"].startswith("other/") else before
    assert all(finding(outcome, "depth", "decode")["evidence"]["warm"].values())


def test_depth_computes_its_block_alone_and_workload_hits_in_full(
    dense_server: str, tmp_path: Path
) -> None:
    outcome = run_script(LOCAL, "--url", dense_server, "--only", "workload,fit", *SIZES,
                         "--shape", "1000x10,100000x9", cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    deep = outcome.samples("depth")
    before: dict[str, dict[str, Any]] = {}
    for s in deep:
        depth = s["arm"].rpartition("/")[2]
        if s["arm"].startswith("prime/") or depth == "0":
            assert s["server"]["cache_n"] <= 1
        else:  # the last token of the answer before was written and never read
            held = before[depth]["prompt_tokens"] + before[depth]["output_tokens"]
            assert s["server"]["cache_n"] == held - 1
        before[depth] = s
    for s in outcome.samples("workload"):
        cached = s["prompt_tokens"] - 1 if s["arm"].startswith("hit/") else 0
        assert s["server"]["cache_n"] in (cached, cached + (cached == 0))
    for arm in ("1000x10", "100000x9"):
        assert finding(outcome, "workload", arm)["code"] == "predicted"
    assert finding(outcome, "workload", "100000x9")["evidence"]["extrapolated"] is True
    assert max(map(len, outcome.out.splitlines())) <= 80
    # A saved run answers for other shapes and a traffic mix.
    mix = tmp_path / "mix.csv"
    mix.write_text("1500,1200,20\n400,0,100\n")
    again = run_script(LOCAL, "--show", str(tmp_path / "run.json"), "--shape", "700x7",
                       "--traffic", str(mix), cwd=tmp_path, save=False)
    assert again.status == 0, again.err
    assert "workload, 700x7: PREDICTED" in again.out
    assert "2 requests: 1,900 tokens in, 1,200 of them" in again.out.replace("\n  ", " ")


def test_fit_alone_runs_the_sweep_and_prints_it(dense_server: str, tmp_path: Path) -> None:
    outcome = run_script(LOCAL, "--url", dense_server, "--only", "fit", *SIZES, cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert outcome.record is not None
    assert {s["experiment"] for s in outcome.record["samples"]} == {"length"}
    assert "fit: TTFT of cold prompts" in outcome.out and "fit, prefill: " in outcome.out


def test_a_small_context_leaves_out_what_does_not_fit(dense_model: Path, tmp_path: Path) -> None:
    with server(dense_model, context=2048) as url:
        outcome = run_script(LOCAL, "--url", url, "--only",
                             "length,output,cache,depth,workload,restore", "--turns", "2",
                             "--repeats", "1", "--outputs", "8", cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    asked = {s["experiment"] for s in (outcome.record or {})["samples"]}
    assert asked == {"length", "output", "depth", "restore"}
    for left_out in ("cache left out", "depth 48,000 left out", "restore 17,000 left out",
                     "workload 2,000 in, 4,000 out left out"):
        assert left_out in outcome.err
    assert finding(outcome, "depth", "decode")["code"] == "undecided"


def test_the_embedded_server_offers_every_way(dense_model: Path, tmp_path: Path) -> None:
    outcome = run_script(LOCAL, "--serve", str(dense_model), "--only", "restore", *SIZES,
                         cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert [finding(outcome, "restore", w)["code"] for w in ("slot", "host", "disk")] == [
        "restored"] * 3


def test_an_api_of_the_same_server(dense_server: str, tmp_path: Path) -> None:
    outcome = run_script(API, "--base-url", f"{dense_server}/v1", "--only", "workload,restore",
                         *SIZES, "--pauses", "1,2", cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    assert all(finding(outcome, "depth", "decode")["evidence"]["warm"].values())
    assert finding(outcome, "restore", "pause")["code"] == "lives"
    rows = finding(outcome, "restore", "pause")["evidence"]["pauses"]
    assert [row["asked_s"] for row in rows] == [0, 1, 2]
    assert all(row["really_s"] >= row["asked_s"] - 0.01 for row in rows)


@pytest.mark.parametrize(("config", "status", "words"), [
    ({"cache": "off"}, 0, ("workload, prediction: NO HIT", "restore, pause: GONE",
                           "Not proved warm")),
    ({"cache": "response"}, 1, ("response_cache: a whole answer", "restore, pause: NOT KNOWN"))])
def test_servers_that_reuse_nothing_or_everything(
    config: dict[str, Any], status: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    with truth(prefill_s_per_token=1e-6, decode_s_per_token=1e-4, **config) as known:
        outcome = run_script(API, "--base-url", f"{known.url}/v1", "--only",
                             "depth,workload,restore", *SIZES, "--pauses", "1", cwd=tmp_path)
    assert outcome.status == status, outcome.err
    for said in words:
        assert said in outcome.out, outcome.out


def test_flags_of_what_is_left_out(tmp_path: Path) -> None:
    for flags, said in ((("--shape", "10x10"), "workload answers them"),
                        (("--traffic", "x.csv"), "workload answers them"),
                        (("--pauses", "10"), "restore waits for them")):
        assert_one_line(run_script(LOCAL, *flags, cwd=tmp_path, save=False), 2, said)
    assert_one_line(
        run_script(LOCAL, "--only", "workload", "--traffic", "none.csv", cwd=tmp_path, save=False),
        2, "--traffic none.csv", "expected a CSV file")
