"""CONTRIBUTING says that a new attack is one file and one line: here is one."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import massmover
from massmover.attacks import api
from massmover.attacks.base import AttackResult, Found, Problem, run
from massmover.classifier import borrowed
from massmover.models import load_model
from massmover.names import ATTACKS
from massmover.transport.potential import Pull, move_mass
from massmover.types import Classifier


@dataclass(frozen=True)
class OneStep:
    """The plan of the first gradient, and nothing after it."""

    sharpness: float = 60.0

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        return run(self, model, problem, seed=seed)

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        with borrowed(model):
            resting = problem.fooled(model, problem.images)
            _, gradient = problem.slope(model, problem.images, loss="cross-entropy")
        largest = gradient.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30)
        pull = Pull(self.sharpness * gradient / largest)
        images = move_mass(pull, problem.balls).images
        return Found(moves=pull.moves, images=images, steps=torch.ones_like(problem.labels), resting=resting)


def test_a_new_attack_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch, digits: tuple[Tensor, Tensor]) -> None:
    monkeypatch.setitem(sys.modules, "massmover.attacks.one_step", sys.modules[__name__])  # the one file
    line = {"one-step": "one_step:OneStep"}  # the one line
    monkeypatch.setattr(api, "METHODS", {name: api.made(place) for name, place in {**ATTACKS, **line}.items()})
    images, labels = digits[0][:20], digits[1][:20]
    model = load_model("mnist-standard")
    with torch.no_grad():
        assert (model(images).argmax(dim=1) == labels).all()
    found = massmover.attack(model, images, labels, radius=0.3, method="one-step")
    assert found.success.any()
    assert found.trusted.all()
    assert massmover.verify(images, found.images, found.radius).violations == 0
    smallest = massmover.smallest_radius(model, images[:4], labels[:4], method="one-step")
    assert smallest.success.any()
