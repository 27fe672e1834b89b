"""Pictures, pages, exports and money as commands: what is refused before a token is spent, what is
written, what is billed, and where --max-cost stops."""

from __future__ import annotations

import csv
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import local_cache
from conftest import ROOT, Outcome, assert_one_line, environment, run_script
from missing_packages import WITHOUT
from request_timing.cli import output
from request_timing.records.run import load_run
from wire_stub import Asked, Stub, refused, wire_stub

API, LOCAL = "api_timing.py", "local_cache.py"
FILES = {"plot": "run.png", "report": "run.html", "csv": "run.csv"}
BEGINS = {"plot": b"\x89PNG", "report": b"<!DOCTYPE html>", "csv": b"experiment,arm,turn"}
SMALL = ("--only", "cache,output", "--outputs", "4,8", "--context", "300", "--turns", "2",
         "--repeats", "1")
CHEAP = ("--only", "output", "--outputs", "4", "--repeats", "1")
PRICED = ("--price-in", "0.28", "--price-cached", "0.028", "--price-out", "0.42")
MILLION = Decimal(10**6)
CALIBRATION = 2


def api(stub: Stub, cwd: Path, *flags: str, **env: str) -> Outcome:
    """api_timing.py against the stub."""
    return run_script(API, "--base-url", stub.url, *flags, cwd=cwd, env=environment(**env))


def show(cwd: Path, *flags: str) -> Outcome:
    """The saved run shown again, without any server."""
    return run_script(LOCAL, "--show", "run.json", *flags, cwd=cwd, save=False)


def without(package: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that does not find the package."""
    (site := tmp_path / "site").mkdir()
    (site / "sitecustomize.py").write_text(WITHOUT.format(package=package))
    return {"PYTHONPATH": str(site)}


# --- before a token is spent


def bad_files() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Flags for files that could not be written, and what is said of them."""
    for name in FILES:
        yield f"--{name} there.svg", (f"--{name} there.svg: it exists", "never overwritten")
        yield f"--{name} none/x.png", (f"--{name} none/x.png: expected a folder none",)
        yield f"--{name} folder.svg", (f"--{name} folder.svg: it exists",)
    yield "--plot x.pdf", ("x.pdf: expected a name that ends in .png or .svg, found '.pdf'",)
    yield "--plot x", ("found 'no suffix'",)
    yield "--csv run.json", ("--csv run.json: expected a file of its own",)
    yield "--plot x.png --report x.png", ("--report x.png: expected a file of its own",)
    yield "--json --markdown", ("--markdown and --json: expected one of them",)
    yield "--price-in 1", ("found no --price-out",)
    yield "--price-cached 1 --price-out 1", ("found no --price-in",)
    yield "--price-in -1 --price-out 1", ("expected an amount such as 0.28, found '-1'",)
    yield "--max-cost 1", ("--max-cost: expected a known price, found none", "--price-in")
    yield "--max-cost 0.0001 --price-in 1 --price-out 1", (
        "--max-cost $0.000100: expected at least",)


@pytest.mark.parametrize(("flags", "says"), list(bad_files()))
def test_what_could_not_be_done_is_refused_before_a_token_is_spent(
    tmp_path: Path, flags: str, says: tuple[str, ...]
) -> None:
    (tmp_path / "there.svg").write_text("precious")
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    with wire_stub() as stub:
        done = api(stub, tmp_path, "--quiet", *CHEAP, *flags.split())
        assert stub.connections == 0
    assert_one_line(done, 2, *says)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "there.svg").read_text() == "precious"


@pytest.mark.parametrize("name", FILES)
def test_a_file_beside_the_record_is_no_more_overwritten_than_a_named_one(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / FILES[name]).write_text("precious")
    with wire_stub() as stub:
        assert_one_line(api(stub, tmp_path, *CHEAP, f"--{name}"), 2, "it exists")
        assert stub.connections == 0
    assert (tmp_path / FILES[name]).read_text() == "precious"


