"""One call for every attack, and the names of all attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn

from massmover.attacks.base import Attack, AttackResult, Problem
from massmover.ball import WassersteinBall
from massmover.classifier import Drawn, borrowed, deciding, first_logits_of, lead
from massmover.inputs import HALVES, check_images, check_labels, check_mask
from massmover.names import ATTACKS
from massmover.types import Classifier, Images, MassmoverError, PerImage, Watch


def made(place: str) -> Attack:
    """The attack that a line of `names.ATTACKS` leads to, with its own settings."""
    module, _, maker = place.partition(":")
    found: Attack = getattr(import_module(f"massmover.attacks.{module}"), maker)()
    return found


# Every attack by its name: what `attack`, `smallest_radius`, training and the command line choose from.
METHODS: Mapping[str, Attack] = {name: made(place) for name, place in ATTACKS.items()}


def attack(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    ball: WassersteinBall | None = None,
    radius: float | PerImage | None = None,
    method: str | Attack = "auto",
    targets: Tensor | None = None,
    mask: Tensor | None = None,
    steps: int | None = None,
    restarts: int | None = None,
    draws: int | None = None,
    seed: int = 0,
    backend: str | None = None,
    watch: Watch | None = None,
) -> AttackResult:
    """Look for an image in the ball that the classifier gets wrong, for every image of a batch.

    `images` (B, C, H, W) in [0, 1], `labels` (B,). `radius`, one number or one an image, is short for
    `ball=WassersteinBall(radius)`. `method` is a name or an attack with settings of its own, such as
    `PlanAscent(steps=20)`. With `targets` the classifier must answer those. `mask` is True where mass may move, (H, W)
    for all images or one an image: other pixels neither send nor receive. `steps` and `restarts` change those of the
    method. `draws` is for a model that answers by chance: every gradient is that of the mean over
    so many draws of it, and success is decided by ten times as many that the search did not see (`classifier.Drawn`).
    `backend` says who moves the mass. `watch` is called with a `Stage` as the search goes on. The model is left as it
    was found, and nothing that was passed is written to.
    """
    chosen = method_of(method, steps=steps, restarts=restarts)
    searched, judge = asked(model, images, draws=draws, seed=seed)
    problem = posed(searched, images, labels, ball=ball_of(ball, radius), targets=targets, mask=mask, backend=backend)
    found = chosen.run(searched, replace(problem, watch=watch), seed=seed)
    if judge is not searched:
        found = replace(found, success=decided(judge, problem, found.images))
    moved, plan = problem.whole(found.images, found.plan)
    return replace(found, images=moved, plan=plan)


def method_of(method: str | Attack, *, steps: int | None = None, restarts: int | None = None) -> Attack:
    """The attack of a name, or the attack itself, with other steps and restarts where these are asked for."""
    chosen = named(method)
    asked = {"steps": steps, "restarts": restarts}
    changes = {setting: value for setting, value in asked.items() if value is not None}
    if not changes:
        return chosen
    known: set[str] = {field.name for field in fields(chosen)} if is_dataclass(chosen) else set()
    for setting, value in changes.items():
        if setting not in known:
            able = ", ".join(name for name, other in METHODS.items() if hasattr(other, setting))
            raise MassmoverError(f"{setting} is {value}, and {method!r} has no {setting}: leave it out, or use {able}")
    return cast(Attack, replace(cast(Any, chosen), **changes))


def named(method: str | Attack) -> Attack:
    """The attack of a name, or the attack itself."""
    if not isinstance(method, str):
        if isinstance(method, type) or not callable(getattr(method, "run", None)):
            raise MassmoverError(f"method is {method!r}: give a name, or an attack such as PlanAscent(steps=20)")
        return method
    if method not in METHODS:
        raise MassmoverError(f"unknown method {method!r}: use one of {', '.join(METHODS)}")
    return METHODS[method]


def ball_of(ball: WassersteinBall | None, radius: float | PerImage | None) -> WassersteinBall:
    """The ball the caller means by one of two arguments."""
    if ball is not None and radius is None:
        return ball
    if radius is not None and ball is None:
        return WassersteinBall(radius)
    raise MassmoverError("give either radius= or ball=WassersteinBall(...), one of the two")


def asked(model: Classifier, images: Tensor, *, draws: int | None, seed: int) -> tuple[Classifier, Classifier]:
    """The model as a search asks it, and as success is decided; the same one unless it is drawn.

    A function that was given half-precision images gets such.
    """
    if isinstance(images, Tensor) and images.dtype in HALVES and not isinstance(model, nn.Module):
        model = partial(_in_dtype, model, images.dtype)
    if draws is None:
        return model, model
    return Drawn(model, draws=draws, seed=seed), Drawn(model, draws=draws, seed=seed, judge=True)


def decided(judge: Classifier, problem: Problem, images: Images) -> PerImage:
    """Where a judge says that the attack has won, by whatever lead."""
    with borrowed(judge):
        return replace(problem, looking_lead=0.0).fooled(judge, images)


def posed(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    ball: WassersteinBall,
    targets: Tensor | None,
    mask: Tensor | None = None,
    backend: str | None,
) -> Problem:
    """The problem that the caller poses, once all parts of it are known to fit together.

    The model is asked once, how many classes it has.
    """
    pixels = check_images(images)
    with borrowed(model), torch.no_grad():
        classes = first_logits_of(model, pixels[:1]).shape[1] if len(pixels) else None
    truth = check_labels(labels, batch=len(pixels), classes=classes).to(pixels.device)
    aims = None if targets is None else check_labels(targets, batch=len(pixels), classes=classes).to(pixels.device)
    if aims is not None and bool((aims == truth).any()):
        first = int(torch.nonzero(aims == truth)[0])
        raise MassmoverError(f"the target of image {first} is its own label, {int(truth[first])}: choose another class")
    leads = (lead(model.draws), lead(deciding(model.draws))) if isinstance(model, Drawn) else (0.0, 0.0)
    free = None if mask is None else check_mask(mask, pixels)
    return Problem(
        balls=ball.around(pixels, mask=free, backend=backend),
        labels=truth,
        targets=aims,
        climbing_lead=leads[0],
        looking_lead=leads[1],
    )


def _in_dtype(model: Classifier, dtype: torch.dtype, images: Images) -> Tensor:
    return model(images.to(dtype))
