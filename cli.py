"""What both command lines share: the flags, the run around the experiments, and its ends.

Imported before the command line is parsed, so it imports nothing that `--help` does not need;
what measuring needs is imported where measuring begins.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trouble import Trouble, one_line

if TYPE_CHECKING:
    from experiments import Backend, Settings
    from record import Run, Sample
    from timing import Progress

EXIT_MEASURED, EXIT_NO_SAMPLE, EXIT_TROUBLE, EXIT_INTERRUPTED = 0, 1, 2, 130
EXPERIMENT_NAMES = ("length", "output", "cache")
LINE_COLUMNS = 79


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A set of defaults: tokens, turns, repeats."""

    lengths: tuple[int, ...]
    outputs: tuple[int, ...]
    context: int
    turns: int
    repeats: int


# Sizes that let all three experiments finish within three minutes on two cores.
DEMO = Sizes(lengths=(250, 500, 1000, 2000), outputs=(16, 32, 64, 128), context=2000, turns=6,
             repeats=2)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_TROUBLE, f"{self.prog}: {message} (--help lists the flags)\n")


def parse(parser: Parser, argv: list[str] | None) -> argparse.Namespace:
    """The parsed flags, and as `command` the line that the record keeps, without credentials."""
    words = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(words)
    args.prog = parser.prog
    args.command = [parser.prog, *(_without_credentials(word) for word in words)]
    return args


def _without_credentials(word: str) -> str:
    """A word of the command line with user, password and query cut out of any URL in it."""
    scheme, separator, rest = word.partition("://")
    if not separator:
        return word
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def whole_number(text: str) -> int:
    """A count of at least 1, for argparse."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, found {text!r}")
    return int(text)


def seed_number(text: str) -> int:
    """Any whole number, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None


