"""OUTCOMES.md: what goes wrong, and what this tool makes of it, from the cases that are tested.

    python tests/support/outcomes.py    # writes OUTCOMES.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from request_timing.errors import one_line  # noqa: E402
from request_timing.records.sample import REASONING, Sample  # noqa: E402
from request_timing.servers.failures import ADVICE  # noqa: E402
from wire_case import Case  # noqa: E402
from wire_cases_failures import FAILURES  # noqa: E402
from wire_cases_llama import LLAMA  # noqa: E402
from wire_cases_stream import STREAMS  # noqa: E402
from wire_cases_usage import USAGES  # noqa: E402

PAGE = ROOT / "OUTCOMES.md"
SHOWN_CHARS = 160

OPENING = """\
# What goes wrong, and what this tool makes of it

Servers, gateways and proxies deviate in many ways, and a tool that times streams turns each
deviation into a false number if it does not know it. Here is what {cases} of them become. Each row
is a test: an answer as the public report or the documentation behind it has it, and the exact
sample that must come out. This page is made from those tests by `python tests/support/outcomes.py`.

Four things hold for all of them:

- **A failed request enters no average.** It stays in the record as a sample with an `error`: a kind
  for programs, one line for people, and the pieces that came before it.
- **Only pieces with something in them count.** The time to first token (TTFT) ends at the first
  text, thinking or tool call; not at a role, a comment, a count or a keep-alive.
- **Not reported is not zero.** A count that nobody sent is unknown, and shown as `-`.
- **Nothing is asked again inside a sample.** What waiting may mend (a rate limit, an overloaded
  server that says for how long, a model that is being loaded, a server that answered before and is
  away) is waited for outside every clock, up to `--max-wait`, and asked as a new request.
"""

TITLES = {
    "A1": "The first chunk has no text",
    "A2": "Chunks without choices",
    "A3": "Thinking and tool calls",
    "A4": "Thinking that is not streamed",
    "A6": "Usage in odd places",
    "A7": "Usage on every chunk",
    "A8": "Several tokens in a chunk",
    "A9": "A stream that was held back",
    "A10": "Compression",
    "A12": "Noise between events",
    "A13": "How a stream ends",
    "A17": "An early stop",
    "A18": "No usage",
    "A20": "Characters cut in two",
    "B1": "DeepSeek's names",
    "B2": "Reported, zero, or not reported",
    "B3": "A cache that says nothing",
    "B5": "Cached tokens under many names",
    "B19": "Whole answers from a cache",
    "C1": "What a llama-server reused",
    "C4": "Slots",
    "C6": "Too long for the context",
    "C7": "Truncation",
    "C8": "Loading",
    "C9": "A server that routes, dies or is another one",
    "C12": "Long silences",
    "C16": "More or fewer tokens than were asked for",
}
SECTIONS = (
    ("The stream", (*STREAMS, *(case for case in USAGES if case.kind.startswith("A")))),
    ("Cached tokens", tuple(case for case in USAGES if not case.kind.startswith("A"))),
    ("A llama-server", LLAMA),
    ("Refusals and failures, by kind", FAILURES),
)


def outcome(sample: Sample) -> str:
    """What a sample says, in a few words."""
    pieces = len(sample.arrivals_s)
    came = f"{pieces} piece{'s' * (pieces != 1)}"
    if sample.error is not None:
        wait_s = sample.error.retry_after_s
        return (f"failed: `{sample.error.kind}`" + (f"; {came} kept" if pieces else "")
                + (f"; to wait {wait_s:g} s" if wait_s is not None else ""))
    said = [came]
    if pieces:
        said.append(f"TTFT {sample.ttft_s:g} s" + (
            " (thinking)" if sample.arrival_kinds[0] == REASONING else ""))
    if sample.came_in_bursts:
        said.append("in bursts: no decode rate")
    if sample.hidden_thinking_tokens:
        said.append("TTFT holds thinking")
    counts = (("prompt", sample.prompt_tokens), ("cached", sample.cached_tokens),
              ("output", sample.output_tokens), ("thinking", sample.reasoning_tokens))
    said.append("tokens: " + ", ".join(
        f"{name} {'-' if count is None else f'{count:,}'}" for name, count in counts
        if count is not None or name != "thinking"))
    if not sample.counts:
        said.append("left out of every average")
    said += [f"noted: {note}" for note in sample.notes]
    return cell("; ".join(said))


def told(sample: Sample) -> str:
    """What a person is told of it."""
    if sample.error is not None:
        message = one_line(sample.error.message, limit=SHOWN_CHARS)
        return "; ".join(part for part in (message, ADVICE[sample.error.kind]) if part)
    return "-" if sample.counts else f"left out: {sample.notes[-1]}"


def source(text: str) -> str:
    """A link to where the case was reported or documented."""
    if found := re.fullmatch(r"([\w.-]+/[\w.-]+)#(\d+)", text):
        return f"[{text}](https://github.com/{found[1]}/issues/{found[2]})"
    if found := re.fullmatch(r"([\w.-]+/[\w.-]+) (\S+)", text):
        return f"[{text}](https://github.com/{found[1]}/blob/master/{found[2]})"
    return f"[{text.split('/')[0]}](https://{text})"


def cell(text: str) -> str:
    """Text as a table of Markdown shows it, letter for letter."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def table(cases: Iterable[Case]) -> list[str]:
    """A row a case."""
    rows = ["| what the server does | what the sample says | what the person is told | source |",
            "| --- | --- | --- | --- |"]
    for case in cases:
        sample = case.expected
        rows.append(f"| {cell(case.what)} | {outcome(sample)} | {cell(told(sample))} | "
                    f"{source(case.source)} |")
    return rows


def order(kind: str) -> int:
    """Where a kind's table stands."""
    return [*TITLES, *ADVICE].index(kind)


def kinds_of_failure() -> list[str]:
    """What every kind means to a person."""
    rows = ["| kind | what to do |", "| --- | --- |"]
    return rows + [f"| `{kind}` | {cell(advice) or 'the message says it all'} |"
                   for kind, advice in ADVICE.items()]


def page() -> str:
    """The whole page."""
    total = sum(len(cases) for _, cases in SECTIONS)
    lines = [OPENING.format(cases=total)]
    for title, cases in SECTIONS:
        lines += [f"## {title}", ""]
        for kind in sorted({case.kind for case in cases}, key=order):
            lines += [f"### {TITLES.get(kind, f'`{kind}`')}", "",
                      *table(case for case in cases if case.kind == kind), ""]
    lines += ["## All kinds of failure, and what to do", "", *kinds_of_failure()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
