"""One run as one HTML page that needs nothing else: no network, no script, no other file.

Needs jinja2. The charts are drawn elsewhere and given to it as SVG.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from request_timing.errors import UserError
from request_timing.findings.derive import run_verdicts

if TYPE_CHECKING:
    from request_timing.findings.verdict import Verdict
    from request_timing.records.run import Run
    from request_timing.report.text_blocks import Block

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = "page.html.j2"
NOTHING_TO_DRAW = "this run holds nothing to draw."
# How a verdict is coloured; its words say the same.
GOOD, BAD = {"hit"}, {"no_hit", "no_reuse_here", "contradiction", "not_cache", "nonsense_count"}
KEYS = {  # what the arms are, by experiment
    "cache": "append: new text at the end of the prompt; prepend: the time now in front of it all.",
    "replay": "as sent: the captured turns; mended: the same, with the breaks mended that can be.",
}
METHOD = (
    "The clock runs from a request's last byte to the arrival of each piece of the answer; TTFT "
    "ends at the first piece that is not empty. Connecting, warming up and retries are outside it.",
    "Every cold prompt begins with a word that no other has, and the server's own count is the "
    "proof: one that was not cold enters no figure, nor does a request that failed.",
    "Figures are medians with quartiles; rates come from reported tokens, never from chunks. "
    "A dash is not reported, which is something else than 0.",
    "A verdict sets three sources side by side: reuse predicted from the prompts, reported by the "
    "server, and timed against cold prompts by an exact rank test. Where they disagree, it says "
    "so.",
    "Two controls run beside the arms: an identical repeat, which must be reused, and cold against "
    "cold, which must show nothing. A prefix cache moves TTFT alone; decode stays.",
)


def page(run: Run, charts: Mapping[str, str], no_charts: str = NOTHING_TO_DRAW) -> str:
    """The whole page, with the bill that the run has, if it has one.

    charts: inline SVG by name; no_charts: where there are none, why. Raises
    UserError where jinja2 is not installed.
    """
    from request_timing.report.bill import of_run
    from request_timing.report.tables import heading
    from request_timing.report.text_blocks import blocks

    template = _template()
    from markupsafe import Markup  # the texts in an SVG were escaped by what drew it

    title, *subtitle = heading(run).split("\n")
    judged = run_verdicts(run)
    return str(template.render(
        title=title, subtitle=[s for s in subtitle if not s.startswith("INCOMPLETE")],
        complete=run.complete, n_samples=len(run.samples),
        verdicts=[_verdict(v) for v in judged],
        charts=[{"name": name, "svg": Markup(svg)} for name, svg in charts.items()],
        no_charts=f"No charts: {no_charts}",
        verdict_key=" ".join(KEYS[name] for name in KEYS
                             if any(v.experiment == name for v in judged)),
        parts=list(_parts(run)),
        cost=blocks("\n".join(of_run(run))),
        facts=list(_facts(run)), method=METHOD,
        footer=f"Made by {run.tool} {run.version} on {run.created_at[:10]}, "
               f"schema_version {run.schema_version}, from {len(run.samples)} requests."))


def check() -> None:
    """Raises UserError where jinja2 is not installed."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise UserError("expected the package jinja2 for the page, found none; run: python3 -m pip "
                      "install -r requirements-report.txt") from None


def _template() -> Any:
    check()
    import jinja2

    # Autoescape by name of file would miss .j2; nothing here may depend on a name.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True).get_template(TEMPLATE)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    tone = "good" if verdict.code in GOOD else "bad" if verdict.code in BAD else "open"
    return {"arm": verdict.arm_in_words, "code": verdict.code_in_words, "tone": tone,
            "lines": verdict.text.split("\n")}


def _parts(run: Run) -> Iterator[dict[str, Any]]:
    """What a terminal gets, an experiment each, and what is said of the run as a whole."""
    from request_timing.report.text_blocks import Title, body

    def is_title(block: Block) -> bool:
        return isinstance(block, Title)

    title: Title | None = None
    for starts, group in itertools.groupby(body(run), is_title):
        found = list(group)
        if starts:
            last = found[-1]
            title = last if isinstance(last, Title) else None
        else:
            yield {"title": title, "blocks": found,
                   "region": "run" if title is None else title.experiment}


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """Command, machine, endpoint and settings as names and values."""
    from request_timing.records.run import flat

    yield "command", " ".join(run.command)
    yield "created at", run.created_at
    for part in ("environment", "endpoint", "settings"):
        for name, value in flat(getattr(run, part), " "):
            if value is not None and value != []:
                yield f"{part} {name.replace('_', ' ')}", (
                    value if isinstance(value, str) else
                    ", ".join(map(str, value)) if isinstance(value, list) else json.dumps(value))