def ascending(text: str) -> tuple[int, ...]:
    """Sizes such as 1000,2000, for argparse: whole numbers from 1 up, each larger than the last."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(
            f"expected whole numbers such as 1000,2000, found {text!r}")
    numbers = tuple(int(part) for part in parts)
    if numbers[0] < 1 or any(a >= b for a, b in itertools.pairwise(numbers)):
        raise argparse.ArgumentTypeError(
            f"expected sizes from 1 up, each larger than the one before, found {text!r}")
    return numbers


def experiment_names(text: str) -> tuple[str, ...]:
    """Names such as length,cache, for argparse, in the order in which they run."""
    names = {name.strip() for name in text.split(",")}
    if unknown := sorted(names - set(EXPERIMENT_NAMES)):
        raise argparse.ArgumentTypeError(
            f"expected some of {','.join(EXPERIMENT_NAMES)}, found {unknown[0]!r}")
    return tuple(name for name in EXPERIMENT_NAMES if name in names)


def add_server_flags(where: Any) -> None:
    """--demo and --serve, which bring a server of their own."""
    where.add_argument("--serve", metavar="MODEL",
                       help="start a llama-server of this GGUF, or hf:REPO:QUANT, and measure it")
    where.add_argument("--demo", action="store_true",
                       help="start a small real model, with sizes that fit a laptop")


def add_common_flags(parser: argparse.ArgumentParser, sizes: Sizes) -> None:
    """The flags that mean the same in both scripts; `sizes` are the defaults."""

    def listed(numbers: tuple[int, ...]) -> str:
        return ",".join(map(str, numbers))

    add = parser.add_argument
    add("--only", metavar="NAME[,NAME]", type=experiment_names, default=EXPERIMENT_NAMES,
        help=f"of {', '.join(EXPERIMENT_NAMES)} (default: all three)")
    add("--doc", metavar="FILE", help="your own text (UTF-8) as the document of cache")
    add("--lengths", metavar="N[,N]", type=ascending,
        help=f"input tokens of length (default {listed(sizes.lengths)})")
    add("--outputs", metavar="N[,N]", type=ascending,
        help=f"output tokens of output (default {listed(sizes.outputs)})")
    add("--context", metavar="N", type=whole_number,
        help=f"tokens of the document of cache (default {sizes.context})")
    add("--turns", metavar="N", type=whole_number,
        help=f"turns of each arm of cache (default {sizes.turns})")
    add("--repeats", metavar="N", type=whole_number,
        help=f"requests for each size of length and output (default {sizes.repeats})")
    add("--seed", metavar="N", type=seed_number, default=0,
        help="filler text and order; prompts still begin anew in each run (default 0)")
    add("--out", metavar="FILE", help="the raw JSON (default: a new file in this folder)")
    add("--json", action="store_true", help="print the JSON instead of tables")
    add("--quiet", action="store_true", help="no progress on stderr")
    add("--dry-run", action="store_true", help="say what would be sent, and stop")
    add("--show", metavar="FILE", help="print the tables of a saved run, and measure nothing")
    add("--version", action="version", version=f"%(prog)s {_version()}")


def _version() -> str:
    from version import VERSION

    return VERSION


def settings(args: argparse.Namespace, defaults: Sizes) -> Settings:
    """The settings that the flags, over the defaults of the script or of the demo, ask for."""
    from document import read_document
    from experiments import Settings

    sizes = DEMO if args.demo else defaults
    return Settings(
        experiments=args.only,
        lengths=args.lengths or sizes.lengths, outputs=args.outputs or sizes.outputs,
        context=args.context or sizes.context, turns=args.turns or sizes.turns,
        repeats=args.repeats or sizes.repeats, seed=args.seed,
        document=None if args.doc is None else read_document(args.doc),
    )


def output_path(args: argparse.Namespace, tool: str) -> Path:
    """Where the record will go; raises Trouble, before the run, where it could not."""
    from datetime import UTC, datetime

    out = Path(args.out or f"{tool}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")
    if not out.parent.is_dir():
        raise Trouble(f"--out {out}: expected a folder {out.parent}, found none; make it first")
    if out.is_dir():
        raise Trouble(f"--out {out}: expected the name of a file, found a directory; add a name")
    return out


def embedded_context(args: argparse.Namespace, wanted: Settings) -> int | None:
    """The context of the server that --demo or --serve is going to start; None without them."""
    if args.demo:
        from embedded import DEMO_CONTEXT_TOKENS

        return DEMO_CONTEXT_TOKENS
    if args.serve:
        from plan import context_needed

        return context_needed(wanted)
    return None


@contextlib.contextmanager
def embedded_server(
    args: argparse.Namespace, context_tokens: int | None, console: Console
) -> Iterator[str | None]:
    """The URL of the server that --demo or --serve asks for, while the context lasts; else None."""
    if context_tokens is None:
        yield None
        return
    from embedded import demo_model, serve

    model = demo_model() if args.demo else args.serve
    console.say(f"starting a llama-server of {Path(model).name}, {context_tokens:,} tokens of "
                "context")
    with serve(model, context_tokens) as url:
        yield url


def fit(
    wanted: Settings, context_tokens: int, console: Console, *, slots: int = 1,
    count: Callable[[str], int] | None = None, own_server: bool = True,
) -> tuple[Settings, list[str]]:
    """The settings cut to the context, and a line, also said, for each size that was left out.

    Raises Trouble where nothing fits.
    """
    from plan import estimate_tokens, fit_context

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
    for text in lines:
        if args.dry_run:
            print(text)
        else:
            console.say(text)
    return bool(args.dry_run)


class Console:
    """What goes to stderr: words about the run, and one live line on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.is_live = sys.stderr.isatty() and not quiet
        self._live = ""
        self._label = ""

    def say(self, text: str, *, always: bool = False) -> None:
        """One line; `always` even under --quiet."""
        if always or not self._quiet:
            self._draw("")
            print(text, file=sys.stderr, flush=True)

    def request(self, asked: Sample) -> None:
        """Show which request is under way."""
        self._label = (f"{asked.experiment} {asked.arm}, "
                       + (f"turn {asked.turn}" if asked.experiment == "cache"
                          else f"repeat {asked.repeat}"))
        self._draw(self._label)

    def progress(self, progress: Progress) -> None:
        """Show how far the prefill of that request has come."""
        self._draw(f"{self._label}: prefill {progress.processed_tokens:,} / "
                   f"{progress.total_tokens:,} tokens")

    def done(self) -> None:
        """Wipe the live line."""
        self._draw("")

    def _draw(self, text: str) -> None:
        if self.is_live and text != self._live:
            text = text[:LINE_COLUMNS]
            sys.stderr.write("\r" + text.ljust(len(self._live)) + ("" if text else "\r"))
            sys.stderr.flush()
            self._live = text


