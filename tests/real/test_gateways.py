"""Both scripts, as commands, through real gateways: what each does to the figures.

Counts and verdicts come from a real llama-server of the tiny model. It writes a whole answer in
milliseconds, too fast to tell a stream from a burst, so the pieces come from the truth server,
which writes one every PIECE_S; a real model confirms it for the two that matter.
"""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import ROOT, Outcome, assert_one_line, environment, run_script
from gateway_rows import (
    AS_WRITTEN,
    GZIP,
    IN_BURSTS,
    NOT_REPORTED,
    REFUSED,
    REPORTED,
    ROWS,
    ZERO,
    Row,
    Seen,
    markdown,
)
from gateways import NOTHING_IS_SKIPPED, Gateway, litellm, missing, nginx
from request_timing.records.sample import BURST_PIECES, Sample
from request_timing.servers import spawn
from truth_server import Truth, truth

API, LOCAL = "api_timing.py", "local_cache.py"
PIECE_S = 0.004
TURNS = 4
OUTPUT = ("--only", "output", "--outputs", "60", "--repeats", "1", "--quiet")
CACHE = ("--only", "cache", "--context", "2000", "--turns", str(TURNS), "--quiet")
KEY_VARIABLE = "GATEWAY_KEY"
BURSTS_LINE = "came in bursts (something buffers them)"
DENSE, TRUTH = "tiny-dense", "truth"  # as the two servers call their models


class Ran(NamedTuple):
    """What the commands left, through one gateway."""

    row: Row
    gateway: Gateway
    stream: Outcome  # api_timing.py, pieces at a known pace
    api: Outcome
    local: Outcome
    chat_routes: list[str]  # where each request went, of nginx
    completion_routes: list[str]


@pytest.fixture(scope="module")
def second_server(dense_model: Path) -> Iterator[str]:
    """A second llama-server of the tiny model."""
    with spawn.serve(str(dense_model), 32_768) as url:
        yield url


@pytest.fixture(scope="module")
def paced() -> Iterator[Truth]:
    """A server that writes a piece every PIECE_S."""
    with truth(decode_s_per_token=PIECE_S, fixed_s=PIECE_S) as server:
        yield server


def need(kind: str) -> None:
    """Skip, and say why, where a gateway is not installed; in CI that is a failure."""
    if why := missing(kind):
        if os.environ.get(NOTHING_IS_SKIPPED):
            pytest.fail(f"{why} ({NOTHING_IS_SKIPPED} is set: nothing may be skipped)")
        pytest.skip(why)


@contextlib.contextmanager
def in_front(row: Row, *servers: str) -> Iterator[Gateway]:
    """The row's gateway in front of these servers."""
    if row.kind == "none":
        yield Gateway(servers[0])
    elif row.inner is not None:
        with nginx(*servers, directives=row.inner) as inner, nginx(
                inner.url, directives=row.directives) as outer:
            yield outer
    else:
        with nginx(*servers, directives=row.directives, routing=row.routing or "") as gateway:
            yield gateway


def api(gateway: Gateway, model: str, *flags: str, cwd: Path) -> Outcome:
    """api_timing.py through a gateway."""
    cwd.mkdir()
    key = ("--api-key-env", KEY_VARIABLE) if gateway.key else ()
    return run_script(API, "--base-url", f"{gateway.url}/v1", "--model", model, *key, *flags,
                      cwd=cwd, env=environment(**{KEY_VARIABLE: gateway.key or ""}))


