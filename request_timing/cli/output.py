"""The flags for what becomes of a run beside its tables: pictures, a page, exports, and money.

Like flags.py, imports nothing that `--help` does not need.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from request_timing.errors import UserError

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from request_timing.costs.money import Prices
    from request_timing.experiments.lab import Settings
    from request_timing.experiments.plan import Planned
    from request_timing.records.run import Run
    from request_timing.records.sample import Sample

BESIDE = ""  # a flag without a name: beside the JSON
SUFFIXES = {"plot": ".png", "report": ".html", "csv": ".csv"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags, in two groups."""
    see = parser.add_argument_group("see it").add_argument
    see("--plot", metavar="FILE", nargs="?", const=BESIDE,
        help="a picture of the run, PNG or SVG (default: beside the JSON; needs matplotlib)")
    see("--report", metavar="FILE", nargs="?", const=BESIDE,
        help="one self-contained HTML page (default: beside the JSON; needs jinja2)")
    see("--csv", metavar="FILE", nargs="?", const=BESIDE,
        help="a row a sample (default: beside the JSON)")
    see("--markdown", action="store_true",
        help="print Markdown, for an issue or a pull request, instead of tables")
    pay = parser.add_argument_group("money (USD)").add_argument
    pay("--price-in", metavar="USD", type=_usd, help="a million input tokens")
    pay("--price-cached", metavar="USD", type=_usd, help="a million of those that were cached")
    pay("--price-out", metavar="USD", type=_usd, help="a million output tokens")
    pay("--max-cost", metavar="USD", type=_usd, help="stop before more than this is spent")


def _usd(text: str) -> Any:
    from request_timing.costs.money import usd

    return usd(text)


def default_suffixes(args: argparse.Namespace) -> list[str]:
    """The suffixes of the files that are wanted beside the JSON under its own name."""
    return [suffix for name, suffix in SUFFIXES.items() if getattr(args, name) == BESIDE]


def renamed(wanted: dict[str, Path], out: Path, new_out: Path) -> dict[str, Path]:
    """The same files where the JSON turned out to be `new_out`: those named after it follow it."""
    return {name: new_out.with_suffix(SUFFIXES[name]) if path == out.with_suffix(SUFFIXES[name])
            else path for name, path in wanted.items()}


def files(args: argparse.Namespace, out: Path) -> dict[str, Path]:
    """Which files are wanted beside the JSON. Raises UserError, before anything is measured,
    for one that could not be written."""
    from pathlib import Path

    if args.markdown and args.json:
        raise UserError("--markdown and --json: expected one of them, found both; leave one out")
    wanted: dict[str, Path] = {}
    for name, suffix in SUFFIXES.items():
        given = getattr(args, name)
        if given is None:
            continue
        path = out.with_suffix(suffix) if given == BESIDE else Path(given)
        if not path.parent.is_dir():
            raise UserError(
                f"--{name} {path}: expected a folder {path.parent}, found none; make it first"
            )
        if path.resolve() in [taken.resolve() for taken in (out, *wanted.values())]:
            raise UserError(
                f"--{name} {path}: expected a file of its own, found the name of another "
                "result of this run; give it another name"
            )
        if path.exists() or path.is_symlink():
            raise UserError(f"--{name} {path}: it exists, and a result is never overwritten; give "
                          "another name, or move the file")
        wanted[name] = path
    if "plot" in wanted:
        from request_timing.pictures.plot import check

        check(wanted["plot"])
    if "report" in wanted:
        from request_timing.report.page import check as has_template

        has_template()
    return wanted


def write(wanted: dict[str, Path], run: Run, say: Callable[[str], None]) -> bool:
    """Write them; a line for each, and whether all could be. What was measured is safe by now."""
    done = True
    for name, path in wanted.items():
        try:
            _write(name, path, run)
            say(f"{name}: {path}")
        except (UserError, OSError, ValueError) as error:
            done = False
            say(f"warning: no {name}: {error}")
    return done


def _write(name: str, path: Path, run: Run) -> None:
    if name == "plot":
        from request_timing.pictures.plot import write as draw

        draw([run], path)
        return
    if name == "report":
        text = html_of(run)
    else:
        from request_timing.report.exports import to_csv

        text = to_csv(run)
    with path.open("x", encoding="utf-8", newline="") as file:
        file.write(text)


def html_of(run: Run) -> str:
    """The page of a run, with its charts, or without matplotlib with the reason."""
    from request_timing.pictures import plot
    from request_timing.report.page import page

    try:
        charts = plot.svg_panels(run)
    except UserError as error:
        return page(run, {}, no_charts=str(error))
    return page(run, charts)


def text_of(args: argparse.Namespace, run: Run, columns: int) -> str:
    """What is printed of a run: its tables and its bill, Markdown, or the JSON."""
    if args.json:
        from request_timing.findings.derive import to_text

        return to_text(run).rstrip()
    if args.markdown:
        from request_timing.report.exports import to_markdown

        return to_markdown(run).rstrip()
    from request_timing.report.bill import of_run
    from request_timing.report.text import render

    lines = of_run(run)
    return render(run, columns) + ("\n\n" + "\n".join(lines) if lines else "")


def prices(args: argparse.Namespace, url: str, model: str | None) -> Prices | None:
    """The prices that the flags give, else those that genai-prices knows. Raises UserError for half
    of them, and for a limit with no price."""
    from datetime import UTC, datetime

    from request_timing.costs.money import from_flags
    from request_timing.costs.price_list import listed_prices

    found = from_flags(args.price_in, args.price_cached, args.price_out)
    if found is None and url and model:
        found = listed_prices(url, model, datetime.now(UTC))
    if found is None and args.max_cost is not None:
        raise UserError("--max-cost: expected a known price, found none; give --price-in and "
                      "--price-out, or install genai-prices")
    return found


def estimate(planned: Sequence[Planned], known: Prices | None, *, costs: bool = False) -> list[str]:
    """The plan's cost; for a run that costs money and of which no price is known, that."""
    from request_timing.experiments.budget import estimate as most
    from request_timing.report.bill import NO_PRICE, estimate_lines

    if known is None:
        return list(NO_PRICE) if costs else []
    return estimate_lines(most(planned, known), known)


def calibration_cost(args: argparse.Namespace, known: Prices | None, settings: Settings) -> Decimal:
    """The most that the requests before the run can cost, which --max-cost counts as spent.

    Raises UserError where that alone passes --max-cost: before a token is spent.
    """
    from decimal import Decimal

    from request_timing.costs.money import dollars
    from request_timing.experiments.budget import calibration_bound

    if known is None or args.max_cost is None:
        return Decimal(0)
    most = calibration_bound(settings, known)
    if most > args.max_cost:
        raise UserError(f"--max-cost {dollars(args.max_cost)}: expected at least {dollars(most)}, "
                      "which the small requests before the run could cost; give more")
    return most


def spent(known: Prices | None) -> Callable[[Sequence[Sample]], str]:
    """What samples cost, in words; nothing where no price is known."""
    from request_timing.costs.money import Cost, dollars, sample_cost

    def words(samples: Sequence[Sample]) -> str:
        if known is None:
            return ""
        costs = [cost for s in samples if (cost := sample_cost(s, known)) is not None]
        return dollars(sum(costs, Cost()).high_usd)

    return words
