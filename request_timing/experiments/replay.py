"""Captured turns, sent again: what was predicted, reported and timed, turn by turn.

as_sent   the turns as they were captured, one token of output each
what_if   the same with the breaks mended that a transformation can mend
cold      where only the clock speaks: each turn behind a beginning that nobody has seen

A llama-server makes the prompt itself (its chat template, its tokenizer), so that the shared
beginning is known in tokens before it is sent. Of a provider the shared characters are known, and
its bodies are sent as they are: an earlier run may have left them in its cache, which turn 1 shows.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from request_timing.errors import UserError
from request_timing.experiments.lab import Lab
from request_timing.explain.causes import Comparison
from request_timing.explain.turns import Explained, explain_turns
from request_timing.findings.measures import AS_SENT, COLD, WHAT_IF
from request_timing.prompts.as_chat import left_out
from request_timing.prompts.captured import CHAT, PROMPT, Turn
from request_timing.prompts.filler import common_prefix
from request_timing.prompts.lossless_json import to_json
from request_timing.prompts.rendering import render
from request_timing.records.names import REPLAY
from request_timing.records.sample import BROKE, Sample
from request_timing.servers.backend import USER, Message, Prompt
from request_timing.servers.timing import Event, RequestFailed, prompt_hash
from request_timing.stats.compare import ratio
from request_timing.untrusted import as_list, mapping

OUTPUT_TOKENS = 1
# A reply of one token from an API may hold no piece at all; a few do.
API_OUTPUT_TOKENS = 4
VOID = "void: the turn before was not answered, so what it shares may not be cached"


@runtime_checkable
class MakesPrompts(Protocol):
    """A backend that shows which prompt it makes of a captured body."""

    def prompt_tokens(self, body: str | dict[str, Any], opening: str
                      ) -> tuple[str, Sequence[int]]:
        """The prompt behind an opening: its text and its tokens. Raises RequestFailed."""


@runtime_checkable
class TakesBodies(Protocol):
    """A backend that takes a captured body as it is."""

    def stream_body(self, body: dict[str, Any], output_tokens: int) -> Iterator[Event]:
        """Send it, streamed and with so much output, and yield what happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One turn, ready to be sent as a body, and what it shares with those before it."""

    prompt: Prompt
    body: dict[str, Any]
    found: Explained
    notes: tuple[str, ...]


def replay(lab: Lab) -> Iterator[Sample]:
    """Every arm's turns in order; on an API the arms in turn, on a llama-server as blocks."""
    turns = lab.settings.captured
    arms = {AS_SENT: turns} | ({WHAT_IF: lab.settings.mended} if lab.settings.mended else {})
    backend = lab.backend
    if isinstance(backend, MakesPrompts):
        for arm, chosen in arms.items():
            yield from _as_the_server_does(lab, backend, arm, chosen)
        return
    assert isinstance(backend, TakesBodies), "a backend is of the one kind or the other"
    prepared = {arm: list(_as_they_are(chosen)) for arm, chosen in arms.items()}
    # What a repair leaves alone is the same in both arms, and must not hit the other's.
    opening = lab.opening()
    rng: random.Random = lab.rng("replay")
    failed: set[str] = set()  # arms whose turn before had no answer
    for number in range(1, len(turns) + 1):
        for arm in rng.sample([*prepared, COLD], len(prepared) + 1):
            ready = prepared[AS_SENT if arm == COLD else arm][number - 1]
            known = {} if arm == COLD else _known(ready.found)
            notes = () if arm == COLD else (*ready.notes, *([VOID] if arm in failed else []))
            body = ready.body if arm == AS_SENT else _opened(
                ready.body, lab.opening() if arm == COLD else opening)
            sample, _ = lab.ask(
                REPLAY, arm, ready.prompt, API_OUTPUT_TOKENS, turn=number,
                send=partial(backend.stream_body, body, API_OUTPUT_TOKENS), notes=notes,
                shared=(0 if arm == COLD else ready.found.shared_chars, None), cold=arm == COLD)
            (failed.discard if sample.error is None else failed.add)(arm)
            yield replace(sample, **known)


def check(turns: Sequence[Turn], *, is_api: bool) -> None:
    """Raises UserError for turns that cannot be replayed."""
    if len(turns) < 2:
        raise UserError("--replay: expected at least two turns, found one; give the prompts of a "
                      "whole conversation")
    other = next((turn for turn in turns if turn.kind not in (CHAT, PROMPT)), None)
    if is_api and other is not None:
        raise UserError(f"--replay: expected chat-completions bodies or prompts, found "
                      f"{other.kind} bodies ({other.source}); --explain reads them, and "
                      "local_cache.py replays them on a llama-server")


def broke(comparison: Comparison | None) -> str:
    """What broke a turn, in words that hold nothing of the prompt; "" for the first turn."""
    if comparison is None:
        return ""
    if comparison.nothing:
        return comparison.nothing
    first, *more = comparison.breaks
    return f"{first.detail}, in {first.at.place}" + (f" (+{len(more)})" if more else "")