@pytest.mark.parametrize(("flag", "package", "says"), [
    ("--plot", "matplotlib", "requirements-plot.txt"),
    ("--report", "jinja2", "requirements-report.txt"),
])
def test_a_package_that_is_missing(tmp_path: Path, flag: str, package: str, says: str) -> None:
    (cwd := tmp_path / "cwd").mkdir()
    env = without(package, tmp_path)
    with wire_stub() as stub:
        assert_one_line(api(stub, cwd, *CHEAP, flag, **env), 2, package, "pip install", says)
        assert stub.connections == 0
    assert list(cwd.iterdir()) == []


def test_help_imports_none_of_it(tmp_path: Path) -> None:
    code = ("import sys, local_cache, api_timing\n"
            "try: local_cache.main(['--help'])\n"
            "except SystemExit: pass\n"
            "print(sorted({'matplotlib', 'jinja2', 'money', 'decimal', 'bill', 'openai',"
            " 'genai_prices', 'dataclasses'} & set(sys.modules)), file=sys.stderr)")
    (tmp_path / "look.py").write_text(code)
    done = run_script(str(tmp_path / "look.py"), cwd=tmp_path, save=False,
                      env=environment(PYTHONPATH=str(ROOT)))
    assert done.err == "[]\n"
    assert all(f"--{name}" in done.out for name in (*FILES, "markdown", "price-in", "max-cost"))


# --- what is written


def names(outcome: Outcome) -> list[str]:
    """The files that were said to be written."""
    return re.findall(r"^(?:raw data|plot|report|csv): (.+)$", outcome.err, re.M)


def test_all_the_files_beside_the_record_of_a_real_server(
    dense_server: str, tmp_path: Path
) -> None:
    done = run_script(LOCAL, "--url", dense_server, *SMALL, "--plot", "--report", "--csv",
                      cwd=tmp_path)
    assert done.status == 0, done.err
    beside = {path.name for path in tmp_path.iterdir()}
    assert beside == {"run.json", *FILES.values()}
    assert [Path(name).name for name in names(done)] == ["run.json", *FILES.values()]
    for name, file in FILES.items():
        assert (tmp_path / file).read_bytes().startswith(BEGINS[name])
    page = (tmp_path / "run.html").read_text()
    assert page.count("<svg ") == 3 and "Cost" not in page
    assert done.record is not None
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [(r["experiment"], r["arm"], int(r["turn"]), int(r["prompt_tokens"])) for r in rows] == [
        (s["experiment"], s["arm"], s["turn"], s["prompt_tokens"])
        for s in done.record["samples"]]
    assert "tokens alone" not in done.out  # a server of one's own costs nothing


