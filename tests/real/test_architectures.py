"""Four architectures on the real llama-server: what each allows to be reused, exactly.

A token is a byte, so shared prefixes are known to the token. What a server can go back to:

* dense: any token it holds;
* recurrent and hybrid: a state, so only the end of what it holds, or a checkpoint. This build makes
  one 4 tokens before the end of a prompt, and one a batch of 512 before that;
* sliding window: any token whose whole window is still held, else such a checkpoint, less a token.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import tiny_models
from architectures_table import WRITERS, lab_of, lab_settings, side_by_side
from conftest import ROOT
from request_timing.experiments.minimum import LEAST_TOKENS, TAILS, minimum, most_prefix_tokens
from request_timing.experiments.reuse import OUTPUT_TOKENS, ladder, position
from request_timing.findings.measures import of_experiment, recomputed_tokens
from request_timing.findings.minimum import found
from request_timing.findings.reuse import MISSED, rows
from request_timing.findings.verdict import HIT, NO_HIT, PARTIAL
from request_timing.records.names import LADDER, MINIMUM, POSITION
from request_timing.records.sample import Sample
from request_timing.servers import spawn

# Checkpoints of this build, before the end of a prompt, and the cells of a sliding window's cache.
BATCH, LAST = 512, 4
CELLS = tiny_models.SLIDING_WINDOW + BATCH
# The last token of an answer is sampled, and never read.
HELD_OF_ANSWER = OUTPUT_TOKENS - 1
RETURNS = ("two_in_turn", "after_1", "after_2", "after_4")
CONTEXTS = (4000, 8000)  # documents of 1,000 and 2,000 tokens


def allowed(kind: str, *, before: int, shared: int, prompt: int, restored: bool) -> int:
    """Tokens that may be reused of `prompt` tokens, of which `shared` are those of an earlier
    prompt of `before` tokens; restored: that one had left its slot for the host's memory."""
    held, most = before + HELD_OF_ANSWER, prompt - 1
    checkpoints = [n for n in (before - LAST, before - LAST - BATCH) if 0 < n <= min(shared, most)]
    if kind == "dense":
        return min(shared, held, most)
    if kind == "sliding window":
        if shared >= held:
            return before - LAST - 1 if restored else held
        if shared - tiny_models.SLIDING_WINDOW > max(0, held - CELLS):
            return min(shared, most)
        return max((max(1, n - 1) for n in checkpoints), default=0)
    return held if shared >= held else max(checkpoints, default=0)