def run(
    args: argparse.Namespace, wanted: Settings, out: Path, backend: Backend, console: Console, *,
    endpoint: dict[str, Any], notes: list[str],
) -> int:
    """Run the experiments, keep every sample as it comes, print, and return the exit status."""
    import experiments
    from record import Journal, RecordError, to_text
    from tables import render
    from timing import RequestFailed

    record = _blank_run(args, wanted, endpoint, notes)
    try:
        journal = Journal(out, record)
    except RecordError as error:
        raise Trouble(str(error)) from None
    lab = experiments.Lab(backend=backend, settings=wanted, on_request=console.request,
                          on_progress=console.progress if console.is_live else None)
    status, complete = EXIT_MEASURED, False
    try:
        for sample in experiments.run(lab):
            journal.add(sample)
            if sample.error is not None:
                console.say(f"{sample.experiment} {sample.arm} turn {sample.turn} failed: "
                            f"{sample.error.message}", always=True)
        complete = True
        status = EXIT_MEASURED if _every_condition_measured(record) else EXIT_NO_SAMPLE
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except RequestFailed as failed:
        # Between samples, where a prompt is sized; what was measured is kept all the same.
        status = EXIT_NO_SAMPLE
        console.say(f"stopped: the server does not answer any more ({failed})", always=True)
    finally:
        _on_stop_signals(signal.SIG_IGN)  # a second Ctrl-C must not cut the writing short
        console.done()
        path = _finish(journal, complete, console)
    if path is None and not record.samples:
        console.say("stopped before anything was measured; nothing was written", always=True)
        return status
    if args.json or path is None:
        print(to_text(record), end="")
    else:
        print(render(record))
    if path is not None:
        console.say(f"raw data{'' if complete else ' (incomplete)'}: {path}")
    return status


def _finish(journal: Any, complete: bool, console: Console) -> Path | None:
    """Write the record, whatever ended the run; None where there is none or it can't be written."""
    from record import RecordError

    if not journal.run.samples:
        journal.discard()
        return None
    try:
        path: Path = journal.finish(complete=complete)
        return path
    except RecordError as error:
        console.say(f"warning: {error}; the JSON goes to stdout instead", always=True)
        return None


def _every_condition_measured(record: Run) -> bool:
    conditions = {(s.experiment, s.arm) for s in record.samples}
    return conditions == {(s.experiment, s.arm) for s in record.samples if s.counts}


def _blank_run(
    args: argparse.Namespace, wanted: Settings, endpoint: dict[str, Any], notes: list[str]
) -> Run:
    import platform
    from dataclasses import asdict
    from datetime import UTC, datetime

    from record import Run

    chosen = asdict(wanted) | {"document": None if args.doc is None else Path(args.doc).name,
                               "document_chars": wanted.document and len(wanted.document)}
    return Run(
        tool=Path(args.prog).stem, command=args.command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={"python": platform.python_version(), "system": platform.system(),
                     "machine": platform.machine(), "cpus": os.cpu_count()},
        endpoint=endpoint, settings=chosen, notes=list(notes),
    )


def _on_stop_signals(action: Any) -> None:
    """What SIGINT, SIGTERM and SIGHUP do from now on."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), action)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def show(args: argparse.Namespace) -> int:
    """Print a saved run's tables, or its JSON with all that is derived computed anew."""
    from record import RecordError, load_run, to_text
    from tables import render

    try:
        saved = load_run(Path(args.show))
    except RecordError as error:
        raise Trouble(str(error)) from None
    print(to_text(saved).rstrip() if args.json else render(saved))
    return EXIT_MEASURED


def guard(prog: str, body: Callable[[], int]) -> int:
    """Run `body`; whatever ends it early becomes one line and an exit status.

    A kill counts as Ctrl-C does. A reader that closes the pipe early ends the output, no more:
    by then the record is written.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _on_stop_signals(_interrupt)
    try:
        status = body()
        sys.stdout.flush()
        return status
    except Trouble as trouble:
        print(f"{prog}: {one_line(trouble, limit=1000)}", file=sys.stderr)
        return EXIT_TROUBLE
    except KeyboardInterrupt:
        print(f"{prog}: interrupted before anything was measured", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_MEASURED
