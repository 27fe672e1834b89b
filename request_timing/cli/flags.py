"""What both command lines share: the flags, what they mean, and how a program ends.

Imported before the command line is parsed, so it imports nothing that `--help` does not need (no
dataclasses, no pathlib: they would double its time); the rest is imported where it is used.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from request_timing.cli.values import (
    ascending,
    experiment_names,
    positive_seconds,
    seconds,
    seed_number,
    shapes,
    whole_number,
)
from request_timing.errors import UserError, one_line
from request_timing.records.names import DEFAULT_EXPERIMENTS, EXPERIMENT_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from request_timing.experiments.lab import Settings

EXIT_MEASURED, EXIT_NO_SAMPLE, EXIT_TROUBLE, EXIT_INTERRUPTED = 0, 1, 2, 130
MAX_WAIT_S = 60


class Sizes(NamedTuple):
    """A set of defaults: tokens, turns, repeats."""

    lengths: tuple[int, ...]
    outputs: tuple[int, ...]
    context: int
    turns: int
    repeats: int
    pauses: tuple[int, ...] = ()


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one line, and that guesses at no flag."""

    def __init__(self, **known: Any) -> None:
        super().__init__(**known, allow_abbrev=False)

    def _nearest(self, flag: str) -> str:
        import difflib

        commands = [parser for action in self._actions if isinstance(action.choices, dict)
                    for parser in action.choices.values()
                    if isinstance(parser, argparse.ArgumentParser)]
        known = [name for parser in (self, *commands)
                 for action in parser._actions for name in action.option_strings]
        near = difflib.get_close_matches(flag, known, 1)
        return f"; did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        unknown, separator, words = message.partition("unrecognized arguments: ")
        if separator and not unknown:  # values stay unsaid: one may be a key
            flags = [word.partition("=")[0] for word in words.split() if word.startswith("-")]
            message = f"unrecognized {' '.join(flags) or 'word, which belongs to no flag'}"
            message += self._nearest(flags[0]) if flags else ""
        self.exit(EXIT_TROUBLE, f"{self.prog}: {message} (--help lists the flags)\n")