def local(gateway: Gateway, *flags: str, cwd: Path) -> Outcome:
    """local_cache.py through a gateway."""
    cwd.mkdir()
    return run_script(LOCAL, "--url", gateway.url, *flags, cwd=cwd)


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def ran(request: pytest.FixtureRequest, dense_server: str, second_server: str, paced: Truth,
        tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Three runs through one gateway."""
    row: Row = request.param
    folder = tmp_path_factory.mktemp(row.name)
    if row.kind != "none":
        need(row.kind)
    if row.kind == "litellm":
        with litellm(**{DENSE: dense_server, TRUTH: paced.url}) as gateway:
            stream = api(gateway, TRUTH, *OUTPUT, cwd=folder / "stream")
            counted = api(gateway, DENSE, *CACHE, cwd=folder / "api")
            native = local(gateway, *CACHE, cwd=folder / "local")
        return Ran(row, gateway, stream, counted, native, [], [])
    servers = (dense_server,) if row.routing is None else (dense_server, second_server)
    with in_front(row, paced.url) as gateway:
        stream = api(gateway, TRUTH, *OUTPUT, cwd=folder / "stream")
    with in_front(row, *servers) as gateway:
        counted = api(gateway, DENSE, *CACHE, cwd=folder / "api")
        native = local(gateway, *CACHE, cwd=folder / "local")
        logged = gateway.access_log is not None
        chats = gateway.routes("/v1/chat/completions") if logged else []
        completions = gateway.routes("/completion") if logged else []
    return Ran(row, gateway, stream, counted, native, chats, completions)


def verdict(outcome: Outcome, arm: str) -> str:
    """The code of an arm's verdict, and the turn it holds from if that is not the second."""
    assert outcome.record is not None, outcome.err
    (found,) = [v for v in outcome.record["verdicts"] if v["arm"] == arm]
    late = found["evidence"]["holds_from_turn"]
    code: str = found["code"]
    return code if late in (None, 2) else f"{code} from turn {late}"


def cached(outcome: Outcome) -> str:
    """Whether cached tokens are reported, over all turns."""
    counts = [s["cached_tokens"] for s in outcome.samples("cache")]
    return NOT_REPORTED if None in counts else REPORTED if any(counts) else ZERO


def pieces(outcome: Outcome) -> str:
    """How the pieces of the one answer came."""
    (data,) = outcome.samples("output")
    # A token of a real model may have no text of its own; with fewer pieces bursts are not told.
    assert data["error"] is None and len(data["arrivals_s"]) >= BURST_PIECES
    return IN_BURSTS if Sample.from_json(data).came_in_bursts else AS_WRITTEN


def test_a_row_of_the_table_is_what_a_run_through_the_gateway_shows(ran: Ran) -> None:
    assert (ran.stream.status, ran.api.status) == (0, 0), (ran.stream.err, ran.api.err)
    refused = ran.local.status == 2
    assert Seen(
        pieces=pieces(ran.stream), cached=cached(ran.api), append=verdict(ran.api, "append"),
        prepend=verdict(ran.api, "prepend"),
        local=REFUSED if refused else f"{verdict(ran.local, 'append')}, "
                                      f"{verdict(ran.local, 'prepend')}",
    ) == ran.row.seen


def test_every_request_is_answered_and_its_usage_comes_through(ran: Ran) -> None:
    for outcome in (ran.stream, ran.api):
        assert outcome.record is not None
        for sample in outcome.record["samples"]:
            assert sample["error"] is None and sample["notes"] == []
            assert sample["prompt_tokens"] > 0 and sample["output_tokens"] > 0
            assert sample["finish_reason"] in ("length", "stop")
            # A gateway may put two pieces into one; it may not lose or double any.
            assert len(sample["arrivals_s"]) <= sample["output_tokens"]


def test_bursts_are_said_under_the_table_and_give_no_decode_rate(ran: Ran) -> None:
    (sample,) = ran.stream.samples("output")
    in_bursts = ran.row.seen.pieces == IN_BURSTS
    assert (BURSTS_LINE in ran.stream.out) is in_bursts
    assert (sample["inter_token_s"] is None) is in_bursts
    # The pace is known: of a stream let through the first piece is a small part, one of sixty.
    share = sample["ttft_s"] / sample["total_s"]
    assert share > 0.2 if in_bursts else share < 0.5, share


def test_a_hit_is_faster_than_a_cold_prompt_through_every_gateway(ran: Ran) -> None:
    assert ran.api.record is not None
    (append,) = [v for v in ran.api.record["verdicts"] if v["arm"] == "append"]
    assert append["evidence"]["ttft_ratio"] < 1


def test_a_refusal_is_one_line_that_names_the_address(ran: Ran) -> None:
    if ran.row.seen.local != REFUSED:
        assert ran.local.status == 0, ran.local.err
        return
    assert_one_line(ran.local, 2, ran.gateway.url)
    assert ran.local.record is None


def test_no_key_of_a_gateway_is_shown_or_written(ran: Ran) -> None:
    key = ran.gateway.key
    for outcome in (ran.stream, ran.api, ran.local):
        assert key is None or key not in f"{outcome.out}{outcome.err}{outcome.record}"


def test_a_turn_hits_where_its_server_had_an_earlier_turn_and_nowhere_else(ran: Ran) -> None:
    """Each server keeps its own prefixes: which one answered says what is reported."""
    if ran.row.routing is None:
        assert len({*ran.chat_routes}) <= 1
        return
    for outcome, routes in ((ran.api, ran.chat_routes), (ran.local, ran.completion_routes)):
        samples = outcome.samples("cache")
        answered = list(zip(samples, routes[-len(samples):], strict=True))
        for arm in ("append", "repeat"):
            had: dict[str, dict[str, Any]] = {}
            for sample, server in answered:
                if sample["arm"] != arm:
                    continue
                before = had.get(server)
                if before is None:
                    assert sample["cached_tokens"] < 0.05 * sample["prompt_tokens"]
                else:
                    assert (0.98 * before["prompt_tokens"] <= sample["cached_tokens"]
                            < sample["prompt_tokens"])
                had[server] = sample
    assert len({*ran.chat_routes}) == (2 if ran.row.name == "two" else 1)
    if ran.row.name == "two":
        # Each prompt of local_cache.py comes after one /tokenize, which takes the other's turn.
        assert len({*ran.completion_routes[-len(ran.local.samples("cache")):]}) == 1


def test_gzip_holds_for_those_who_ask_for_it_and_not_for_the_scripts(paced: Truth) -> None:
    need("nginx")
    body = b'{"messages": [{"role": "user", "content": "word"}], "max_tokens": 60, "stream": true}'
    encodings = []
    with nginx(paced.url, directives=GZIP) as gateway:
        for asked in ("gzip", "identity"):
            request = urllib.request.Request(f"{gateway.url}/v1/chat/completions", body,
                                             {"Accept-Encoding": asked})
            with urllib.request.urlopen(request) as answer:
                encodings.append(answer.headers["Content-Encoding"])
                answer.read()
    assert encodings == ["gzip", None]


@pytest.mark.parametrize("name", ["nginx", "chain"])
def test_the_stream_of_a_real_model_comes_the_same_way(name: str, tmp_path: Path) -> None:
    need("nginx")
    (row,) = [row for row in ROWS if row.name == name]
    with spawn.serve(spawn.demo_model(), 1024) as url, in_front(row, url) as gateway:
        outcome = local(gateway, *OUTPUT, cwd=tmp_path / "run")
    assert outcome.status == 0, outcome.err
    assert pieces(outcome) == row.seen.pieces


def test_without_a_gateway_a_test_says_so_and_in_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateways.NGINX", None)
    monkeypatch.delenv(NOTHING_IS_SKIPPED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="found none; run: apt-get install nginx"):
        need("nginx")
    monkeypatch.setenv(NOTHING_IS_SKIPPED, "true")
    with pytest.raises(pytest.fail.Exception, match="nothing may be skipped"):
        need("nginx")


def test_the_readme_shows_this_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- gateways -->\n{markdown()}\n<!-- /gateways -->" in readme
