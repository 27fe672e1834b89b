"""Both scripts, as commands, against real llama-servers of the tiny models.

Everything is proved by the server's own counts, never by the time that something took. A token of
these models is a byte, and an answer is made of letters, so that it becomes, put back into the
next prompt, exactly the tokens that were generated: counts are exact.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import ROOT, Outcome, assert_one_line, environment, run_script
from request_timing.experiments.basic import CACHE_TASK
from request_timing.experiments.lab import COLD_SHARE, STAMP
from request_timing.findings.derive import to_text
from request_timing.records.run import load_run
from request_timing.servers import spawn
from tiny_models import SLIDING_WINDOW

API, LOCAL = "api_timing.py", "local_cache.py"
SCRIPTS = pytest.mark.parametrize("script", [API, LOCAL])

TURNS = 4
CONTEXT = 4000
SIZES = ("--lengths", "500,1000,2000", "--outputs", "10,20,40", "--context", str(CONTEXT),
         "--turns", str(TURNS), "--repeats", "2")
ONE_SHORT = ("--only", "output", "--outputs", "8", "--repeats", "1")

OPENING_TOKENS = 18  # sixteen random letters, a full stop, a line end
STAMP_TOKENS = len("Current time: 2026-01-02T03:04:05.123456Z\n\n")
STAMP_WORDS_TOKENS = len(STAMP.partition("{")[0])  # what every stamp begins with
CHAT_HEAD_TOKENS = len("<|user|>\n")  # what the tiny models' chat template begins with

# A layer with a sliding window forgets what lies further back than its window, so a llama-server
# can go on from the very end of what it holds, or from a checkpoint, but from nowhere else. Where
# a build takes its checkpoint some tokens before the end, it computes those few again.
SLIDING_WINDOW_SLACK = 16


class Measured(NamedTuple):
    """One run that several tests look at."""

    outcome: Outcome
    path: Path
    url: str
    slack: int = 0  # tokens that the append arm may compute again
    kept_head: int = 0  # tokens that the prepend arm reuses at least


@pytest.fixture(scope="module", params=["dense_server", "sliding_window_server"])
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All three experiments of local_cache.py, on either kind of model."""
    url: str = request.getfixturevalue(request.param)
    cwd = tmp_path_factory.mktemp("native")
    outcome = run_script(LOCAL, "--url", url, *SIZES, cwd=cwd)
    assert outcome.status == 0, outcome.err
    if request.param == "dense_server":
        return Measured(outcome, cwd / "run.json", url, kept_head=STAMP_WORDS_TOKENS)
    assert CONTEXT > SLIDING_WINDOW
    return Measured(outcome, cwd / "run.json", url, slack=SLIDING_WINDOW_SLACK)


