"""The run around the experiments: the server it brings, the plan, the journal, and its ends.

Both command lines come here with a backend and settings. Everything said goes to stderr; what was
measured goes to stdout and into the record.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from request_timing.cli import output
from request_timing.cli.flags import (
    EXIT_INTERRUPTED,
    EXIT_MEASURED,
    EXIT_NO_SAMPLE,
    emit,
    on_stop_signals,
)
from request_timing.cli.live import Live
from request_timing.cli.prompts import under
from request_timing.costs.money import TOKENS_PER_CHAR_AT_MOST, ZERO, Prices, prices_json
from request_timing.errors import UserError
from request_timing.experiments import basic
from request_timing.experiments.budget import within
from request_timing.experiments.lab import Lab, Settings, Stopped
from request_timing.experiments.plan import Planned, context_needed, estimate_tokens, fit_context
from request_timing.findings.derive import run_verdicts, to_text
from request_timing.findings.verdict import IMPOSSIBLE
from request_timing.records.journal import Journal
from request_timing.records.run import RecordError, Run
from request_timing.records.sample import Sample
from request_timing.report.remarks import text_columns
from request_timing.servers.backend import Backend
from request_timing.servers.failures import ADVICE
from request_timing.servers.patience import Patience
from request_timing.servers.spawn import DEMO_CONTEXT_TOKENS, command, demo_model, serve

BUSY_SHARE = 0.75


def embedded_context(args: argparse.Namespace, wanted: Settings) -> int | None:
    """The context of the server that --demo or --serve is going to start; None without them."""
    if not args.demo and not args.serve:
        return None
    command(demo_model() if args.demo else args.serve, 0)  # raises UserError before the plan
    return DEMO_CONTEXT_TOKENS if args.demo else context_needed(wanted)


@contextlib.contextmanager
def embedded_server(
    args: argparse.Namespace, context_tokens: int | None, console: Console
) -> Iterator[str | None]:
    """The URL of the server that --demo or --serve asks for, while the context lasts; else None."""
    if context_tokens is None:
        yield None
        return
    model = demo_model() if args.demo else args.serve
    console.say(f"starting a llama-server of {Path(model).name}\n"
                f"      with {context_tokens:,} tokens of context")
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY_SHARE * (os.cpu_count() or 1):
        console.say(f"warning: this machine is busy (load {os.getloadavg()[0]:.1f}): what the "
                    "server reports in\n      milliseconds will be too much, tokens stay right")
    with serve(model, context_tokens) as url:
        yield url


def fit(
    wanted: Settings, context_tokens: int | None, console: Console, *, slots: int = 1,
    count: Callable[[str], int] | None = None, own_server: bool = True,
) -> tuple[Settings, list[str]]:
    """The settings cut to the context, and a line, also said, for each size that was left out.

    Raises UserError where nothing fits.
    """
    fitting, left_out = fit_context(wanted, context_tokens, slots, count or estimate_tokens,
                                    can_restart=not own_server, native=count is not None)
    for text in left_out:
        console.say(text, always=True)
    if not fitting.experiments:
        raise UserError("expected a size that fits the server's context, found none (see above); "
                      "give smaller sizes, or the server more context")
    return fitting, left_out


def announce(args: argparse.Namespace, console: Console, lines: list[str]) -> bool:
    """Say what is coming before the first token is spent; True where that is all (--dry-run)."""
    if args.dry_run:
        emit("\n".join(lines), EXIT_MEASURED)
    else:
        for text in lines:
            console.say(text)
    return bool(args.dry_run)


class Console:
    """What goes to stderr: words about the run, and one live line on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.live = Live(is_on=sys.stderr.isatty() and not quiet)
        self._advised: set[str] = set()

    @property
    def is_live(self) -> bool:
        """Whether there is a live line."""
        return self.live.is_on

    def say(self, text: str, *, always: bool = False) -> None:
        """One line; `always` even under --quiet."""
        if always or not self._quiet:
            self.live.say(text)

    def failed(self, sample: Sample) -> None:
        """Why a request failed, and at the first of its kind what to do."""
        assert sample.error is not None
        kind = sample.error.kind
        advice = "" if kind in self._advised else ADVICE.get(kind, "")
        self._advised.add(kind)
        self.say(f"{sample.experiment} {sample.arm} turn {sample.turn} failed: "
                 f"{sample.error.message}" + (f"; {advice}" if advice else ""), always=True)


