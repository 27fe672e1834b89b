"""depth, workload and restore on scripted backends: what is asked, in which order, of what size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from request_timing.cli import values
from request_timing.experiments import savings, savings_plan
from request_timing.experiments.lab import Lab, Settings
from request_timing.experiments.plan import context_needed, fit_context, plan
from request_timing.experiments.restore import lengths, restore
from request_timing.experiments.savings import depth, depths, workload
from request_timing.records.sample import Sample
from request_timing.servers.backend import Prompt
from request_timing.servers.timing import Event, RequestFailed
from scripted_backend import NOW, Scripted, joined, settings


def small(*names: str, **known: Any) -> Settings:
    return settings(**{"experiments": names, "context": 1020, "repeats": 2} | known)


def lab(backend: Scripted, *names: str, **known: Any) -> Lab:
    return Lab(backend=backend, settings=small(*names, **known), now=lambda: NOW)


# --- sizes ---------------------------------------------------------------------------------------

def test_the_full_sizes_are_those_of_the_default_context() -> None:
    full = small(context=51_000)
    assert depths(full) == (0, 1000, 4000, 16_000, 48_000)
    assert savings.corners(full) == ((40_000, 200), (14_700, 540), (5400, 1470), (2000, 4000))
    assert savings.block_tokens(full) == 256
    assert depths(small(context=200_000)) == depths(full)


def test_a_smaller_context_scales_them() -> None:
    assert depths(small()) == (0, 20, 80, 320, 960)
    assert savings.corners(small())[0] == (800, 4)
    assert depths(small(context=1)) == (0, 16, 16, 16, 16)


def test_restore_has_one_short_length_beside_those_of_the_sweep() -> None:
    assert lengths(small(lengths=(200, 400))) == (25, 200, 400)
    assert lengths(small(lengths=(16, 400))) == (16, 400)
    assert lengths(small(lengths=())) == (32,)  # where none of them fits the server


# --- depth ---------------------------------------------------------------------------------------

def test_each_depth_is_read_cold_and_then_appended_to() -> None:
    backend = Scripted(interleave=False)
    samples = list(depth(lab(backend, "depth")))
    for n in (20, 80, 320, 960):
        asked = [(s, joined(p)) for s, p in zip(samples, backend.prompts, strict=True)
                 if s.arm.rpartition("/")[2] == str(n)]
        assert [s.arm for s, _ in asked] == [f"prime/{n}", str(n), str(n)]
        assert [s.turn for s, _ in asked] == [1, 2, 3]
        texts = [text for _, text in asked]
        assert texts[1].startswith(texts[0]) and texts[2].startswith(texts[1])
        assert asked[0][0].prompt_tokens == pytest.approx(n, rel=0.02, abs=12)
        block = len(texts[1]) - len(texts[0]) - len("answer 00")
        assert block == pytest.approx(savings.block_tokens(small()), abs=6)
    zeros = [joined(p) for s, p in zip(samples, backend.prompts, strict=True) if s.arm == "0"]
    assert len({text[0] for text in zeros}) == 2


def test_depths_run_as_blocks_where_one_slot_holds_one_prefix() -> None:
    samples = list(depth(lab(Scripted(interleave=False), "depth")))
    order = [s.arm.rpartition("/")[2] for s in samples]
    assert sum(a != b for a, b in itertools.pairwise(order)) == len(set(order)) - 1


def test_depths_take_turns_where_a_backend_keeps_many() -> None:
    samples = list(depth(lab(Scripted(), "depth")))
    assert [s.arm.startswith("prime/") or s.arm == "0" for s in samples[:5]] == [True] * 5
    later = samples[5:]
    assert len(later) == 4 + 1 + 4  # the second of depth 0 comes with the first round
    assert {s.arm for s in later[:5]} == {"0", "20", "80", "320", "960"}


def test_a_depth_whose_prefix_failed_is_left_and_the_others_are_measured() -> None:
    samples = list(depth(lab(Scripted(interleave=False, fails_at=0), "depth")))
    failed = [s for s in samples if s.error is not None]
    assert len(failed) == 1
    left = {"0", "20", "80", "320", "960"} - {failed[0].arm.rpartition("/")[2]}
    assert {s.arm for s in samples if s.error is None and not s.arm.startswith("prime/")} == left


# --- workload ------------------------------------------------------------------------------------

def test_each_corner_is_asked_cold_and_at_once_again() -> None:
    backend = Scripted()
    samples = list(workload(lab(backend, "workload")))
    assert len(samples) == 8
    for n in range(0, 8, 2):
        cold, hit = samples[n:n + 2]
        assert cold.arm.removeprefix("cold/") == hit.arm.removeprefix("hit/")
        assert backend.prompts[n] == backend.prompts[n + 1]
        prompt, output = map(int, cold.arm.removeprefix("cold/").split("x"))
        assert cold.asked_output_tokens == hit.asked_output_tokens == output
        # a frame of the opening and the task is larger than the smallest of these
        assert cold.prompt_tokens == pytest.approx(prompt, rel=0.02, abs=60)


def test_a_corner_that_failed_is_not_asked_again() -> None:
    samples = list(workload(lab(Scripted(fails_at=0), "workload")))
    assert len(samples) == 7 and samples[0].error is not None
    assert samples[1].arm.startswith("cold/")


# --- restore -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Facts:
    slots: int | None


@dataclass
class Slotted(Scripted):
    """A backend with slots that says what it was asked; saving fails where there is no disk."""

    slots: int = 1
    has_disk: bool = True
    takes: bool = True  # whether another prompt lands in the same slot
    actions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(interleave=False)

    @property
    def facts(self) -> Facts:
        return Facts(self.slots)

    def slot_action(self, slot: int, action: str, filename: str) -> dict[str, Any]:
        if not self.has_disk:
            raise RequestFailed("http", "start it with --slot-save-path", 501)
        self.actions.append(f"{action} {slot}")
        return {"n_saved": 10_000, "n_restored": 10_000, "n_read": 5}

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        from request_timing.records.sample import ServerTimings
        from request_timing.servers.timing import Usage

        for event in super().stream(prompt, output_tokens):
            if isinstance(event, Usage):
                other = output_tokens == 1 and not self.takes
                event = replace(event, server=ServerTimings(id_slot=1 if other else 0))
            yield event


def ways(samples: list[Sample]) -> list[str]:
    return [s.arm.partition("/")[0] for s in samples]


def test_every_way_back_is_tried_at_every_length() -> None:
    backend = Slotted()
    samples = list(restore(lab(backend, "restore", repeats=1)))
    each = ["recompute", "slot", "other", "host", "other", "disk"]
    assert ways(samples) == each * 3
    assert backend.actions == ["save 0", "restore 0"] * 3 + ["save 0"]  # the last is a short one
    disk = [s for s in samples if s.arm.startswith("disk/")]
    assert all(s.restored is not None and s.restored.tokens == 10_000 for s in disk)
    assert all(s.restored is None for s in samples if s not in disk)
    for n in range(0, 18, 6):  # one prompt, four times
        assert len({backend.prompts[n + k] for k in (0, 1, 3, 5)}) == 1


def test_without_a_place_for_slots_the_rest_is_measured_and_it_is_said_once() -> None:
    samples = list(restore(lab(Slotted(has_disk=False), "restore", repeats=1)))
    assert ways(samples) == ["recompute", "slot", "other", "host"] * 3
    notes = [n for s in samples for n in s.notes if n.startswith("no_disk")]
    assert notes == ["no_disk: the server saves no slot (HTTP 501)"]


def test_with_many_slots_as_many_prompts_take_them() -> None:
    backend = Slotted(slots=8, has_disk=False, takes=False)
    samples = list(restore(lab(backend, "restore", repeats=1, lengths=(16,))))
    assert ways(samples) == ["recompute", "slot", *["other"] * 8, "host"]
    assert samples[-1].notes == ("void: no other prompt took the slot",)
    assert not samples[-1].counts


def test_a_backend_without_slots_has_the_pauses_alone() -> None:
    assert list(restore(lab(Scripted(), "restore"))) == []


class FakeTime:
    """A clock that moves when something sleeps, or asks."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 1
        self.now_s += seconds

    def now(self) -> datetime:
        self.now_s += 0.01
        return NOW + timedelta(seconds=self.now_s)


