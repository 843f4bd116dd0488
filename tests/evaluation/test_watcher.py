"""Who watches a run hears where every attack is, without asking the device for more."""

from __future__ import annotations

import errno
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.progress import Progress as Bar
from torch import Tensor

from finished import settings_of
from massmover import METHODS, FrankWolfe, MassmoverError, PlanAscent, attack, smallest_radius
from massmover.attacks.api import method_of
from massmover.cli.bar import Staged, staged_bar
from massmover.cli.evaluate import Shown
from massmover.cli.screen import Screen, errors
from massmover.evaluation import run as running
from massmover.evaluation.run import Destination, run
from massmover.evaluation.subject import load_subject
from massmover.evaluation.watcher import Progress, Watcher
from massmover.models import load_model
from massmover.types import Stage, StoppedError


class Heard(Watcher):
    def __init__(self) -> None:
        self.stages: list[tuple[range, float | None, Stage]] = []

    def searching(self, batch: range, radius: float | None, stage: Stage) -> None:
        self.stages.append((batch, radius, stage))


def test_a_run_tells_batch_radius_attack_step_and_who_stands(tmp_path: Path) -> None:
    settings = replace(settings_of(count=4, radii=(0.05, 0.3)), batch_size=2, steps=25, backend="torch")
    heard = Heard()
    run(load_subject(settings), settings, Destination(tmp_path / "run"), watcher=heard)
    assert {(batch.start, radius) for batch, radius, _ in heard.stages} == {(s, r) for s in (0, 2) for r in (0.05, 0.3)}
    first = [stage for batch, radius, stage in heard.stages if batch.start == 0 and radius == 0.05]
    assert [(stage.attack, stage.step, stage.steps) for stage in first] == [
        ("ascent", step, 25) for step in (0, 10, 20)
    ]
    standing = [stage.standing for stage in first]
    assert standing[0] == 2 and standing == sorted(standing, reverse=True)


@pytest.mark.parametrize("method", METHODS)
def test_every_attack_tells_its_stages_and_does_not_change(method: str, digits: tuple[Tensor, Tensor]) -> None:
    images, labels, model = digits[0][:3], digits[1][:3], load_model("mnist-standard")
    stages: list[Stage] = []
    found = attack(model, images, labels, radius=0.01, method=method, steps=2, watch=stages.append)
    assert stages and all(0 <= stage.step <= stage.steps and stage.standing <= 3 for stage in stages)
    assert (found.images == attack(model, images, labels, radius=0.01, method=method, steps=2).images).all()
    if method == "auto":
        names = list(dict.fromkeys(stage.attack.split(", restart ")[0] for stage in stages))
        assert names[:2] == ["auto: ascent", "auto: ascent on the margin"] and "auto: ascent to runner-up 4" in names
        assert names[-2:] == ["auto: ascent, restarted", "auto: frank-wolfe"]


def test_the_search_of_a_smallest_radius_is_heard(digits: tuple[Tensor, Tensor]) -> None:
    stages: list[Stage] = []
    smallest_radius(load_model("mnist-standard"), digits[0][:2], digits[1][:2], rounds=1, watch=stages.append)
    assert stages


def test_a_line_now_and_then_without_a_terminal() -> None:
    now = [0.0]
    with errors.capture() as said, Bar(console=errors, disable=True) as bar:
        shown = Shown(bar, first=True, clock=lambda: now[0])
        shown.progressed(Progress(0, 20, 0.0))
        shown.searching(range(10), 0.1, Stage("ascent", 40, 100, 7))  # too early
        now[0] = 31.0
        shown.searching(range(10), 0.1, Stage("ascent", 50, 100, 6))
        shown.searching(range(10), 0.1, Stage("ascent", 51, 100, 6))  # just said
        now[0] = 62.0
        shown.progressed(Progress(10, 20, 0.5))
    lines = said.get().splitlines()
    assert lines[0] == "massmover: 0/20 images, images 0 to 9, radius 0.1: ascent, step 50/100, 6 stand"
    assert lines[1].startswith("massmover: 10/20 images, accuracy 50.0%") and len(lines) == 2


