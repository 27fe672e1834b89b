"""What a picture of a run shows: the points, bars, lines and words of each panel.

Pure functions from a Run to panels; `plot.py` draws them. Seconds and tokens; a figure that is
unknown is counted in words and never becomes a point or a bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from request_timing.errors import one_line
from request_timing.findings.derive import run_verdicts
from request_timing.findings.measures import (
    AS_SENT,
    CACHE,
    COLD,
    FIGURES,
    REPLAYED,
    WHAT_IF,
    Figure,
    of_experiment,
    prefill_s,
    recomputed_tokens,
)
from request_timing.findings.verdict import JUDGED
from request_timing.formats import count, ms
from request_timing.pictures.panel_parts import (
    FROM_TURN,
    Bar,
    Bars,
    Panel,
    Phases,
    Points,
    Row,
    clock_words,
    is_wide,
    missing_words,
    shown_value,
    usable,
)
from request_timing.pictures.reuse_panels import shape_panels
from request_timing.pictures.savings_panels import physics_panels
from request_timing.records.names import LENGTH, OUTPUT, REPLAY
from request_timing.records.run import Run
from request_timing.records.sample import Sample
from request_timing.report.tables import LINE_REQUESTS, slope_line, times
from request_timing.stats.compare import middle, ratio
from request_timing.stats.fits import typical_line, upward_curve

PHASES = "phases"
MOST_LABELLED_BARS = 24
LEAST_P = 0.0001
MODEL_CHARS = 100
MOST_TITLES = 2  # in a headline without *cache*

ttft_s, total_s, inter_token_s, inter_chunk_s = (
    FIGURES[name] for name in ("ttft_s", "total_s", "inter_token_s", "inter_chunk_s"))


def panels(run: Run) -> list[Panel]:
    """The panels of the experiments that the run has, in the order of the tables."""
    native = run.tool == "local_cache"
    found: list[Panel] = []
    if samples := of_experiment(run.samples, LENGTH):
        found.append(length_points(samples, native=native))
    if samples := of_experiment(run.samples, OUTPUT):
        found.append(output_points(samples))
    if samples := of_experiment(run.samples, REPLAY):
        found.append(replay_bars(samples, native=native))
    samples = of_experiment(run.samples, CACHE)
    if any(s.arm in JUDGED for s in samples):
        judged = {verdict.arm: verdict.code_in_words for verdict in run_verdicts(run)}
        found += [cache_bars(samples, judged, native=native), phase_rows(samples)]
    return [*found, *shape_panels(run.samples), *physics_panels(run.samples)]


def headline(run: Run, shown: Sequence[Panel]) -> str:
    """What the run found, in one sentence of medians; the panels' titles without *cache*.

    Empty where one panel's title says it all, or where there are too many to be said at once.
    """
    for panel in shown:
        if isinstance(panel, Bars):
            unit = "tokens" if panel.is_tokens else "ms"
            medians = {arm: shown_value(value, panel.is_tokens)
                      for arm, value in panel.medians.items() if value is not None}
            if len(medians) == len(JUDGED) and panel.name == CACHE:
                return (f"A turn {'recomputes' if panel.is_tokens else 'waits'} "
                        f"{medians['append']} {unit} where new text is appended, "
                        f"{medians['prepend']} {unit} where the time stands in front")
    return "; ".join(panel.title for panel in shown) if 1 < len(shown) <= MOST_TITLES else ""


def caption(run: Run) -> str:
    """Which run this is: the script, the model, the host, the date."""
    host = urlsplit(str(run.endpoint.get("url") or "")).netloc
    place = f" at {host}" if host else ""
    model = one_line(run.endpoint.get("model") or "model unknown", limit=MODEL_CHARS)
    return (f"{run.tool} {run.version}: {model}{place}, "
            f"{run.created_at[:16].replace('T', ' ')} UTC")


def length_points(samples: Sequence[Sample], *, native: bool) -> Points:
    """Prefill, or TTFT where only that is seen, against input tokens."""
    what = "prefill" if native else "TTFT"
    return _points(samples, LENGTH, what, "input tokens", lambda s: s.prompt_tokens,
                   prefill_s if native else ttft_s, scale=1000, unit="1,000 input tokens")


def output_points(samples: Sequence[Sample]) -> Points:
    """Total time against the output tokens that came, which may be fewer than asked for."""
    return _points(samples, OUTPUT, "total time", "output tokens", lambda s: s.output_tokens,
                   total_s, scale=1, unit="output token")


def _points(
    samples: Sequence[Sample], name: str, what: str, x_label: str, x: Figure, y: Figure, *,
    scale: int, unit: str,
) -> Points:
    drawn = [(s.arm, known_x, known_y) for s in samples if s.counts
             and (known_x := usable(x(s))) is not None and (known_y := usable(y(s))) is not None]
    sizes, xs, ys = ([d[0] for d in drawn], [d[1] for d in drawn], [d[2] for d in drawn])
    # As the table has it: a line needs two sizes, not the rounding of one.
    line = typical_line(xs, ys) if len(set(sizes)) > 1 else None
    sentence = slope_line(line, f"{what} grows by", unit, scale)
    curve = upward_curve(xs, ys, sizes) if sentence else None
    said = []
    few = line is None or line.n < LINE_REQUESTS
    title = sentence.partition(" (")[0] or (
        f"{what} against {x_label}: {'too few requests for a slope' if few else 'no growth shown'}")
    if curve is not None:
        low, high = min(xs), max(xs)
        first, last = (f"{ms(curve.slope_at(at) * scale)} ms" for at in (low, high))
        # A parabola may fall at its short end, where there is least to fit.
        rate = (f"{first} per {unit} at {count(low)}, {last} at {count(high)}"
                if curve.slope_at(low) > 0 else f"{last} per {unit} at {count(high)}")
        title = f"{what} grows faster than linearly: by {rate}"
        said.append("curve a + b·x + c·x²: better than a line, c above 0 (Welch's test, "
                    f"{_p(curve.p_value)})")
        said.append(f"line: {sentence.partition(' by ')[2]}")
    elif sentence:
        said.append(sentence.partition(" (")[2].rstrip(")"))
    if not drawn:
        title = f"{what} against {x_label}: nothing to draw"
    short = sum(s.counts and s.output_tokens is not None
                and s.output_tokens < s.asked_output_tokens for s in samples)
    if name == OUTPUT and short:
        said.append(f"{short} of {len(samples)} answers stopped before the length asked for")
    return Points(
        name=name, title=title[0].upper() + title[1:], x_label=x_label, y_label=what,
        points=tuple(zip(xs, ys, strict=True)),
        line=line if sentence else None, curve=curve, is_log=is_wide(xs) and min(ys) > 0,
        said=(*said, *missing_words(samples, len(drawn)), *clock_words(samples)))


def cache_bars(samples: Sequence[Sample], judged: dict[str, str], *, native: bool) -> Bars:
    """The turns of append and prepend side by side; each arm's verdict in the title."""
    bars = _bars(samples, CACHE, JUDGED, native=native)
    return replace(bars, title=" · ".join(f"{arm}: {judged[arm]}" for arm in bars.arms))