@pytest.mark.parametrize(("interleave", "longest_s"), [(True, 62), (False, 77)])
def test_pauses_are_waited_for_outside_the_clock(interleave: bool, longest_s: int) -> None:
    time = FakeTime()
    backend = Scripted(interleave=interleave)
    made = Lab(backend=backend, settings=small("restore", pauses=(5, 10, 60)), now=time.now)
    samples = list(restore(made, time.sleep, lambda: time.now_s))
    sent = {s.arm: datetime.fromisoformat(s.sent_at) for s in samples}
    assert len(samples) == 8
    for wait in (0, 5, 10, 60):
        really = (sent[f"pause/{wait}"] - sent[f"first/{wait}"]).total_seconds()
        assert wait <= really < wait + 1
    assert time.now_s < longest_s
    by_arm = dict(zip((s.arm for s in samples), map(joined, backend.prompts), strict=True))
    assert all(by_arm[f"pause/{w}"] == by_arm[f"first/{w}"] for w in (0, 5, 10, 60))


# --- plan and flags ------------------------------------------------------------------------------

@pytest.mark.parametrize("native", [True, False])
def test_the_plan_is_what_is_then_sent(native: bool) -> None:
    wanted = small("depth", "workload", "restore", pauses=(1, 2))
    time = FakeTime()
    backend = Slotted() if native else Scripted()
    made = Lab(backend=backend, settings=wanted, now=time.now)
    samples = [*depth(made), *workload(made),
               *restore(made, time.sleep, lambda: time.now_s)]
    for planned in plan(wanted, len, interleave=not native):
        sent = [s for s in samples if s.experiment == planned.experiment]
        assert planned.requests == len(sent)
        assert planned.output_tokens == sum(s.asked_output_tokens for s in sent)
        tokens = sum(s.prompt_tokens or 0 for s in sent)
        assert planned.input_tokens == pytest.approx(tokens, rel=0.25)
    assert savings_plan.waiting_s(wanted, native=native) == (3 if native else 2)


