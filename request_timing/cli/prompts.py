"""The flags for one's own captured prompts: --explain, --replay, --record, and what they do.

Like flags.py, imports nothing that `--help` does not need.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from request_timing.cli.flags import EXIT_MEASURED, emit
from request_timing.cli.values import number_to
from request_timing.errors import UserError

if TYPE_CHECKING:
    from request_timing.experiments.lab import Settings
    from request_timing.records.run import Run


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags, in a group of their own."""
    add = parser.add_argument_group("your own prompts").add_argument
    add("--explain", metavar="PATH",
        help="say what breaks the prefix between these captured prompts; nothing is sent")
    add("--replay", metavar="PATH", help="send these captured prompts, and measure what is reused")
    add("--what-if", action="store_true",
        help="replay them a second time with the breaks mended, and compare")
    add("--fail-under", metavar="X", type=_share,
        help="exit 1 if the median reuse from turn 2 of --replay is below X, such as 0.9")
    add("--record", metavar="PORT", type=_port,
        help="pass everything on from this port, and keep the prompts for --replay")


def _share(text: str) -> float:
    return number_to(1, "a share from 0 to 1", text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port such as 8081, found {text!r}")
    return int(text)


def check(args: argparse.Namespace) -> None:
    """Raises UserError for flags that do not go together."""
    chosen = [name for name in ("explain", "replay", "record", "show")
              if getattr(args, name) is not None]
    if len(chosen) > 1:
        raise UserError(f"--{chosen[0]} and --{chosen[1]}: expected one of them, found both; leave "
                      "one out")
    for name in ("what_if", "fail_under"):
        if getattr(args, name) not in (None, False) and args.replay is None:
            raise UserError(f"--{name.replace('_', '-')}: it belongs to --replay, which is not "
                          "given; name the prompts")
    if args.replay is not None and args.doc is not None:
        raise UserError("--replay and --doc: the prompts are the material; leave one out")


def explain(args: argparse.Namespace) -> int:
    """Print what the captured prompts themselves tell."""
    from pathlib import Path

    from request_timing.report.explain import explain as explained

    return emit(explained(Path(args.explain)), EXIT_MEASURED)


def with_turns(
    args: argparse.Namespace, settings: Settings, say: Callable[[str], None], *, is_api: bool
) -> tuple[Settings, list[str]]:
    """The settings with the turns to replay, and lines for the record on how they were mended.

    Says what was understood. Raises UserError.
    """
    from dataclasses import replace
    from pathlib import Path

    from request_timing.experiments.replay import check as replayable
    from request_timing.experiments.replay import of_one_model
    from request_timing.prompts.captured import read

    if args.replay is None:
        return settings, []
    captured = read(Path(args.replay))
    for line in (f"replay: {captured.what}", *captured.notes):
        say(line)
    replayable(captured.turns, is_api=is_api)
    keeps_models = is_api and not (args.model or args.demo or args.serve)
    turns = captured.turns if keeps_models else of_one_model(captured.turns)
    settings = replace(settings, captured=turns)
    if not args.what_if:
        return settings, []
    from request_timing.explain.turns import explain_turns
    from request_timing.repair.repairs import repair

    repaired = repair(turns, [t.comparison for t in explain_turns(turns)])
    if repaired.turns == turns:
        raise UserError(
            "--what-if: expected a break that can be mended, found none; --explain says "
            "what there is"
        )
    return replace(settings, mended=repaired.turns), [f"mended: {n}" for n in repaired.lines]


def record(args: argparse.Namespace, upstream_url: str, key: str | None,
           say: Callable[[str], None]) -> int:
    """Stand in front of the upstream until a stop signal, and keep the prompts."""
    from datetime import UTC, datetime
    from pathlib import Path

    from request_timing.recorder.record import serve

    out = Path(args.out or f"prompts-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl")
    serve(upstream_url, args.record, out, say=say, key=key, may_rename=args.out is None)
    return EXIT_MEASURED


def under(args: argparse.Namespace, run: Run) -> str | None:
    """Why --fail-under fails this run; None where it does not, or is not given."""
    if args.fail_under is None:
        return None
    from request_timing.findings.measures import AS_SENT, of_experiment
    from request_timing.findings.replay import reaches
    from request_timing.records.names import REPLAY
    from request_timing.report.replay_tables import median_reuse

    samples = of_experiment(run.samples, REPLAY)
    found = median_reuse(samples)
    if found is None:
        return ("--fail-under: expected reported cached tokens, found none; the server does not "
                "report them")
    if found < args.fail_under:
        digits = 4 if f"{found:.4g}" != f"{args.fail_under:.4g}" else 9
        foreign = any(reach.is_too_much for reach in reaches(samples, AS_SENT))
        return (f"--fail-under: expected a median reuse of {100 * args.fail_under:.{digits}g}% "
                f"from turn 2, found {100 * found:.{digits}g}%" + (
                    "; what no earlier turn of this replay left is not counted" if foreign else ""))
    return None