def replay_bars(samples: Sequence[Sample], *, native: bool) -> Bars:
    """The turns of a replay as sent, mended and cold, side by side; medians in the title."""
    bars = _bars(samples, REPLAY, (AS_SENT, WHAT_IF, COLD), native=native)
    medians = {arm: value for arm, value in bars.medians.items() if value is not None}
    unit = "tokens recomputed" if bars.is_tokens else "ms to the first token"
    title = ", ".join(f"{REPLAYED[arm]} {shown_value(value, bars.is_tokens)}"
                      for arm, value in medians.items())
    return replace(bars, title=f"A turn of the replay, {unit}: {title}" if medians
                   else "The turns of the replay: nothing to compare")


def _bars(samples: Sequence[Sample], name: str, among: Sequence[str], *, native: bool) -> Bars:
    asked = [s for s in samples if s.arm in among]
    arms = tuple(arm for arm in among if any(s.arm == arm for s in asked))
    heights: dict[str, dict[int, Bar]] = {arm: {} for arm in arms}
    is_tokens = native and any(_token_bar(s) is not None for s in asked)
    for sample in asked:
        bar = _token_bar(sample) if is_tokens else _time_bar(sample)
        if bar is not None:
            heights[sample.arm][sample.turn] = bar
    turns = sorted({s.turn for s in asked})
    medians = {arm: middle(bar.height for turn, bar in heights[arm].items() if turn >= FROM_TURN)
               for arm in arms}
    known = [f"{REPLAYED.get(arm, arm)} {shown_value(value, is_tokens)}"
             for arm, value in medians.items() if value is not None]
    what = "tokens recomputed a turn" if is_tokens else "TTFT in ms"
    said = [f"{what}, median from turn {FROM_TURN}: {', '.join(known)}"] if known else [
        f"no turn from {FROM_TURN} on is known: no median"]
    bars = tuple(heights[arm][turn] for turn in turns for arm in arms if turn in heights[arm])
    return Bars(
        name=name, title="",
        y_label="prompt tokens" if is_tokens else "TTFT", is_tokens=is_tokens, arms=arms,
        bars=bars, medians=medians, is_labelled=len(bars) <= MOST_LABELLED_BARS,
        gaps=tuple((arm, turn) for turn in turns for arm in arms if turn not in heights[arm]),
        said=(*said, *missing_words(asked, len(bars)), *clock_words(asked)))