def parse(parser: Parser, argv: list[str] | None) -> argparse.Namespace:
    """The parsed flags, and as `command` the line that the record keeps, without credentials."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what the word it stands at may become
        with contextlib.suppress(ModuleNotFoundError):
            import argcomplete

            argcomplete.autocomplete(parser)
    words = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(words)
    args.prog = parser.prog
    args.command = [parser.prog, *(without_credentials(word) for word in words)]
    return args


def without_credentials(word: str) -> str:
    """A word of the command line with user, password and query cut out of any URL in it."""
    scheme, separator, rest = word.partition("://")
    if not separator:  # --url takes a bare host and port too
        return re.sub(r"^(--[\w-]+=)?[^/@\s]*:[^/@\s]*@", r"\1", word)
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def add_server_flags(where: Any) -> None:
    """--demo and --serve, which bring a server of their own."""
    where.add_argument("--serve", metavar="MODEL",
                       help="start a llama-server of this GGUF, or hf:REPO:QUANT, and measure it")
    where.add_argument("--demo", action="store_true",
                       help="start a small real model, with sizes that fit a laptop")


def add_common_flags(parser: argparse.ArgumentParser, sizes: Sizes, stall_s: int) -> None:
    """The flags that mean the same in both scripts; `sizes` and `stall_s` are the defaults."""

    def listed(numbers: tuple[int, ...]) -> str:
        return ",".join(map(str, numbers))

    add = parser.add_argument
    add("--only", metavar="NAME[,NAME]", type=experiment_names, default=DEFAULT_EXPERIMENTS,
        help=f"of {', '.join(EXPERIMENT_NAMES)}, or all (default {','.join(DEFAULT_EXPERIMENTS)})")
    add("--doc", metavar="FILE", help="your own text as the document of cache")
    add("--encoding", metavar="NAME", help="the encoding of --doc (default: UTF-8, or by its mark)")
    add("--lengths", metavar="N[,N]", type=ascending,
        help=f"input tokens of length (default {listed(sizes.lengths)})")
    add("--outputs", metavar="N[,N]", type=ascending,
        help=f"output tokens of output (default {listed(sizes.outputs)})")
    add("--context", metavar="N", type=whole_number,
        help=f"tokens of the document of cache (default {sizes.context}, or all of --doc)")
    add("--turns", metavar="N", type=whole_number,
        help=f"turns of each arm of cache (default {sizes.turns})")
    add("--until-sure", action="store_true",
        help="add turns to cache until the verdict is firm (where the arms alternate)")
    add("--max-turns", metavar="N", type=whole_number, default=40,
        help="turns that --until-sure may take (default 40)")
    add("--max-tokens", metavar="N", type=whole_number,
        help="input tokens of cache after which --until-sure stops")
    add("--repeats", metavar="N", type=whole_number,
        help=f"requests for each size of length and output (default {sizes.repeats})")
    add("--shape", metavar="PxO[,PxO]", type=shapes, default=(),
        help="what a full hit would save a request of P tokens in and O out (workload, --show)")
    add("--traffic", metavar="FILE",
        help="the same of a CSV of prompt,cached,output lines (workload, --show)")
    add("--pauses", metavar="S[,S]", type=ascending,
        help="seconds after which restore asks for a prefix again "
             f"(default {listed(sizes.pauses) or 'none'})")
    add("--seed", metavar="N", type=seed_number, default=0,
        help="filler text and order; prompts still begin anew in each run (default 0)")
    add("--stall-timeout", metavar="S", type=positive_seconds, default=stall_s,
        help=f"seconds without a piece after which a request failed (default {stall_s})")
    add("--max-wait", metavar="S", type=seconds, default=MAX_WAIT_S,
        help="seconds to wait before a request for a server that is away or asks for it "
             f"(default {MAX_WAIT_S})")
    add("--out", metavar="FILE", help="the raw JSON (default: a new file in this folder)")
    add("--json", action="store_true", help="print the JSON instead of tables")
    add("--quiet", action="store_true", help="no progress on stderr")
    add("--dry-run", action="store_true",
        help="say what would be sent, and stop (a llama-server is asked its context)")
    add("--show", metavar="FILE", help="print the tables of a saved run, and measure nothing")
    add("--version", action="version", version=f"%(prog)s {version()}")


def version() -> str:
    """The version of this tool."""
    from request_timing import VERSION

    return VERSION


def settings(args: argparse.Namespace, defaults: Sizes, demo: Sizes) -> Settings:
    """The settings that the flags, over the defaults of the script or of the demo, ask for."""
    from request_timing.experiments.lab import Settings
    from request_timing.prompts.document import read_document

    if args.encoding is not None and args.doc is None:
        raise UserError("--encoding: it is that of --doc, which is not given; name the file")
    if args.doc is not None and "cache" not in args.only:
        raise UserError("--doc: it is the document of cache, which --only leaves out; drop one")
    if (args.shape or args.traffic) and "workload" not in args.only:
        raise UserError(
            "--shape, --traffic: workload answers them, which --only leaves out; add it"
        )
    if args.pauses and "restore" not in args.only:
        raise UserError("--pauses: restore waits for them, which --only leaves out; add it")
    sizes = demo if args.demo else defaults
    return Settings(
        experiments=args.only if args.replay is None else ("replay",),
        lengths=args.lengths or sizes.lengths, outputs=args.outputs or sizes.outputs,
        context=args.context or sizes.context, turns=args.turns or sizes.turns,
        repeats=args.repeats or sizes.repeats, seed=args.seed,
        document=None if args.doc is None else read_document(args.doc, args.encoding),
        document_tokens=None if args.doc is None else args.context,
        until_sure=args.until_sure, max_tokens=args.max_tokens,
        max_turns=max(args.max_turns, args.turns or sizes.turns) if args.until_sure else 0,
        shapes=args.shape, traffic=_traffic(args), pauses=args.pauses or sizes.pauses,
    )


def _traffic(args: argparse.Namespace) -> dict[str, Any] | None:
    """The sums of --traffic, if it is given."""
    if args.traffic is None:
        return None
    from request_timing.findings.traffic import read_traffic

    return read_traffic(args.traffic)


def output_path(args: argparse.Namespace, tool: str) -> Path:
    """Where the record will go; raises UserError, before the run, where it could not.

    A name that the user gave is used or refused. Of the default name, and of what is written beside
    it, the first that is free is taken.
    """
    from datetime import UTC, datetime
    from pathlib import Path

    from request_timing.cli.output import default_suffixes
    from request_timing.records.journal import check_writable, free_name

    if args.out is None:
        out = free_name(Path(f"{tool}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"),
                        default_suffixes(args))
    else:
        out = Path(args.out)
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: expected a folder {out.parent}, found none; make it first")
    if out.is_dir():
        raise UserError(f"--out {out}: expected the name of a file, found a directory; add a name")
    check_writable(out)
    return out


def show(args: argparse.Namespace) -> int:
    """Print a saved run's tables, or its JSON with all that is derived computed anew."""
    from pathlib import Path

    from request_timing.cli import output
    from request_timing.costs.money import prices_json
    from request_timing.records.run import load_run, sound
    from request_timing.report.remarks import text_columns

    traffic = _traffic(args)
    with sound(args.show):
        saved = load_run(Path(args.show))
        found = output.prices(args, "", None)
        if found is not None:
            saved.settings["prices"] = prices_json(found)
        if args.shape or traffic:
            saved.settings |= {"shapes": args.shape, "traffic": traffic}
        beside = output.files(args, Path(args.show))
        text = output.text_of(args, saved, text_columns())
    written = output.write(beside, saved, lambda said: print(said, file=sys.stderr))
    return emit(text, EXIT_MEASURED if written else EXIT_NO_SAMPLE)


