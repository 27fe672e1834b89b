"""`request-timing`: everything that works on saved files, a command each.

    request-timing show RUN.json                 # the tables of a saved run
    request-timing plot RUN.json                 # a picture, RUN.png
    request-timing report RUN.json               # a page, RUN.html
    request-timing compare A.json B.json         # what differs between two runs
    request-timing explain prompts.jsonl         # what breaks the prefix between captured prompts
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from request_timing.cli import flags
from request_timing.errors import UserError

PROG = "request-timing"


def build_parser() -> flags.Parser:
    """The command line: one subcommand per thing that can be done with a saved file."""
    parser = flags.Parser(
        prog=PROG, description="Show, draw, compare and explain saved runs and captured prompts.",
        epilog="README.md and docs/ say how to read the result.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {flags.version()}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], str], text: str) -> flags.Parser:
        added: flags.Parser = commands.add_parser(name, help=text, description=f"{text}.")
        added.set_defaults(run=run)
        return added

    show = command("show", show_run, "print the tables of a saved run")
    show.add_argument("saved", metavar="RUN.json",
                      help="a saved run, or the journal that a killed run left")
    show.add_argument("--json", action="store_true", help="print the JSON instead of tables")
    show.add_argument("--markdown", action="store_true", help="print Markdown instead of tables")
    plot = command("plot", plot_runs, "draw saved runs as one picture")
    plot.add_argument("runs", nargs="+", metavar="RUN.json", help="a saved run")
    plot.add_argument("--out", metavar="FILE",
                      help="the picture, .png or .svg (default: the first run's name, .png)")
    report = command("report", report_run, "write one self-contained HTML page")
    report.add_argument("saved", metavar="RUN.json", help="a saved run")
    report.add_argument("--out", metavar="FILE", help="the page (default: RUN.html beside it)")
    compare = command("compare", compare_runs, "compare two saved runs")
    compare.add_argument("a", metavar="A.json", help="the run to compare with")
    compare.add_argument("b", metavar="B.json", help="the other run")
    explain = command("explain", explain_prompts,
                      "say what breaks the prefix between captured prompts")
    explain.add_argument("prompts", metavar="PATH", help="a file or folder of captured prompts")
    return parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    return flags.parse(build_parser(), argv)


def main(argv: list[str] | None = None) -> int:
    """Parse, run the command, print what it made. Returns the exit status."""
    args = parse(argv)
    return flags.guard(f"{PROG} {args.name}",
                       lambda: flags.emit(args.run(args), flags.EXIT_MEASURED))


def show_run(args: argparse.Namespace) -> str:
    """The tables of a saved run, or all of it as JSON or Markdown."""
    from request_timing.cli import output
    from request_timing.records.run import load_run, sound
    from request_timing.report.remarks import text_columns

    if args.json and args.markdown:
        raise UserError("--markdown and --json: expected one of them, found both; leave one out")
    with sound(args.saved):
        return output.text_of(args, load_run(Path(args.saved)), text_columns())


def plot_runs(args: argparse.Namespace) -> str:
    """Draw the runs; the name of the picture."""
    from request_timing.pictures.plot import MOST_RUNS, check, drawable, write

    paths = [Path(name) for name in args.runs]
    out = Path(args.out) if args.out is not None else paths[0].with_suffix(".png")
    check(out)
    if len(paths) > MOST_RUNS:
        raise UserError(f"expected at most {MOST_RUNS} runs in a picture, found {len(paths)}; "
                        "draw some at a time")
    write([drawable(path) for path in paths], out)
    return str(out)


def report_run(args: argparse.Namespace) -> str:
    """Write the page, never over another file; its name."""
    from request_timing.cli.output import html_of
    from request_timing.records.run import load_run, sound

    out = Path(args.out) if args.out else Path(args.saved).with_suffix(".html")
    with sound(args.saved):
        html = html_of(load_run(Path(args.saved)))
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(html)
    except FileExistsError:
        raise UserError(f"{out} exists, and is not overwritten: give --out another name, or move "
                        "it") from None
    except OSError as error:
        raise UserError(f"--out {out}: cannot write there ({error.strerror}); give a path in a "
                        "folder that exists and is writable") from None
    return str(out)


def compare_runs(args: argparse.Namespace) -> str:
    """What differs between two runs, and the ratios of their times."""
    from request_timing.records.run import load_run, sound
    from request_timing.report.compare import render

    with sound(f"{args.a}, {args.b}"):
        return render(load_run(Path(args.a)), load_run(Path(args.b)), (args.a, args.b))


def explain_prompts(args: argparse.Namespace) -> str:
    """What breaks the prefix between captured prompts; nothing is sent."""
    from request_timing.report.explain import explain

    return explain(Path(args.prompts))