def _token_bar(sample: Sample) -> Bar | None:
    reused, computed = usable(sample.cached_tokens), usable(recomputed_tokens(sample))
    if not sample.counts or reused is None or computed is None:
        return None
    return Bar(arm=sample.arm, turn=sample.turn, base=reused, height=computed)


def _time_bar(sample: Sample) -> Bar | None:
    waited = usable(ttft_s(sample))
    if not sample.counts or waited is None:
        return None
    return Bar(arm=sample.arm, turn=sample.turn, base=0.0, height=waited)


def phase_rows(samples: Sequence[Sample]) -> Phases:
    """TTFT and inter-token latency of both arms, from the turn that could reuse something.

    Where no output tokens were reported it is inter-chunk latency, and called so.
    """
    asked = [s for s in samples if s.arm in JUDGED and s.turn >= FROM_TURN]
    counted = [s for s in asked if s.counts]
    by_token = any(usable(inter_token_s(s)) is not None for s in counted)
    by_chunk = not by_token and any(usable(inter_chunk_s(s)) is not None for s in counted)
    latency = "inter-chunk latency" if by_chunk else "inter-token latency"
    each = inter_chunk_s if by_chunk else inter_token_s
    arms = [arm for arm in JUDGED if any(s.arm == arm for s in samples)]
    rows = []
    for name, figure in (("TTFT", ttft_s), (latency, each)):
        for arm in arms:
            values = _known(figure(s) for s in counted if s.arm == arm)
            rows.append(Row(figure=name, arm=arm, values=values, median=middle(values)))
    medians = {(row.figure, row.arm): row.median for row in rows}
    ratios = [ratio(medians.get((name, "prepend")), medians.get((name, "append")))
              for name in ("TTFT", latency)]
    if ratios[0] is not None:
        other = "not known" if ratios[1] is None else times(ratios[1])
        title = f"prepend / append: TTFT {times(ratios[0])}, {latency} {other}"
    else:
        title = f"TTFT and {latency} of {' and '.join(arms)}"
    turns = {arm: sum(s.arm == arm for s in asked) for arm in arms}
    fewer = [f"{row.arm} {row.figure} {len(row.values)} of {turns[row.arm]}"
             for row in rows if len(row.values) < turns[row.arm]]
    said = [f"a mark a turn from turn {FROM_TURN} on; the bar is the median",
            *([f"turns with a known figure: {', '.join(fewer)}"] if fewer else [])]
    return Phases(name=PHASES, title=title, rows=tuple(rows), said=tuple(said),
                  is_log=is_wide([value for row in rows for value in row.values]))


def _p(value: float) -> str:
    return f"p {value:.1g}" if value >= LEAST_P else f"p below {LEAST_P}"


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(known for value in values if (known := usable(value)) is not None)