def read_key(variable: str | None, environ: dict[str, str], known: Container[str]) -> str | None:
    """The key in an environment variable, or None where none is named.

    Raises UserError where the variable is not set, or holds what no header can carry; a name that
    is not `known` is not shown, since it may be the key itself.
    """
    if variable is None:
        return None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UserError("--api-key-env: expected the NAME of an environment variable, such as "
                      "OPENAI_API_KEY, found something else (not shown, it may be a key)")
    key = environ.get(variable, "").strip()
    if not key:
        named = variable if variable in known else "the variable that --api-key-env names"
        raise UserError(f"expected a key in {named}, found none; export it, name another variable "
                      "with --api-key-env, or try --demo, which needs no key")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(
            "the key holds a space, a line end or a character that no header can carry; "
            "copy it again"
        )
    return key


def on_stop_signals(action: Any) -> None:
    """What SIGINT, SIGTERM and SIGHUP do from now on: a kill ends a run as Ctrl-C does."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), action)


def emit(text: str, status: int) -> int:
    """Print the result, and return the status of what was measured.

    A reader that closes the pipe early ends the output, no more: the record is written by now.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UserError(f"stdout cannot be written ({error.strerror})") from None
    return status


def guard(prog: str, body: Callable[[], int]) -> int:
    """Run `body`; whatever ends it early becomes one line and an exit status."""

    def defect(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        while trace.tb_next:
            trace = trace.tb_next
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        print(f"{prog}: a defect of this tool, please report it: {kind.__name__} at {place}: "
              f"{one_line(error)}", file=sys.stderr)

    sys.excepthook = defect
    # A stream that the caller closed is None; nobody reads it.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    on_stop_signals(signal.default_int_handler)
    try:
        return body()
    except UserError as trouble:
        print(f"{prog}: {one_line(trouble, limit=1000)}", file=sys.stderr)
        return EXIT_TROUBLE
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