@dataclass(frozen=True)
class Measured:
    """The samples of one architecture and context."""

    kind: str
    context: int
    samples: list[Sample]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The four models."""
    folder = tmp_path_factory.mktemp("architectures")
    for kind, write in WRITERS.items():
        write(folder / f"{kind.replace(' ', '-')}.gguf")
    return {kind: folder / f"{kind.replace(' ', '-')}.gguf" for kind in WRITERS}


@pytest.fixture(scope="module")
def runs(models: dict[str, Path]) -> dict[str, list[Measured]]:
    """All three experiments on each architecture, at both contexts."""
    measured: dict[str, list[Measured]] = {}
    for kind, model in models.items():
        for context in CONTEXTS:
            samples: list[Sample] = []
            # First letters repeat after 26 cold prompts: a server for each, so that none is shared.
            for experiment in (ladder, position, minimum):
                with spawn.serve(str(model), 32_768) as url:
                    samples += experiment(lab_of(url, context))
            assert [s.error for s in samples if s.error] == []
            measured.setdefault(kind, []).append(Measured(kind, context, samples))
    return measured


KINDS = pytest.mark.parametrize("kind", WRITERS)


@KINDS
def test_ladder_gives_what_the_architecture_allows(
    kind: str, runs: dict[str, list[Measured]]
) -> None:
    for run in runs[kind]:
        samples = of_experiment(run.samples, LADDER)
        before = {s.arm: s.prompt_tokens or 0 for s in samples if s.turn == 1}
        before["third_question"] = before["other_question"]
        for sample in (s for s in samples if s.turn > 1):
            expected = 0 if sample.arm == "head_changed" else allowed(
                kind, before=before[sample.arm], shared=sample.shared_tokens or 0,
                prompt=sample.prompt_tokens or 0, restored=sample.arm in RETURNS)
            assert sample.cached_tokens == expected, (run.context, sample.arm)
            assert recomputed_tokens(sample) == (sample.prompt_tokens or 0) - expected


# What the issue of this experiment was about: an identical repeat, and a new question.
@pytest.mark.parametrize(("kind", "repeat", "question"), [
    ("dense", 1, 33), ("sliding window", 1, 33), ("hybrid", 4, 516), ("recurrent", 4, 516)])
def test_tokens_computed_again(
    kind: str, repeat: int, question: int, runs: dict[str, list[Measured]]
) -> None:
    for run in runs[kind]:
        known = {row.arm: row.recomputed_tokens for row in rows(run.samples, LADDER)}
        assert (known["repeat"], known["other_question"]) == (repeat, question)
        assert known["third_question"] == question
        assert known["append"] == 45  # the last token of the answer, and the question


@KINDS
def test_verdicts_of_ladder(kind: str, runs: dict[str, list[Measured]]) -> None:
    state = kind in ("hybrid", "recurrent")
    codes = {row.arm: row.code for row in rows(runs[kind][1].samples, LADDER)}
    assert codes == dict.fromkeys(codes, HIT) | {
        "head_changed": NO_HIT,
        "middle_changed": HIT if kind == "dense" else MISSED,
        "other_question": PARTIAL if state else HIT, "third_question": PARTIAL if state else HIT}


@KINDS
def test_position_gives_what_the_architecture_allows(
    kind: str, runs: dict[str, list[Measured]]
) -> None:
    for run in runs[kind]:
        for row in rows(run.samples, POSITION):
            size, shared = int(row.input_tokens or 0), int(row.shared_tokens or 0)
            expected = 0 if row.arm == "0" else allowed(
                kind, before=size, shared=shared, prompt=size, restored=False)
            assert row.reused_tokens == expected, (run.context, row.arm)


@KINDS
def test_minimum_gives_what_the_architecture_allows(
    kind: str, runs: dict[str, list[Measured]]
) -> None:
    for run in runs[kind]:
        prefix = found(of_experiment(run.samples, MINIMUM))
        assert prefix is not None and prefix.counted and prefix.step == 1
        most = most_prefix_tokens(lab_settings(run.context))
        assert prefix.tried == (LEAST_TOKENS, most)
        if kind == "dense":
            assert (prefix.shared, prefix.reused, prefix.missed) == (8, 8, None)
            assert prefix.reused_most == most
            continue
        # A prompt just long enough for a checkpoint a batch before its end.
        least = BATCH + LAST + 1 - len(TAILS[0])
        assert (prefix.missed, prefix.shared, prefix.reused) == (least - 1, least, 1)
        assert prefix.reused_most == (most if kind == "sliding window" else most - least + 1)


def test_the_table_side_by_side_is_of_these_runs(runs: dict[str, list[Measured]]) -> None:
    table = side_by_side((kind, of_kind[1].samples) for kind, of_kind in runs.items())
    lines = table.splitlines()
    assert lines[0] == "| shape | dense | sliding window | hybrid | recurrent |"
    repeat = next(line for line in lines if "identical repeat" in line)
    assert [cell.split(" of ")[0].strip() for cell in repeat.split("|")[2:-1]] == [
        "hit, 1", "hit, 1", "hit, 4", "hit, 4"]
    assert "| grows in steps of | 1 | 1 | 1 | 1 |" in lines


SLOTS_SERVER = """
import os, sys, xllamacpp
from request_timing.servers import spawn_child
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], 0
params.n_parallel, params.n_ctx, params.cache_ram_mib = int(sys.argv[2]), int(sys.argv[3]), 0
for pool in (params.cpuparams, params.cpuparams_batch):
    pool.n_threads, pool.poll = 1, 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
spawn_child._wait_for_parent()
os._exit(0)
"""


@contextmanager
def serve_slots(model: Path, slots: int, context: int) -> Iterator[str]:
    """A server with so many slots of so much context, and no cache in host memory."""
    with subprocess.Popen(
        [sys.executable, "-c", SLOTS_SERVER, str(model), str(slots), str(slots * context)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            url = child.stdout.readline().decode().strip()
            assert url
            yield url
        finally:
            child.stdin.close()


@pytest.mark.parametrize(("slots", "code"), [(1, MISSED), (8, HIT)])
def test_one_slot_thrashes_where_eight_keep_each_conversation(
    slots: int, code: str, models: dict[str, Path]
) -> None:
    with serve_slots(models["dense"], slots, 2048) as url:
        samples = list(ladder(lab_of(url, 1200)))
    codes = {row.arm: row.code for row in rows(samples, LADDER)}
    assert {codes[arm] for arm in RETURNS} == {code}
    assert codes["repeat"] == codes["append"] == codes["middle_changed"] == HIT
    assert len({s.server.id_slot for s in samples if s.server is not None}) == slots
