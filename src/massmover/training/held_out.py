"""How a run does on images it does not train on."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from massmover.attacks.ascent import PlanAscent
from massmover.threat import WassersteinBall
from massmover.training.batches import accuracy, as_floats
from massmover.training.checkpoint import Run
from massmover.training.margins import held_out_margins
from massmover.types import Labels

ATTACKED = 500  # of the held-out images; all of them are classified
STEPS = 20
RADII = (0.125, 0.25, 0.5)  # of the adversary's largest radius


def scores(run: Run, images: Tensor, labels: Labels, *, device: torch.device) -> tuple[float | None, dict[str, float]]:
    """Clean accuracy of the averaged weights, and accuracy by radius under a short plan ascent or by margins."""
    if not len(images):
        return None, {}
    model = copy.deepcopy(run.model)
    run.average.copy_to(model)
    clean = accuracy(model, images, labels)
    if run.recipe.margin is not None:
        return clean, held_out_margins(model, images, labels)
    if run.recipe.adversary is None:
        return clean, {}
    few, truth = as_floats(images[:ATTACKED].to(device)), labels[:ATTACKED].to(device)
    robust = {}
    for share in RADII:
        ball = WassersteinBall(share * run.recipe.adversary.radius)
        found = PlanAscent(steps=STEPS).run(model, few, truth, ball=ball)
        robust[f"{ball.radius:g}"] = 1 - float(found.success.double().mean())
    return clean, robust
