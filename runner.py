"""The run around the experiments: the server it brings, the plan, the journal, and its ends.

Both command lines come here with a backend and settings. Everything said goes to stderr; what was
measured goes to stdout and into the record.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import experiments
from cli import EXIT_INTERRUPTED, EXIT_MEASURED, EXIT_NO_SAMPLE, emit, on_stop_signals
from cli_prompts import under
from embedded import DEMO_CONTEXT_TOKENS, command, demo_model, serve
from failures import ADVICE
from lab import Backend, Lab, Settings
from patience import Patience
from plan import context_needed, estimate_tokens, fit_context
from record import Journal, RecordError, Run, to_text
from remarks import text_columns
from sample import Sample
from tables import render
from timing import Progress
from trouble import Trouble
from verdict import IMPOSSIBLE

BUSY_SHARE = 0.75


def embedded_context(args: argparse.Namespace, wanted: Settings) -> int | None:
    """The context of the server that --demo or --serve is going to start; None without them."""
    if not args.demo and not args.serve:
        return None
    command(demo_model() if args.demo else args.serve, 0)  # raises Trouble before the plan
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

    Raises Trouble where nothing fits.
    """
    fitting, left_out = fit_context(wanted, context_tokens, slots, count or estimate_tokens,
                                    can_restart=not own_server)
    for text in left_out:
        console.say(text, always=True)
    if not fitting.experiments:
        raise Trouble("expected a size that fits the server's context, found none (see above); "
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
        self.is_live = sys.stderr.isatty() and not quiet
        self._live = ""
        self._label = ""
        self._advised: set[str] = set()

    def say(self, text: str, *, always: bool = False) -> None:
        """One line; `always` even under --quiet."""
        if always or not self._quiet:
            self._draw("")
            with contextlib.suppress(OSError):  # nobody reads it; the run goes on
                print(text, file=sys.stderr, flush=True)

    def request(self, asked: Sample) -> None:
        """Show which request is under way."""
        self._label = (f"{asked.experiment} {asked.arm}, "
                       + (f"turn {asked.turn}" if asked.experiment == "cache"
                          else f"repeat {asked.repeat}"))
        self._draw(self._label)

    def progress(self, progress: Progress) -> None:
        """Show how far the prefill of that request has come."""
        done = progress.processed_tokens >= progress.total_tokens
        self._draw(f"{self._label}: " + ("writing" if done else f"prefill "
                   f"{progress.processed_tokens:,} / {progress.total_tokens:,} tokens"))

    def failed(self, sample: Sample) -> None:
        """Why a request failed, and at the first of its kind what to do."""
        assert sample.error is not None
        kind = sample.error.kind
        advice = "" if kind in self._advised else ADVICE.get(kind, "")
        self._advised.add(kind)
        self.say(f"{sample.experiment} {sample.arm} turn {sample.turn} failed: "
                 f"{sample.error.message}" + (f"; {advice}" if advice else ""), always=True)

    def done(self) -> None:
        """Wipe the live line."""
        self._draw("")

    def _draw(self, text: str) -> None:
        if self.is_live and text != self._live:
            columns = shutil.get_terminal_size().columns - 1
            text = text[:columns]
            # Two more columns, for the ^C that a terminal writes behind the line.
            width = min(len(self._live) + 2, columns)
            with contextlib.suppress(OSError):
                sys.stderr.write("\r" + text.ljust(width) + ("" if text else "\r"))
                sys.stderr.flush()
            self._live = text


def run(
    args: argparse.Namespace, wanted: Settings, out: Path, backend: Backend, console: Console,
    patience: Patience, *, endpoint: dict[str, Any], notes: list[str],
) -> int:
    """Run the experiments, keep every sample as it comes, print, and return the exit status."""
    record = _blank_run(args, wanted, endpoint, notes)
    try:
        journal = Journal(out, record)
    except RecordError as error:
        raise Trouble(str(error)) from None
    ended: list[str] = []

    def on_end(text: str) -> None:
        ended.append(text)
        record.notes.append(text)
        console.say(text, always=True)

    lab = Lab(backend=backend, settings=wanted, patience=patience, stall_s=args.stall_timeout,
              on_request=console.request, on_end=on_end,
              on_progress=console.progress if console.is_live else None)
    status = EXIT_NO_SAMPLE
    complete = False
    try:
        for sample in experiments.run(lab):
            journal.add(sample)
            if sample.error is not None:
                console.failed(sample)
            elif not sample.counts:
                console.say(f"{sample.experiment} {sample.arm} turn {sample.turn} left out: "
                            f"{sample.notes[-1]}")
        complete = True
        status = EXIT_MEASURED if _is_answered(record) and not ended else EXIT_NO_SAMPLE
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    finally:
        console.done()
        path = _finish(journal, console, complete=complete)
    if not record.samples:
        console.say("stopped before anything was measured; nothing was written", always=True)
        return status
    if failed := under(args, record):
        console.say(failed, always=True)
        status = EXIT_NO_SAMPLE if status == EXIT_MEASURED else status
    if path is None and status == EXIT_MEASURED:
        status = EXIT_NO_SAMPLE  # measured, but not kept
    status = emit(to_text(record).rstrip() if args.json or path is None
                  else render(record, text_columns()), status)
    if path is not None:
        console.say(f"raw data{'' if complete else ' (incomplete)'}: {path}")
    return status


def _finish(journal: Journal, console: Console, *, complete: bool) -> Path | None:
    """Write the record, whatever ended the run; None where there is none or it can't be written.

    A second Ctrl-C must not cut the writing short.
    """
    on_stop_signals(signal.SIG_IGN)
    try:
        if not journal.run.samples:
            journal.discard()
            return None
        return journal.finish(complete=complete)
    except (RecordError, ValueError) as error:
        console.say(f"warning: {error}; the JSON goes to stdout instead", always=True)
        return None
    finally:
        on_stop_signals(signal.default_int_handler)


def _is_answered(record: Run) -> bool:
    """Whether every condition has a valid sample, and a verdict was possible on each arm."""
    conditions = {(s.experiment, s.arm) for s in record.samples}
    return conditions == {(s.experiment, s.arm) for s in record.samples if s.counts} and not any(
        verdict.code in IMPOSSIBLE for verdict in record.verdicts())


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
    return Run(
        tool=Path(args.prog).stem, command=args.command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={"python": platform.python_version(), "system": platform.system(),
                     "machine": platform.machine(), "cpus": os.cpu_count()},
        endpoint=endpoint, settings=chosen, notes=list(notes),
    )
