#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK: read by the shell completion of PyPI's argcomplete
# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "openai>=1.66,<4",
#     "httpx>=0.27,<1",
# ]
# ///
"""Time a streaming OpenAI-compatible API from outside, and infer what its prefix cache does.

A cloud API shows when pieces of the answer come, and perhaps how many tokens it counted; what the
server did has to be inferred from the time to first token. Needs `pip install -r
requirements.txt`, and a key in the environment, AI_BUILDER_TOKEN unless you choose otherwise.

    python api_timing.py                                    # AI Builder Space, model deepseek
    python api_timing.py --provider openai --model NAME     # key in OPENAI_API_KEY
    python api_timing.py --dry-run                          # what would be sent, and no more
    python api_timing.py --demo                             # no key: brings a small server
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.exit(f"api_timing.py: expected Python 3.11 or newer, found {sys.version.split()[0]}; "
             "run it with a newer python3")

import argparse
import os
from typing import TYPE_CHECKING, NamedTuple

from request_timing.cli import flags, output, prompts
from request_timing.errors import UserError
from request_timing.servers.providers import DEFAULT, PROVIDERS, Provider

if TYPE_CHECKING:
    from request_timing.servers.urls import Address

DEFAULTS = flags.Sizes(lengths=(2200, 9200, 77_600, 293_000), outputs=(200, 400, 800),
                     context=100_000, turns=6, repeats=1, pauses=(10, 60, 300))
# Sizes that let all three experiments finish within three minutes on two cores.
DEMO = flags.Sizes(lengths=(250, 500, 1000, 2000), outputs=(16, 32, 64, 128), context=1000, turns=6,
                 repeats=3, pauses=(5, 15))

# Between two pieces; the first may wait for a long prefill, or for thinking that is not streamed.
STALL_S = 3600
EXAMPLE_URL = "http://127.0.0.1:8080/v1"


class Target(NamedTuple):
    """What is to be measured, as flags and environment say."""

    where: Address
    provider: Provider | None
    key_variable: str | None
    model: str | None


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = flags.Parser(prog="api_timing.py", description=__doc__.split("\n\n")[0],
                        epilog="README.md says how to read the result.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--provider", metavar="NAME", choices=PROVIDERS,
                       help=f"one of {', '.join(PROVIDERS)} (default {DEFAULT})")
    where.add_argument("--base-url", metavar="URL", help="any other endpoint, such as "
                       "http://127.0.0.1:8080/v1")
    flags.add_server_flags(where)
    parser.add_argument("--model", metavar="NAME", help="default: the provider's, or the only one")
    parser.add_argument("--api-key-env", metavar="VAR",
                        help="the NAME of the environment variable that holds the key")
    flags.add_common_flags(parser, DEFAULTS, STALL_S)
    prompts.add_flags(parser)
    output.add_flags(parser)
    return flags.parse(parser, argv)


def target(args: argparse.Namespace, environ: dict[str, str]) -> Target:
    """Endpoint and key variable: flags first, then AI_BUILDER_TOKEN, then OPENAI_*.

    A key is only ever sent where it was meant to go: --base-url alone sends none. Raises UserError
    for a URL that is none.
    """
    variable = args.api_key_env
    if args.base_url:
        return Target(where=_address("--base-url", args.base_url), provider=None,
                      key_variable=variable, model=args.model)
    name = args.provider
    default_key = PROVIDERS[DEFAULT].key_variable
    if name is None and default_key not in environ and variable is None:
        if environ.get("OPENAI_BASE_URL"):
            return Target(where=_address("OPENAI_BASE_URL", environ["OPENAI_BASE_URL"]),
                          provider=None, model=args.model,
                          key_variable="OPENAI_API_KEY" if "OPENAI_API_KEY" in environ else None)
        if environ.get("OPENAI_API_KEY"):
            name = "openai"
    provider = PROVIDERS[name or DEFAULT]
    return Target(where=_address("--provider", provider.base_url), provider=provider,
                  key_variable=variable or provider.key_variable,
                  model=args.model or provider.default_model)


def _own(url: str) -> Target:
    """The llama-server that --demo or --serve has started."""
    return Target(where=_address("--serve", f"{url}/v1"), provider=None, key_variable=None,
                  model=None)


def _address(source: str, url: str) -> Address:
    from request_timing.servers.urls import address

    return address(source, url, example=EXAMPLE_URL)


def main(argv: list[str] | None = None) -> int:
    """Parse, find the endpoint, measure, print. Returns the exit status."""
    args = parse(argv)
    return flags.guard("api_timing.py", lambda: measure(args))


def measure(args: argparse.Namespace) -> int:
    """One run against the endpoint that flags and environment name."""
    prompts.check(args)
    if args.show is not None:
        return flags.show(args)
    if args.explain is not None:
        return prompts.explain(args)
    from request_timing.cli import runner
    from request_timing.experiments.plan import (
        CONTEXT_SLACK,
        calibration,
        calibration_words,
        cut_document,
        describe,
        plan,
    )
    from request_timing.servers.patience import Patience

    if args.model and (args.demo or args.serve):
        raise UserError("--model: --demo and --serve bring a model of their own; leave one out")
    console = runner.Console(quiet=args.quiet)
    environ = dict(os.environ)
    settings = flags.settings(args, DEFAULTS, DEMO)
    if args.record is not None:
        context = runner.embedded_context(args, settings)
        with runner.embedded_server(args, context, console) as own_url:
            upstream = _own(own_url) if own_url else target(args, environ)
            key = environ.get(upstream.key_variable or "") or None
            return prompts.record(args, upstream.where.url, key, console.say)
    settings, mended = prompts.with_turns(args, settings, console.say, is_api=True)
    out = flags.output_path(args, "api_timing")
    beside = output.files(args, out)
    embedded_context = runner.embedded_context(args, settings)
    notes = mended
    chosen = None if embedded_context is not None else target(args, environ)
    if embedded_context is not None:
        settings, cut = runner.fit(settings, embedded_context - CONTEXT_SLACK, console)
        notes += cut
        where = "endpoint: a llama-server of its own"
    if chosen is not None:
        if settings.captured:
            chosen = chosen._replace(model=args.model or settings.captured[0].model or chosen.model)
        where = f"endpoint: {chosen.where.url}, model {chosen.model or 'the only one there'}"
    known = {row.key_variable for row in PROVIDERS.values() if row.key_variable}
    key = None if args.dry_run or chosen is None else flags.read_key(chosen.key_variable, environ,
                                                                  known)
    if not args.dry_run:
        _import_sdk()
    planned = [calibration(settings), *plan(settings)]
    costs = embedded_context is None
    prices = output.prices(args, chosen.where.url if chosen else "",
                               chosen.model if chosen else None)
    if runner.announce(args, console, [where, describe(planned, rough=True),
                                       *output.estimate(planned, prices, costs=costs)]):
        return flags.EXIT_MEASURED
    spent = output.calibration_cost(args, prices, settings)
    from request_timing.experiments.calibration import calibrate
    from request_timing.servers.openai_endpoint import OpenAIEndpoint

    patience = Patience(args.max_wait, lambda text: console.say(text, always=True))
    with runner.embedded_server(args, embedded_context, console) as embedded_url:
        chosen = chosen or _own(embedded_url or "")
        endpoint = OpenAIEndpoint(
            chosen.where, key=key, model=chosen.model, provider=chosen.provider,
            stall_s=args.stall_timeout,
            keeps_models=args.model is None and not args.demo and not args.serve,
        )
        console.say("a few small requests first, not counted: warming up and calibrating sizes")
        for note in calibrate(endpoint, calibration_words(settings), patience, settings.document):
            notes.append(note)
            console.say(f"warning: {note}")
        rate = endpoint.document_tokens_per_char or endpoint.tokens_per_char
        settings = cut_document(settings, lambda text: round(len(text) * rate))
        return runner.run(args, settings, out, endpoint, console, patience,
                          endpoint=endpoint.endpoint(), notes=notes, planned=planned,
                          beside=beside, prices=prices, costs=costs or prices is not None,
                          spent_before=spent)


def _import_sdk() -> None:
    try:
        from request_timing.servers import openai_endpoint  # noqa: F401
    except ModuleNotFoundError as missing:
        raise UserError(f"expected the packages openai and httpx, found no {missing.name}; run: "
                      "python3 -m pip install -r requirements.txt") from None


if __name__ == "__main__":
    sys.exit(main())