@pytest.fixture(scope="module")
def api(dense_server: str, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All three experiments of api_timing.py, on the dense model's OpenAI-compatible API."""
    cwd = tmp_path_factory.mktemp("api")
    outcome = run_script(API, "--base-url", f"{dense_server}/v1", *SIZES, cwd=cwd)
    assert outcome.status == 0, outcome.err
    return Measured(outcome, cwd / "run.json", dense_server)


def server_flags(script: str, url: str) -> tuple[str, str]:
    """How this script is told which server to measure."""
    return ("--url", url) if script == LOCAL else ("--base-url", f"{url}/v1")


def last_task(url: str) -> int | None:
    """The number of the last prompt that the server's one slot worked on."""
    with urllib.request.urlopen(f"{url}/slots") as answer:
        (slot,) = json.load(answer)
    task: int | None = slot.get("id_task")
    return task


# --- local_cache.py: what the server counted -----------------------------------------------------

def test_the_record_has_the_names_that_other_programs_read(native: Measured) -> None:
    record = native.outcome.record
    assert record is not None
    assert record.keys() >= {
        "schema_version", "complete", "tool", "version", "command", "created_at", "environment",
        "endpoint", "settings", "samples", "summaries", "verdicts"}
    assert record["complete"] is True
    for sample in record["samples"]:
        assert sample.keys() >= {
            "experiment", "arm", "turn", "repeat", "sent_at", "prompt_chars", "prompt_hash",
            "arrivals_s", "arrival_kinds", "first_byte_s", "ttft_s", "total_s", "inter_token_s",
            "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens",
            "finish_reason", "server", "connection", "error", "notes"}
        assert sample["server"].keys() == {
            "cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "id_slot"}
        assert sample["connection"].keys() == {"new", "connect_s", "tls_s"}
        assert sample["error"] is None
        assert sample["notes"] == []
        assert set(sample["arrival_kinds"]) == {"text"}


def test_every_length_is_cold_and_of_the_size_asked_for(native: Measured) -> None:
    samples = native.outcome.samples("length")
    assert sorted(s["arm"] for s in samples) == sorted(["500", "1000", "2000"] * 2)
    head = native.outcome.record and native.outcome.record["endpoint"]["head_tokens"]
    sizes = []
    for sample in samples:
        counted = sample["server"]
        assert counted["cache_n"] <= max(head, COLD_SHARE * sample["prompt_tokens"])
        assert counted["cache_n"] + counted["prompt_n"] == sample["prompt_tokens"]
        sizes.append((int(sample["arm"]), sample["prompt_tokens"]))
    assert [(asked, sent) for asked, sent in sizes if abs(sent - asked) > 0.02 * asked] == []


def test_every_output_is_as_long_as_asked_for(native: Measured) -> None:
    samples = native.outcome.samples("output")
    assert sorted(s["arm"] for s in samples) == sorted(["10", "20", "40"] * 2)
    for sample in samples:
        assert sample["server"]["predicted_n"] == sample["output_tokens"] == int(sample["arm"])
    assert "short" not in native.outcome.out.split("cache:")[0].replace("one short input", "")


def test_append_recomputes_exactly_the_appended_tokens(native: Measured) -> None:
    first, *later = native.outcome.samples("cache", "append")
    assert [first["turn"], *(s["turn"] for s in later)] == list(range(1, TURNS + 1))
    assert first["server"]["prompt_n"] >= 0.99 * first["prompt_tokens"]
    before = first
    for sample in later:
        # The last token of an answer is sampled, and never put into the model.
        held = before["prompt_tokens"] + before["output_tokens"] - 1
        appended = sample["prompt_tokens"] - held
        assert appended == 1 + len(CACHE_TASK.format(turn=sample["turn"]))
        assert appended <= sample["server"]["prompt_n"] <= appended + native.slack
        assert (sample["server"]["cache_n"]
                == sample["prompt_tokens"] - sample["server"]["prompt_n"])
        before = sample


def test_prepend_recomputes_all_but_the_head_of_the_stamp(native: Measured) -> None:
    first, *later = native.outcome.samples("cache", "prepend")
    assert len(later) == TURNS - 1
    assert first["server"]["cache_n"] <= COLD_SHARE * first["prompt_tokens"]
    for sample in later:
        assert native.kept_head <= sample["server"]["cache_n"] < STAMP_TOKENS
        assert (sample["server"]["prompt_n"]
                == sample["prompt_tokens"] - sample["server"]["cache_n"])


@pytest.mark.parametrize("arm", ["append", "prepend"])
def test_the_printed_totals_are_the_sums_over_the_turns(native: Measured, arm: str) -> None:
    printed = native.outcome.out.split("all turns")[1]
    row = re.search(rf"^ *{arm} +(\d+) +([\d,]+) +([\d,]+) ", printed, re.M)
    assert row is not None
    samples = native.outcome.samples("cache", arm)
    assert [int(cell.replace(",", "")) for cell in row.groups()] == [
        TURNS, sum(s["server"]["prompt_n"] for s in samples),
        sum(s["prompt_tokens"] for s in samples)]


def test_a_loader_that_computes_everything_anew_finds_the_same(native: Measured) -> None:
    assert json.loads(to_text(load_run(native.path))) == native.outcome.record


def test_a_saved_run_is_shown_as_it_was_printed(
    native: Measured, api: Measured, tmp_path: Path
) -> None:
    for script, saved in ((LOCAL, native), (API, api)):
        shown = run_script(script, "--show", str(saved.path), cwd=tmp_path, save=False)
        assert (shown.status, shown.err) == (0, "")
        assert shown.out == saved.outcome.out


# --- api_timing.py: what the same server reports from outside -------------------------------------

def test_an_api_is_sent_the_sizes_asked_for(api: Measured) -> None:
    for sample in api.outcome.samples("length"):
        asked = int(sample["arm"])
        assert abs(sample["prompt_tokens"] - asked) <= 0.05 * asked
        assert sample["cached_tokens"] <= max(CHAT_HEAD_TOKENS + 2, COLD_SHARE * asked)
    assert [s for s in api.outcome.samples("output") if s["output_tokens"] != int(s["arm"])] == []


def test_an_api_reports_reuse_for_append_alone(api: Measured) -> None:
    before, *later = api.outcome.samples("cache", "append")
    for sample in later:
        assert 0.98 * before["prompt_tokens"] <= sample["cached_tokens"] < sample["prompt_tokens"]
        before = sample
    prepend = api.outcome.samples("cache", "prepend")
    assert len(prepend) == TURNS
    for sample in prepend:
        assert sample["cached_tokens"] < CHAT_HEAD_TOKENS + STAMP_TOKENS


def test_the_arms_of_an_api_alternate_turn_by_turn_in_random_order(api: Measured) -> None:
    asked = [(s["turn"], s["arm"]) for s in api.outcome.samples("cache")
             if s["arm"] in ("append", "prepend")]
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert [sorted(pair) for pair in pairs] == [
        [(turn, "append"), (turn, "prepend")] for turn in range(1, TURNS + 1)]
    assert len({tuple(arm for _, arm in pair) for pair in pairs}) == 2  # not always one order


@SCRIPTS
def test_two_runs_of_one_seed_ask_in_one_order_and_share_no_prompt(
    script: str, dense_server: str, tmp_path: Path
) -> None:
    orders, prompts = [], []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        outcome = run_script(
            script, *server_flags(script, dense_server), "--seed", "7", "--lengths", "90,120,150",
            "--repeats", "2", "--outputs", "4,5,6", "--context", "300", cwd=tmp_path / name)
        assert outcome.record is not None, outcome.err
        samples: list[dict[str, Any]] = outcome.record["samples"]
        orders.append([(s["experiment"], s["arm"], s["turn"], s["repeat"]) for s in samples])
        prompts.append({s["prompt_hash"] for s in samples})
    assert orders[0] == orders[1]
    assert prompts[0] & prompts[1] == set()


# --- The user's own document ----------------------------------------------------------------------

def test_a_document_is_sent_as_it_is_without_its_bom(dense_server: str, tmp_path: Path) -> None:
    text = "Grüße an 世界, naïve café ☕ 🎈\r\n" * 40
    (tmp_path / "notes.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    # A locale of ASCII alone must not matter.
    outcome = run_script(LOCAL, "--url", dense_server, "--only", "cache", "--turns", "2",
                         "--doc", "notes.txt", cwd=tmp_path,
                         env=environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"))
    assert outcome.status == 0, outcome.err
    first, second = outcome.samples("cache", "append")
    frame = OPENING_TOKENS + len(CACHE_TASK.format(turn=1))
    assert first["prompt_tokens"] == frame + len(text.encode())
    assert first["prompt_chars"] == frame + len(text)
    assert second["server"]["prompt_n"] < 0.1 * second["prompt_tokens"]
    stamped = outcome.samples("cache", "prepend")[0]
    assert stamped["prompt_tokens"] == first["prompt_tokens"] + STAMP_TOKENS
    assert outcome.record is not None
    assert outcome.record["settings"]["document"] == "notes.txt"
    assert outcome.record["settings"]["document_chars"] == len(text)


# --- What does not fit ----------------------------------------------------------------------------

@pytest.mark.parametrize(("experiment", "flag"), [("length", "--lengths"), ("cache", "--context")])
def test_the_context_named_for_a_size_that_does_not_fit_is_enough(
    experiment: str, flag: str, dense_model: Path, tmp_path: Path
) -> None:
    common = ("--only", f"output,{experiment}", "--outputs", "8", "--repeats", "4", "--quiet")
    size = 3000
    with spawn.serve(str(dense_model), 1024) as url:
        asked = run_script(LOCAL, "--url", url, *common, flag, str(size), "--dry-run",
                           cwd=tmp_path, save=False)
        need = int(re.findall(r"needs ([\d,]+)", asked.err)[0].replace(",", ""))
        size += -need % 256  # leaves no room in a context that goes by 256 tokens
        outcome = run_script(LOCAL, "--url", url, *common, flag, str(size), cwd=tmp_path)
    assert outcome.status == 0, outcome.err
    (line,) = outcome.err.splitlines()
    assert f"{experiment}" in line and "left out" in line
    (context,) = re.findall(r"-c (\d+)", line)
    assert outcome.record is not None
    assert outcome.record["notes"] == [line]
    assert line in " ".join(outcome.out.split())  # wrapped for a terminal
    assert [s["experiment"] for s in outcome.record["samples"]] == ["output"] * 4

    (tmp_path / "again").mkdir()
    with spawn.serve(str(dense_model), int(context)) as url:
        again = run_script(LOCAL, "--url", url, *common, flag, str(size), cwd=tmp_path / "again")
    assert (again.status, again.err) == (0, "")
    assert [s["notes"] for s in again.samples(experiment) if s["error"] or s["notes"]] == []


def test_nothing_that_fits(dense_server: str, tmp_path: Path) -> None:
    before = last_task(dense_server)
    outcome = run_script(LOCAL, "--url", dense_server, "--only", "length,cache", "--lengths",
                         "40000", "--context", "50000", "--quiet", cwd=tmp_path)
    assert outcome.status == 2
    assert outcome.out == ""
    length, cache, end = outcome.err.splitlines()
    assert "-c 40960" in length and "-c 51" in cache and "fits" in end
    assert list(tmp_path.iterdir()) == []
    assert last_task(dense_server) == before


# --- Flags ----------------------------------------------------------------------------------------

@SCRIPTS
def test_a_dry_run_spends_nothing(script: str, dense_server: str, tmp_path: Path) -> None:
    before = last_task(dense_server)
    outcome = run_script(script, *server_flags(script, dense_server), *ONE_SHORT, "--dry-run",
                         cwd=tmp_path, save=False)
    assert (outcome.status, outcome.err) == (0, "")
    assert re.search(r"^plan: \d requests?,", outcome.out, re.M)
    assert "output: 1 request," in outcome.out and "length" not in outcome.out
    assert list(tmp_path.iterdir()) == []
    assert last_task(dense_server) == before


@SCRIPTS
def test_json_on_stdout_is_the_file_and_quiet_says_nothing(
    script: str, dense_server: str, tmp_path: Path
) -> None:
    outcome = run_script(script, *server_flags(script, dense_server), *ONE_SHORT, "--json",
                         "--quiet", cwd=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == (tmp_path / "run.json").read_text()
    assert outcome.record is not None
    assert [s["experiment"] for s in outcome.record["samples"]] == ["output"]


@SCRIPTS
def test_a_result_is_never_overwritten(script: str, dense_server: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('"precious"')
    before = last_task(dense_server)
    outcome = run_script(script, *server_flags(script, dense_server), *ONE_SHORT, "--quiet",
                         cwd=tmp_path)
    assert_one_line(outcome, 2, "run.json", "never overwritten", "--out")
    assert (tmp_path / "run.json").read_text() == '"precious"'
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert last_task(dense_server) == before


@SCRIPTS
def test_without_out_the_record_is_a_new_file_here(
    script: str, dense_server: str, tmp_path: Path
) -> None:
    outcome = run_script(script, *server_flags(script, dense_server), *ONE_SHORT, cwd=tmp_path,
                         save=False)
    assert outcome.status == 0, outcome.err
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(script.removesuffix(".py") + r"-\d{8}T\d{6}Z\.json", path.name)
    assert load_run(path).complete
    assert str(path.name) in outcome.err


# --- A bare Python --------------------------------------------------------------------------------

@SCRIPTS
def test_help_imports_nothing_that_is_slow_and_needs_no_package(script: str) -> None:
    command = [sys.executable, "-S", "-E", "-X", "importtime", str(ROOT / script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--only" in done.stdout
    imported = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.M))
    assert "argparse" in imported
    assert imported & {"openai", "httpx", "http.client", "asyncio", "dataclasses"} == set()


def test_local_cache_runs_on_the_standard_library_alone(dense_server: str, tmp_path: Path) -> None:
    bare = [sys.executable, "-S", "-E"]
    lacks = subprocess.run([*bare, "-c", "import httpx"], capture_output=True, check=False)
    assert lacks.returncode != 0
    done = subprocess.run(
        [*bare, str(ROOT / LOCAL), "--url", dense_server, "--lengths", "300", "--outputs", "8",
         "--context", "400", "--repeats", "1", "--turns", "2", "--out", "run.json"],
        cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples = load_run(tmp_path / "run.json").samples
    assert {s.experiment for s in samples if s.error is None} == {"length", "output", "cache"}
