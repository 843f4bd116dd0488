"""Images as an epoch takes them, and how a run does on images it does not train on."""

from __future__ import annotations

import copy
import hashlib
from typing import NamedTuple

import torch
from torch import Tensor, nn

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Problem
from massmover.classifier import borrowed, logits_of
from massmover.inputs import check_labels
from massmover.training.margins import held_out_margins
from massmover.training.state import Run
from massmover.types import Images, Labels, MassmoverError


def random_shift(images: Tensor, *, largest: int, draws: torch.Generator) -> Tensor:
    """Return the images, each moved by its own whole number of pixels; what enters is black."""
    if largest == 0:
        return images
    B, _, H, W = images.shape
    moves = torch.randint(0, 2 * largest + 1, (2, B, 1), generator=draws).to(images.device)
    padded = nn.functional.pad(images, (largest,) * 4)
    rows = moves[0] + torch.arange(H, device=images.device)  # (B, H)
    columns = moves[1] + torch.arange(W, device=images.device)  # (B, W)
    which = torch.arange(B, device=images.device)
    shifted = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (B, H, W, C)
    return shifted.permute(0, 3, 1, 2).contiguous()


def random_mirror(images: Tensor, *, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the images, about half of them with left and right exchanged, and which those are."""
    turned = torch.rand(len(images), generator=draws).to(images.device) < 0.5
    return torch.where(turned[:, None, None, None], images.flip(3), images), turned


def checksum_of(images: Tensor, labels: Labels) -> str:
    """The sha256 of images and labels as they are given: a run goes on with the same ones or not at all."""
    digest = hashlib.sha256()
    for tensor in (images, labels):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def as_floats(images: Tensor) -> Images:
    """Return images as float32 in [0, 1], whether they came as bytes or as floats."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def accuracy(model: nn.Module, images: Tensor, labels: Labels, *, batch_size: int = 1000) -> float:
    """Return the share of images, bytes or floats in [0, 1], that the model labels correctly."""
    labels = check_training_data(images, labels)
    place = next((parameter.device for parameter in model.parameters()), images.device)
    right = 0
    with borrowed(model), torch.no_grad():
        for batch, truth in zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True):
            guesses = logits_of(model, as_floats(batch.to(place))).argmax(dim=1)
            right += int((guesses == truth.to(place)).sum())
    return right / len(images)


def check_training_data(images: Tensor, labels: Labels) -> Labels:
    """Return the labels as int64 once images and labels fit together."""
    if images.ndim != 4 or len(images) == 0:
        raise MassmoverError(f"Images must be a non-empty (N, C, H, W) tensor; got shape {tuple(images.shape)}.")
    if images.dtype != torch.uint8 and not (images.is_floating_point() and images.min() >= 0 and images.max() <= 1):
        raise MassmoverError(
            f"Images must be uint8, or floats in [0, 1]; got {images.dtype} "
            f"with values from {images.min().item():g} to {images.max().item():g}."
        )
    return check_labels(labels, batch=len(images))


def mass_tells(images: Tensor, labels: Labels, *, neighbours: int = 501) -> Tensor:
    """Which images share their class with most of those nearest to them in mass, as a mask (N,).

    An adversary that moves mass changes none, so of these a network may know the class whatever the radius.
    """
    masses = images.flatten(1).sum(dim=1, dtype=torch.float64)
    order = masses.argsort(stable=True)
    before = nn.functional.one_hot(labels[order]).cumsum(dim=0)  # of each class, up to each place
    before = torch.cat([torch.zeros_like(before[:1]), before])
    size = min(neighbours, len(images))
    start = (torch.arange(len(images)) - size // 2).clamp(0, len(images) - size)
    alike = (before[start + size] - before[start]).gather(1, labels[order, None])[:, 0]
    tells = torch.empty(len(images), dtype=torch.bool)
    tells[order] = 2 * alike > size
    return tells


ATTACKED = 500  # of the held-out images; all of them are classified
STEPS = 20
RADII = (0.125, 0.25, 0.5)  # of the adversary's largest radius


class Scores(NamedTuple):
    """How averaged weights do on held-out images: fields of an `Epoch`."""

    clean: float | None
    robust: dict[str, float]
    attacked: int


def scores(run: Run, images: Tensor, labels: Labels, *, device: torch.device) -> Scores:
    """Clean accuracy of the averaged weights, and accuracy by radius under a short plan ascent or by margins."""
    if not len(images):
        return Scores(None, {}, 0)
    model = copy.deepcopy(run.model)
    run.average.copy_to(model)
    clean = accuracy(model, images, labels)
    if run.recipe.margin is not None:
        return Scores(clean, held_out_margins(model, as_floats(images), labels), 0)
    if run.recipe.adversary is None:
        return Scores(clean, {}, 0)
    few, truth = as_floats(images[:ATTACKED].to(device)), labels[:ATTACKED].to(device)
    robust = {}
    for share in RADII:
        radius = share * run.recipe.adversary.radius
        problem = Problem(run.recipe.adversary.ball(radius).around(few), truth)
        found = PlanAscent(steps=STEPS).run(model, problem)
        robust[f"{radius:g}"] = 1 - float(found.success.double().mean())
    return Scores(clean, robust, len(few))