def test_a_bar_of_steps_moves_within_a_batch() -> None:
    with Bar(console=errors, disable=True) as bar:
        shown = Shown(bar, first=True)
        images, steps = bar.tasks
        shown.progressed(Progress(0, 20, 0.0))
        assert not steps.visible
        for step in (0, 40):
            shown.searching(range(3, 4), 0.1, Stage("ascent", step, 100, 1))
            assert (steps.completed, steps.total, steps.visible, images.completed) == (step, 100, True, 0)
        assert steps.fields["stage"] == "image 3, radius 0.1: ascent, step 40/100, 1 stand"
        shown.progressed(Progress(1, 20, 0.0))
        assert images.completed == 1 and not steps.visible


def test_other_processes_say_nothing() -> None:
    now = [0.0]
    with errors.capture() as said, Bar(console=errors, disable=True) as bar:
        shown = Shown(bar, first=False, clock=lambda: now[0])
        now[0] = 100.0
        shown.searching(range(10), None, Stage("ascent", 40, 100, 7))
    assert said.get() == ""


def test_a_disk_that_fills_on_closing_can_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(settings_of(count=1, radii=(0.1,)), steps=2)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(running, "merge_examples", full)
        with pytest.raises(StoppedError, match=r"could not be written to \(No space left on device\)"):
            run(load_subject(settings), settings, Destination(tmp_path / "run"))
    summary = run(load_subject(settings), settings, Destination(tmp_path / "run", resume=True))
    assert summary["images"] == 1


def test_steps_and_restarts_change_the_attack_that_has_them(digits: tuple[Tensor, Tensor]) -> None:
    assert method_of("ascent", steps=7, restarts=3) == PlanAscent(steps=7, restarts=3)
    assert method_of(FrankWolfe(sharpness=5), steps=7) == FrankWolfe(steps=7, sharpness=5)
    assert method_of("auto") is METHODS["auto"]
    model = load_model("mnist-standard")
    found = attack(model, digits[0][:2], digits[1][:2], radius=1e-4, method="ascent", steps=3, restarts=1)
    assert torch.equal(found.steps, torch.tensor([6, 6]))


def test_steps_and_restarts_that_mean_nothing_are_refused() -> None:
    with pytest.raises(MassmoverError, match="'sinkhorn' has no restarts: leave it out, or use auto, ascent"):
        method_of("sinkhorn", restarts=1)
    for settings in ({"steps": 0}, {"steps": 1.5}, {"restarts": -1}):
        with pytest.raises(MassmoverError, match=next(iter(settings))):
            method_of("ascent", **settings)


def test_what_is_done_now_stands_below_the_bar_and_is_cut_at_the_end_of_the_screen() -> None:
    screen = Console(file=io.StringIO(), width=72, force_terminal=True, color_system=None)
    bar, now = staged_bar(screen, time_left=False), [0.0]
    shown = Shown(bar, first=True, clock=lambda: now[0])
    shown.progressed(Progress(done=0, total=40, accuracy=0.0))
    now[0] = 10.0
    shown.progressed(Progress(done=20, total=40, accuracy=0.5))
    shown.searching(range(20, 40), 0.05, Stage("auto: ascent to runner-up 4", 3, 100, 17_000))
    with screen.capture() as said:
        screen.print(bar.get_renderable())
    first, steps, second = said.get().splitlines()
    assert "━━━" in first and "20/40" in first and "accuracy 50.0%" in first
    assert steps.startswith("steps") and "3/100" in steps
    assert second.startswith("images 20 to 39, radius 0.05: auto: ascent to runner-up 4") and second.endswith("…")
    assert len(second) <= 72


def test_a_result_is_printed_below_a_bar_and_not_into_it() -> None:
    screen = Console(file=io.StringIO(), width=72, force_terminal=True)
    result = Screen(file=io.StringIO())
    with Staged(console=screen) as bar:
        bar.add_task("clamping", total=10)
        result.bar = bar
        assert bar.live.is_started
        result.print("10 of 10")
        assert not bar.live.is_started
        result.print("and more")
    assert result.file.getvalue() == "10 of 10\nand more\n"
