"""*ladder*, *position* and *minimum* as text: a table each, and what follows from it.

Pure functions from samples to strings of 80 columns, as those of `tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from request_timing.findings import minimum
from request_timing.findings.measures import FIGURES, median, of_experiment, prefill_s
from request_timing.findings.reuse import (
    ANSWER_CACHE,
    MISSED,
    NOT_REACHED,
    Row,
    Stamped,
    judged,
    rows,
    shortest,
    stamped,
)
from request_timing.findings.verdict import (
    ARM_FAILED,
    CONTRADICTION,
    HIT,
    NO_HIT,
    NO_REUSE_HERE,
    NONSENSE_COUNT,
    PARTIAL,
    TOO_NOISY,
    UNDECIDED,
)
from request_timing.formats import count, ms
from request_timing.records.names import AFTER, LABELS, LADDER, MINIMUM, POSITION
from request_timing.records.sample import Sample
from request_timing.report.remarks import lines_of
from request_timing.report.tables import table, times

# How a summary begins, by code, in the order in which it is told.
SUMMARY = {
    HIT: "reused", PARTIAL: "reused in part", MISSED: "shared, but computed again",
    NO_HIT: "shares nothing, so computed", UNDECIDED: "not decided", CONTRADICTION: "contradictory",
    ANSWER_CACHE: "answered whole from an earlier answer, which is no prefix cache",
    ARM_FAILED: "failed", NOT_REACHED: "not reached",
}
# Codes that hold for the whole server: said once, in the words of the row.
OF_ALL = (NO_REUSE_HERE, NONSENSE_COUNT, TOO_NOISY)


def blocks(samples: Sequence[Sample], *, native: bool) -> list[tuple[str, str]]:
    """The name and the text of each of the three that was run."""
    def position_of(chosen: Sequence[Sample]) -> str:
        return position_text(chosen, native=native)

    draw = {LADDER: ladder_text, POSITION: position_of, MINIMUM: minimum_text}
    return [
        (name, text(of_experiment(samples, name)))
        for name, text in draw.items()
        if of_experiment(samples, name)
    ]


def ladder_text(samples: Sequence[Sample]) -> str:
    """A row a shape of reuse: what is shared, what was reused, TTFT against cold; and a summary."""
    known = rows(samples, LADDER)
    return "\n".join([
        "ladder: which shapes of reuse work here (back after n: n others came in between)",
        table(["shape", "input", "shared", "reused", "recomputed", "TTFT/cold", "verdict"],
              [[LABELS[row.arm], *_cells(row), row.code_in_words.lower()] for row in known]),
        *_summary(known, lambda row: LABELS[row.arm]), *_held(known)])


def position_text(samples: Sequence[Sample], *, native: bool) -> str:
    """A row a place of the changed token, a row a granularity of stamp; and a summary."""
    figure = prefill_s if native else FIGURES["ttft_s"]
    what = "prefill ms" if native else "TTFT ms"
    known = rows(samples, POSITION)
    places = [[f"{row.arm} %", *_cells(row)[:4], ms(median(judged(samples, row.arm), figure)),
               row.code_in_words.lower()] for row in known]
    found = stamped(samples, figure)
    stamps = [[stamp.by, f"{stamp.changed} of {stamp.n}", count(stamp.input_tokens),
               count(stamp.recomputed_tokens), ms(stamp.seconds)] for stamp in found]
    return "\n".join([
        "position: one token changed, at so much of the document",
        table(["changed at", "input", "shared", "reused", "recomputed", what, "verdict"], places),
        *_summary(known, lambda row: f"{row.arm} %"), *_follows(known), "",
        "          the time in front of it all, by granularity (a simulated clock, one",
        "          request in 30 s); tokens and time are the mean of a request",
        table(["stamp by", "another one in", "input", "recomputed", what], stamps),
        *(_stamp_line(found) if found else [])])


def minimum_text(samples: Sequence[Sample]) -> str:
    """A row a length of prefix; and the answer."""
    counted = minimum.is_counted(samples)
    cells = []
    for chars in minimum.lengths(samples):
        pairs = minimum.pairs(samples, chars)
        cells.append([count(minimum.tokens(samples, chars)), f"{chars:,}",
                      count(minimum.cached(samples, chars)),
                      ms(median((a for a, _ in pairs), FIGURES["ttft_s"])),
                      ms(median((b for _, b in pairs), FIGURES["ttft_s"])), str(len(pairs)),
                      {True: "yes", False: "no", None: "unclear"}[
                          minimum.reused(samples, chars)]])
    title = "minimum: two prompts share a prefix and nothing else"
    headers = ["prefix", "characters", "reused", "cold ms", "second ms", "pairs", "is reused"]
    if not counted:
        headers, cells = [*headers[:2], *headers[3:]], [[*row[:2], *row[3:]] for row in cells]
    return "\n".join([title, table(headers, cells), *lines_of(shortest(samples).text)])


def _cells(row: Row) -> list[str]:
    return [*map(count, (row.input_tokens, row.shared_tokens, row.reused_tokens,
                         row.recomputed_tokens)), times(row.ttft.ratio)]


def _summary(known: Sequence[Row], label: Callable[[Row], str]) -> list[str]:
    """The rows by code: a code for all of the server in the words of its row, else with labels."""
    lines: list[str] = []
    for code in OF_ALL:
        lines += lines_of(next((row.text for row in known if row.code == code), ""))
    for code, words in SUMMARY.items():
        if chosen := [label(row) for row in known if row.code == code]:
            lines += lines_of(f"{words}: {', '.join(chosen)}")
    reasons = dict.fromkeys(row.text for row in known if row.code in (UNDECIDED, CONTRADICTION))
    return lines + [line for text in reasons for line in lines_of(f"  {text}")]


def _follows(known: Sequence[Row]) -> list[str]:
    """What *position* says of a change, where the rows agree on it."""
    codes = {row.code for row in known if row.arm != "0"}
    if codes == {HIT}:
        return ["what stands before the change is reused, what follows it is computed"]
    if HIT in codes | {PARTIAL} and codes & {PARTIAL, MISSED}:
        return lines_of("what stands before the change is not all reused: this server goes back "
                        "only to certain places (blocks, a minimum, checkpoints, a window)")
    return []


def _stamp_line(stamps: Sequence[Stamped]) -> list[str]:
    """The finest stamp against the coarsest, in what a request costs."""
    costs = [(stamp.by, stamp.recomputed_tokens or stamp.seconds) for stamp in stamps]
    (fine, most), (coarse, least) = costs[0], costs[-1]
    if not most or not least or most < 2 * least:
        return []
    what = "computes" if stamps[0].recomputed_tokens else "takes"
    return [f"a stamp by the {fine} {what} {times(most / least)} what one by the {coarse} does"]


def _held(known: Sequence[Row]) -> list[str]:
    """How many conversations a server keeps, from the rows that return to an old one."""
    returns = {int(row.arm.removeprefix(AFTER)): row.code for row in known
               if row.arm.startswith(AFTER)}
    kept = [others for others, code in returns.items() if code in (HIT, PARTIAL)]
    lost = [others for others, code in returns.items() if code == MISSED]
    if kept and not lost:
        return lines_of(f"at least {max(kept) + 1} conversations are kept")
    if kept:
        return lines_of(f"{max(kept) + 1} conversations are kept, and not {min(lost) + 1}")
    if lost:
        return lines_of("one conversation is kept: another one in between throws it out "
                        "(one slot, and no cache in host memory)")
    return []