def test_files_with_names_of_their_own_of_a_cloud(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with wire_stub() as stub:
        done = api(stub, tmp_path, *SMALL, *PRICED, "--plot", "sub/a.svg", "--report", "b.htm",
                   "--csv", "c")
    assert done.status == 0, done.err
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == {
        "run.json", "sub/a.svg", "b.htm"}
    assert ET.parse(tmp_path / "sub" / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "c").read_text().startswith("experiment,")
    assert "<h2 id=\"cost\">Cost</h2>" in (tmp_path / "b.htm").read_text()


def test_a_saved_run_is_drawn_and_exported_again(tmp_path: Path) -> None:
    with wire_stub() as stub:
        assert api(stub, tmp_path, *SMALL).status == 0
    done = show(tmp_path, "--plot", "--report", "--csv")
    assert done.status == 0 and names(done) == list(FILES.values())
    for name, file in FILES.items():
        assert (tmp_path / file).read_bytes().startswith(BEGINS[name])
    assert_one_line(show(tmp_path, "--plot"), 2, "run.png: it exists")
    assert_one_line(show(tmp_path, "--csv", "run.json"), 2, "expected a file of its own")
    assert_one_line(show(tmp_path, "--json", "--markdown"), 2, "expected one of them")


def test_a_file_that_cannot_be_written_in_the_end_leaves_the_record_and_status_1(
    tmp_path: Path
) -> None:
    """The folder goes away in mid-run."""
    (tmp_path / "gone").mkdir()

    class Removing(Stub):
        def answer(self, request: Asked) -> Any:
            if (tmp_path / "gone").exists():
                (tmp_path / "gone").rmdir()
            return super().answer(request)

    with wire_stub(Removing) as stub:
        done = api(stub, tmp_path, *CHEAP, "--csv", "gone/x.csv")
    assert (done.status, "Traceback" in done.err) == (1, False)
    assert "warning: no csv: " in done.err and "written" in done.out
    assert load_run(tmp_path / "run.json").complete


def test_markdown_instead_of_tables(tmp_path: Path) -> None:
    with wire_stub() as stub:
        done = api(stub, tmp_path, *SMALL, *PRICED, "--markdown")
    assert done.status == 0 and done.out.startswith("### api\\_timing: stub\n")
    assert "| arm | turn |" in done.out and "prices from the flags" in done.out
    assert show(tmp_path, "--markdown").out == done.out


# --- money


def usage(stub: Stub) -> list[tuple[int, int]]:
    """Tokens in and out of each chat request, as the stub counts them."""
    return [(stub.tokens(chat), chat.body["max_tokens"]) for chat in stub.chats]


def cost(pairs: list[tuple[int, int]], price_in: str, price_out: str) -> Decimal:
    """Their price, nothing cached."""
    return sum((Decimal(price_in) * read + Decimal(price_out) * written
                for read, written in pairs), Decimal(0)) / MILLION


def test_the_bill_is_that_of_the_stubs_own_counts(tmp_path: Path) -> None:
    with wire_stub(head_tokens=40, chars_per_token=2.2) as stub:
        done = api(stub, tmp_path, *SMALL, *PRICED)
        counted = usage(stub)[CALIBRATION:]
    assert done.status == 0 and done.record is not None
    arms = list(dict.fromkeys((s["experiment"], s["arm"]) for s in done.record["samples"]))
    by_arm = {arm: [pair for s, pair in zip(done.record["samples"], counted, strict=True)
                    if (s["experiment"], s["arm"]) == arm] for arm in arms}
    rows = {row[0]: row[1:] for line in done.out.splitlines()
            if len(row := re.split(r" {2,}", line.strip())) >= 6}
    for (experiment, arm), pairs in by_arm.items():
        read, written = (sum(pair[n] for pair in pairs) for n in (0, 1))
        money = Decimal(rows[f"{experiment} {arm}"][-1])
        assert rows[f"{experiment} {arm}"][:4] == [
            str(len(pairs)), f"{read:,}", "0", f"{written:,}"]
        exact = cost(pairs, "0.28", "0.42")
        assert abs(money - exact) <= Decimal("0.005") * exact  # three figures
    total = Decimal(re.findall(r"^ *total +(\S+)$", done.out, re.M)[0])
    whole = cost(counted, "0.28", "0.42")
    assert abs(total - whole) <= Decimal("0.005") * whole
    assert "USD per million tokens: input 0.28, cached 0.028, output 0.42" in done.out
    assert done.record["settings"]["prices"]["usd_per_million_tokens"] == [{
        "above_prompt_tokens": 0, "input": "0.28", "cached_input": "0.028", "cache_write": None,
        "output": "0.42"}]
    assert show(tmp_path).out == done.out
    dearer = show(tmp_path, "--price-in", "2.8", "--price-out", "4.2").out
    assert abs(Decimal(re.findall(r"^ *total +(\S+)$", dearer, re.M)[0]) - 10 * whole
               ) <= Decimal("0.05") * whole


def test_no_price_is_said_in_the_plan_and_under_the_bill(tmp_path: Path) -> None:
    with wire_stub() as stub:
        done = api(stub, tmp_path, *CHEAP)
    for text in (done.err, done.out):
        assert "no price is known, so tokens alone" in text
    assert "USD" not in done.out.split("tokens alone")[0]
    assert show(tmp_path).out == done.out


def test_a_run_of_ones_own_server_has_a_bill_where_it_is_given_prices(
    dense_server: str, tmp_path: Path
) -> None:
    done = run_script(LOCAL, "--url", dense_server, *CHEAP, *PRICED, cwd=tmp_path)
    assert done.status == 0 and "prices from the flags" in done.out
    assert "cost: about $" in done.err


def test_the_dry_run_shows_the_cost(tmp_path: Path) -> None:
    flags = (*CHEAP, "--dry-run", "--price-in", "1000", "--price-out", "2000")
    with wire_stub() as stub:
        done = api(stub, tmp_path, *flags)
        assert stub.connections == 0
    assert done.status == 0 and not (tmp_path / "run.json").exists()
    planned = re.findall(r"about ([\d,]+) input tokens, at most ([\d,]+) output", done.out)[0]
    read, written = (int(tokens.replace(",", "")) for tokens in planned)
    dollars = Decimal(re.findall(r"cost: about \$([\d.,]+) at the most", done.out)[0])
    assert dollars == (Decimal(1000 * read + 2000 * written) / MILLION)


def test_prices_of_the_package_are_the_default_and_no_socket_is_opened(tmp_path: Path) -> None:
    (site := tmp_path / "site").mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "def hook(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        raise SystemExit(f'{event} {args}')\n"
        "sys.addaudithook(hook)\n")
    flags = ("--provider", "openai", "--model", "gpt-4o", *CHEAP, "--dry-run")
    done = run_script(API, *flags, cwd=tmp_path, env=environment(PYTHONPATH=str(site)))
    assert done.status == 0, done.err
    assert "prices of openai gpt-4o at " in done.out and "from genai-prices " in done.out
    ours = run_script(API, *flags, *PRICED, cwd=tmp_path)
    assert "prices from the flags" in ours.out and "genai-prices" not in ours.out
    shutil.rmtree(site)
    missing = run_script(API, *flags, cwd=tmp_path,
                         env=environment(**without("genai_prices", tmp_path)))
    assert missing.status == 0 and "no price is known, so tokens alone" in missing.out