def _as_the_server_does(
    lab: Lab, server: MakesPrompts, arm: str, turns: Sequence[Turn]
) -> Iterator[Sample]:
    """Each turn as the text and tokens that the server makes of it, behind one opening for all.

    The opening is the same in every turn, so it takes nothing from what they share; but no earlier
    run, and no other arm, has left its beginning in the server's memory. A turn that the template
    refuses, or that is not answered, has failed; the next one is set beside the last that was.
    """
    opening = lab.opening()
    before: tuple[str, Sequence[int]] = "", ()
    answered: dict[int, Sequence[int]] = {}
    unseen: tuple[str, ...] = ()
    shown = turns
    if _hides_tools(lab, server, turns):
        unseen = ("the model's chat template shows no tools: what changes in them breaks nothing",)
        shown = [_without(turn, "tools") for turn in turns]
    for number, (turn, found) in enumerate(zip(turns, explain_turns(shown), strict=True), 1):
        notes = (_noted(found.comparison) + (unseen if number == 1 else ())
                 + left_out(turn.body()))
        avoidable = ratio(found.avoidable_chars, found.chars)
        try:
            made = lab.patience.call(partial(server.prompt_tokens, turn.body(), opening),
                                     is_sample=False)
        except RequestFailed as failed:
            yield _refused(lab, arm, number, turn, notes, failed)
            continue
        text, tokens = made
        shared = common_prefix(before[1], tokens)
        best, where = max(((common_prefix(kept, tokens), earlier)
                           for earlier, kept in answered.items()), default=(0, 0))
        better: dict[str, Any] = {}
        if best > shared:  # a server that holds several prompts may take up that one
            better = {"best_turn": where, "best_tokens": min(best, len(tokens) - 1)}
            notes += (f"turn {number} shares {best:,} tokens with turn {where}, more than with "
                      "the turn before",)
        known = common_prefix(before[0], text), min(shared, len(tokens) - 1)  # the last is computed
        sample, _ = lab.ask(REPLAY, arm, (Message(USER, text),), OUTPUT_TOKENS, turn=number,
                            shared=known, notes=notes)
        if sample.error is None:
            before = made
            answered[number] = tokens
        yield replace(sample, avoidable_share=avoidable, **better)


def _known(found: Explained) -> dict[str, Any]:
    """What the texts tell of a turn beside what it shares with the turn before, as a Sample has it.
    """
    known: dict[str, Any] = {"avoidable_share": ratio(found.avoidable_chars, found.chars)}
    if found.best_chars > found.shared_chars:
        known |= {"best_turn": found.best_turn, "best_chars": found.best_chars}
    return known


def _hides_tools(lab: Lab, server: MakesPrompts, turns: Sequence[Turn]) -> bool:
    """Whether the first turn with tools becomes a prompt in which no tool is named."""
    for body in (turn.body() for turn in turns):
        tools = as_list(body.get("tools")) if isinstance(body, dict) else []
        names = [str(name) for tool in map(mapping, tools)
                 if (name := mapping(tool.get("function")).get("name") or tool.get("name"))]
        if names:
            try:
                text, _ = lab.patience.call(partial(server.prompt_tokens, body, ""),
                                            is_sample=False)
            except RequestFailed:
                return False  # the turn itself will say why
            return not any(name in text for name in names)
    return False


def _refused(lab: Lab, arm: str, number: int, turn: Turn, notes: tuple[str, ...],
             failed: RequestFailed) -> Sample:
    """The sample of a turn of which the server made no prompt, so that it was never sent."""
    text = render(turn.body()).data.decode("utf-8", "surrogatepass")
    return Sample(
        experiment=REPLAY, arm=arm, turn=number, repeat=1, notes=notes, error=failed.failure,
        sent_at=lab.now().isoformat(timespec="milliseconds"), prompt_chars=len(text),
        prompt_hash=prompt_hash(text), asked_output_tokens=OUTPUT_TOKENS)


def _as_they_are(turns: Sequence[Turn]) -> Iterator[Ready]:
    """Each turn as its own body, whose rendering stands for its text."""
    for turn, found in zip(turns, explain_turns(turns), strict=True):
        body = turn.body()
        text = body if isinstance(body, str) else body.get("prompt", "")
        if turn.kind == PROMPT:
            named = {} if turn.model is None else {"model": turn.model}
            body = named | {"messages": [{"role": "user", "content": text}]}
        assert isinstance(body, dict)
        rendered = render(turn.body()).data.decode("utf-8", "surrogatepass")
        yield Ready(prompt=(Message(USER, rendered),), body=body, found=found,
                    notes=_noted(found.comparison))


def of_one_model(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns without the models that they name, where they name several: all of them are
    about to go to one, so that another name breaks nothing."""
    if len({turn.model for turn in turns}) < 2:
        return tuple(turns)
    return tuple(_without(turn, "model") for turn in turns)


def _without(turn: Turn, name: str) -> Turn:
    """The turn without a field of its body."""
    body = turn.body()
    if isinstance(body, str) or name not in body:
        return turn
    return replace(turn, raw=to_json(
        {key: value for key, value in body.items() if key != name}
    ).encode("utf-8", "surrogatepass"))


def _opened(body: dict[str, Any], opening: str) -> dict[str, Any]:
    """The body with its first tool and its first message begun anew: it shares nothing with what
    has another opening."""
    body = copy.deepcopy(body)
    tools = [tool.get("function") for tool in _dicts(body.get("tools"))]
    for function in [*_dicts(tools), *_dicts(body.get("functions"))][:1]:
        function["description"] = opening + str(function.get("description") or "")
    first = next(iter(_dicts(body["messages"])), {})
    if isinstance(first.get("content"), list):
        first["content"].insert(0, {"type": "text", "text": opening})
    else:
        first["content"] = opening + str(first.get("content") or "")
    return body


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def _noted(comparison: Comparison | None) -> tuple[str, ...]:
    said = broke(comparison)
    return (BROKE + said,) if said else ()