def run(
    args: argparse.Namespace, wanted: Settings, out: Path, backend: Backend, console: Console,
    patience: Patience, *, endpoint: dict[str, Any], notes: list[str],
    planned: Sequence[Planned], beside: dict[str, Path], prices: Prices | None = None,
    costs: bool = False, spent_before: Decimal = ZERO,
) -> int:
    """Run the experiments, keep every sample as it comes, print, and return the exit status.

    beside: the files that are wanted beside the record; costs: whether this run costs money, so
    that a bill belongs to it; spent_before: what the requests before it can have cost.
    """
    record = _blank_run(args, wanted, endpoint, notes)
    if costs:
        record.settings["prices"] = None if prices is None else prices_json(prices)
    journal = Journal(out, record, may_rename=args.out is None)
    if journal.out != out:  # another run took the default name first
        beside = output.renamed(beside, out, journal.out)
    ended: list[str] = []

    def on_end(text: str) -> None:
        ended.append(text)
        record.notes.append(text)
        console.say(text, always=True)

    lab = Lab(backend=backend, settings=wanted, patience=patience, stall_s=args.stall_timeout,
              on_request=console.live.request, on_end=on_end,
              on_progress=console.live.progress if console.is_live else None)
    if args.max_cost is not None and prices is not None:
        # A token has a byte at least, so ASCII text has one a character at the most.
        plain = (wanted.document or "").isascii() and not wanted.captured
        lab.before_request = within(args.max_cost, prices, record.samples, before=spent_before,
                                    tokens_per_char=1 if plain else TOKENS_PER_CHAR_AT_MOST)
    console.live.start(planned, wanted, interleave=backend.interleave_arms,
                       money=output.spent(prices))
    status, complete = EXIT_NO_SAMPLE, False
    try:
        status, complete = _measure(lab, journal, console)
    finally:
        path = _finish(journal, console, complete=complete)  # first: a terminal may be stuck
        console.live.stop()
    if not record.samples:
        console.say("stopped before anything was measured; nothing was written", always=True)
        return status
    if failed := under(args, record):
        console.say(failed, always=True)
    printed = _print(args, record, console, whole=path is None)
    if path is not None:
        console.say(f"raw data{'' if complete else ' (incomplete)'}: {path}")
    written = output.write(beside, record, console.say)
    whole = not failed and not ended and printed and written and path is not None
    return EXIT_NO_SAMPLE if status == EXIT_MEASURED and not whole else status


def _measure(lab: Lab, journal: Journal, console: Console) -> tuple[int, bool]:
    """Every sample, as it comes, into the journal; the exit status, and whether it came to its end.
    """
    record = journal.run
    try:
        for sample in basic.run(lab):
            journal.add(sample)
            console.live.answered(record.samples)
            if sample.error is not None:
                console.failed(sample)
            elif not sample.counts:
                console.say(f"{sample.experiment} {sample.arm} turn {sample.turn} left out: "
                            f"{sample.left_out}")
    except Stopped as stopped:
        lab.on_end(str(stopped))
        return EXIT_NO_SAMPLE, False
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED, False
    return EXIT_MEASURED if _is_answered(record) else EXIT_NO_SAMPLE, True


def _print(args: argparse.Namespace, record: Run, console: Console, *, whole: bool) -> bool:
    """The tables, or the whole record where it could not be written to its file; and whether
    stdout took them."""
    try:
        emit(to_text(record).rstrip() if whole
             else output.text_of(args, record, text_columns()), EXIT_MEASURED)
    except UserError as trouble:  # what was measured is in its file by now
        console.say(f"warning: {trouble}", always=True)
        return False
    return True


def _finish(journal: Journal, console: Console, *, complete: bool) -> Path | None:
    """Write the record, whatever ended the run; None where there is none or it can't be written.

    A second Ctrl-C must not cut the writing short.
    """
    on_stop_signals(signal.SIG_IGN)
    try:
        if not journal.run.samples:
            journal.discard()
            return None
        return journal.finish(to_text, complete=complete)
    except (RecordError, ValueError) as error:
        console.say(f"warning: {error}; the JSON goes to stdout instead", always=True)
        return None
    finally:
        on_stop_signals(signal.default_int_handler)


def _is_answered(record: Run) -> bool:
    """Whether every condition has a valid sample, and a verdict was possible on each arm."""
    conditions = {(s.experiment, s.arm) for s in record.samples}
    return conditions == {(s.experiment, s.arm) for s in record.samples if s.counts} and not any(
        verdict.code in IMPOSSIBLE for verdict in run_verdicts(record))


def _blank_run(
    args: argparse.Namespace, wanted: Settings, endpoint: dict[str, Any], notes: list[str]
) -> Run:
    chosen = asdict(replace(wanted, captured=(), mended=())) | {
        "document": None if args.doc is None else Path(args.doc).name,
        "document_chars": wanted.document and len(wanted.document),
        "captured": None if args.replay is None else Path(args.replay).name,
        "captured_turns": len(wanted.captured), "what_if": bool(wanted.mended),
        "looks": len(wanted.looks) or 1,
    }
    del chosen["mended"]  # prompts, as `captured` was
    return Run(
        tool=Path(args.prog).stem, command=args.command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={"python": platform.python_version(), "system": platform.system(),
                     "machine": platform.machine(), "cpus": os.cpu_count()},
        endpoint=endpoint, settings=chosen, notes=list(notes),
    )