@pytest.mark.parametrize("flags", [SMALL, ("--lengths", "300,900", "--repeats", "2", *SMALL[2:])],
                         ids=["cache", "all"])
@pytest.mark.parametrize("share", ["0.35", "0.6", "0.8", "0.99"])
def test_max_cost_is_never_passed(tmp_path: Path, share: str, flags: tuple[str, ...]) -> None:
    """By the stub's own count of every request, those before the run too."""
    prices = ("--price-in", "3", "--price-out", "15")
    (whole := tmp_path / "whole").mkdir()
    with wire_stub() as stub:
        assert api(stub, whole, *flags, *prices).status == 0
        all_of_it = cost(usage(stub), "3", "15")
    limit = round(Decimal(share) * all_of_it, 6)
    with wire_stub() as stub:
        done = api(stub, tmp_path, *flags, *prices, "--max-cost", str(limit))
        spent = cost(usage(stub), "3", "15")
    assert Decimal(0) < spent <= limit
    if done.record is None:  # the calibration's bound left nothing for a sample
        assert "nothing was written" in done.err and done.status == 1
        return
    assert done.status == 1 and not done.record["complete"]
    assert "stopped by --max-cost $" in done.err
    shown = show(tmp_path)
    assert shown.status == 0 and "INCOMPLETE" in shown.out and shown.out == done.out
    assert "total" in shown.out


def test_max_cost_holds_where_nothing_is_reported(tmp_path: Path) -> None:
    prices = ("--price-in", "3", "--price-out", "15")
    limit = Decimal("0.02")
    with wire_stub(reports_usage=False) as stub:
        done = api(stub, tmp_path, *SMALL, *prices, "--max-cost", str(limit))
        assert Decimal(0) < cost(usage(stub), "3", "15") <= limit
    assert done.status == 1 and "stopped by --max-cost $0.02" in done.err


def test_a_limit_beyond_the_cost_stops_nothing(tmp_path: Path) -> None:
    with wire_stub() as stub:
        done = api(stub, tmp_path, *SMALL, *PRICED, "--max-cost", "5")
    assert done.status == 0 and done.record is not None and done.record["complete"]
    assert "stopped" not in done.err


def test_failed_requests_are_billed_as_not_reported(tmp_path: Path) -> None:
    with wire_stub(script=[None, None, refused(500, "no")]) as stub:
        done = api(stub, tmp_path, "--only", "output", "--outputs", "4,8", "--repeats", "1",
                   *PRICED)
    assert done.status == 1
    assert "without the tokens and the cost of 1 request that reported none" in done.out


def test_files_returns_what_is_wanted_and_where(tmp_path: Path) -> None:
    args = local_cache.parse(["--csv", "--plot", str(tmp_path / "a.svg")])
    assert output.files(args, tmp_path / "run.json") == {
        "plot": tmp_path / "a.svg", "csv": tmp_path / "run.csv"}
    assert output.files(local_cache.parse([]), tmp_path / "run.json") == {}
