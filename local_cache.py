#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK: read by the shell completion of PyPI's argcomplete
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Ask a llama-server where a request spends its time, and what its prefix cache really reuses.

A llama-server reports, for every request, the prompt tokens it recomputed, those it reused, and
the milliseconds of prefill and of decode, so nothing here has to be inferred. Standard library
only: this runs on a bare Python 3.11.

    llama-server -m model.gguf -c 65536 -np 1 --port 8080   # in another terminal
    python3 local_cache.py                                  # the three default experiments
    python3 local_cache.py --only cache --doc notes.txt     # your own material
    python3 local_cache.py --demo                           # no server: brings a small one
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.exit(f"local_cache.py: expected Python 3.11 or newer, found {sys.version.split()[0]}; "
             "run it with a newer python3")

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from request_timing.cli import flags, output, prompts
from request_timing.errors import UserError

# A long prompt on a slow machine takes hours, and a client that hangs up throws the work away.
STALL_S = 24 * 3600
DEFAULT_URL = "http://127.0.0.1:8080"

DEFAULTS = flags.Sizes(lengths=(1000, 2000, 4000, 8000, 17000), outputs=(50, 100, 200, 400),
                     context=51_000, turns=6, repeats=3)
# Sizes that let all three experiments finish within three minutes on two cores.
DEMO = flags.Sizes(lengths=(250, 500, 1000, 2000), outputs=(16, 32, 64, 128), context=2000, turns=6,
                 repeats=3)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = flags.Parser(prog="local_cache.py", description=__doc__.split("\n\n")[0],
                        epilog="README.md says how to set a server up and how to read the result.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", metavar="URL", help=f"the llama-server (default {DEFAULT_URL})")
    flags.add_server_flags(where)
    parser.add_argument("--model", metavar="NAME", help="which model, of a server that routes")
    parser.add_argument("--api-key-env", metavar="VAR",
                        help="the NAME of the environment variable that holds the server's key")
    flags.add_common_flags(parser, DEFAULTS, STALL_S)
    prompts.add_flags(parser)
    output.add_flags(parser)
    return flags.parse(parser, argv)


def main(argv: list[str] | None = None) -> int:
    """Parse, find the server, measure, print. Returns the exit status."""
    args = parse(argv)
    return flags.guard("local_cache.py", lambda: measure(args))


def measure(args: argparse.Namespace) -> int:
    """One run against the server that the flags name."""
    prompts.check(args)
    if args.show is not None:
        return flags.show(args)
    if args.explain is not None:
        return prompts.explain(args)
    from dataclasses import replace

    from request_timing.cli import runner
    from request_timing.experiments.plan import cut_document, describe, plan
    from request_timing.servers.llama_server import LlamaServer
    from request_timing.servers.patience import Patience
    from request_timing.servers.urls import with_scheme

    if args.model and (args.demo or args.serve):
        raise UserError("--model: --demo and --serve bring a model of their own; leave one out")
    key = flags.read_key(args.api_key_env, dict(os.environ), ())
    console = runner.Console(quiet=args.quiet)
    settings = flags.settings(args, DEFAULTS, DEMO)
    if args.record is not None:
        context = runner.embedded_context(args, settings)
        with runner.embedded_server(args, context, console) as own_url:
            return prompts.record(args, own_url or with_scheme(args.url or DEFAULT_URL), key,
                                      console.say)
    settings, mended = prompts.with_turns(args, settings, console.say, is_api=False)
    out = flags.output_path(args, "local_cache")
    beside = output.files(args, out)
    if settings.until_sure:
        console.say("--until-sure changes nothing here: the server's counts decide, not the clock")
        settings = replace(settings, until_sure=False, max_turns=0)
    embedded_context = runner.embedded_context(args, settings)
    with _server_trouble(), runner.embedded_server(args, embedded_context, console) as embedded_url:
        server = LlamaServer(embedded_url or args.url or DEFAULT_URL, key=key, model=args.model,
                             stall_s=args.stall_timeout, progress=console.is_live)
        patience = Patience(args.max_wait, lambda text: console.say(text, always=True))
        server.wait_until_ready(console.say, patience)
        facts = server.facts
        slots = facts.slots or 1
        settings = cut_document(settings, server.count_tokens)
        if slots > 1:
            console.say(f"warning: {slots} slots share the server's memory, and a turn may "
                        "land in another one; start it with -np 1 for clean figures")
        settings, notes = runner.fit(settings, facts.context_tokens, console, slots=slots,
                                  count=server.count_tokens, own_server=bool(embedded_url))
        planned = plan(settings, server.count_tokens, interleave=server.interleave_arms)
        prices = output.prices(args, "", None)
        if runner.announce(args, console, [
                f"server: {server.url}\n      {facts.describe()}", describe(planned, rough=False),
                *output.estimate(planned, prices)]):
            return flags.EXIT_MEASURED
        server.warm_up(patience)
        return runner.run(args, settings, out, server, console, patience,
                          endpoint=server.endpoint(), notes=[*notes, *mended],
                          planned=planned, beside=beside, prices=prices,
                          costs=prices is not None)


@contextmanager
def _server_trouble() -> Iterator[None]:
    """A server that fails before anything was measured is a trouble of the set-up."""
    from request_timing.servers.timing import RequestFailed

    try:
        yield
    except RequestFailed as failed:
        raise UserError(f"expected a llama-server that answers, found: {failed}; look at its log"
                      ) from None


if __name__ == "__main__":
    sys.exit(main())