def test_what_does_not_fit_is_said_and_left_out_and_the_rest_is_asked() -> None:
    wanted = small("length", "depth", "workload", "fit", context=51_000)
    fitting, lines = fit_context(wanted, 2048, 1, len)
    assert fitting.experiments == ("length", "depth", "fit")
    assert [line.split(" left out")[0] for line in lines] == [
        "depth 4,000", "depth 16,000", "depth 48,000", "workload 40,000 in, 200 out",
        "workload 14,700 in, 540 out", "workload 5,400 in, 1,470 out",
        "workload 2,000 in, 4,000 out"]
    assert "give a smaller --context" in lines[0]
    backend = Scripted(interleave=False)
    samples = list(depth(Lab(backend=backend, settings=fitting, now=lambda: NOW)))
    assert {s.arm for s in samples} == {"0", "prime/1000", "1000"}


def test_fit_alone_of_nothing_is_nothing() -> None:
    fitting, _ = fit_context(small("length", "fit", lengths=(5000,)), 2048, 1, len)
    assert fitting.experiments == ()


def test_a_server_started_for_the_settings_holds_them() -> None:
    wanted = small("depth", "workload", "restore", pauses=(1,), context=5000)
    _, lines = fit_context(wanted, context_needed(wanted), 1, len)
    assert lines == []


@pytest.mark.parametrize(("text", "names"), [
    ("fit", ("length", "fit")), ("workload", ("length", "depth", "workload")),
    ("restore", ("restore",)), ("depth, cache", ("cache", "depth")),
    ("all", ("length", "output", "cache", "ladder", "position", "minimum", "depth", "workload",
             "restore", "fit"))])
def test_an_experiment_brings_what_its_figures_need(text: str, names: tuple[str, ...]) -> None:
    assert values.experiment_names(text) == names


def test_shapes_of_the_command_line() -> None:
    assert values.shapes("40000x200,300X4") == ((40_000, 200), (300, 4))
    for bad in ("40000", "x200", "0x5", "5x0", "1x2x3", "-1x2", "1 x 2", ""):
        with pytest.raises(Exception, match="such as 40000x200"):
            values.shapes(bad)


def test_choices_do_not_depend_on_what_else_runs() -> None:
    one, two = (list(workload(lab(Scripted(), "workload"))) for _ in range(2))
    assert [s.arm for s in one] == [s.arm for s in two]
    assert not {s.prompt_hash for s in one} & {s.prompt_hash for s in two}
