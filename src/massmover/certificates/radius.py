"""How far a classifier cannot be broken: a radius with a proof for every image.

An attack says that a radius is too large; a certificate says that one is small enough. The two halves share no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from massmover.ball import WassersteinBall
from massmover.certificates.lipschitz import steepness
from massmover.classifier import borrowed, logits_of
from massmover.inputs import check_images, check_labels
from massmover.types import Classifier, Images, Labels, Logits, MassmoverError, Normalisation, PerImage

CHUNK = 1000  # images at a time


@dataclass(frozen=True)
class CertifiedResult:
    """A certified radius for each image, and why.

    No image within `radius` (pixels, the unit of `ball.radius`) is given another class than the label. It is 0 where
    the answer is wrong or nothing could be proved, and infinite for a black image that is classified correctly.
    `evidence` holds the numbers behind it, one for each image, by name.
    """

    radius: PerImage  # (B,), float64
    method: str
    ball: WassersteinBall
    evidence: Mapping[str, PerImage] = field(default_factory=dict)

    def proved(self, radius: float) -> Tensor:
        """Which images cannot be broken at a radius, (B,) of bool."""
        return self.radius >= radius if radius > 0 else self.radius > 0


@runtime_checkable
class PotentialScores(Protocol):
    """A classifier whose class scores move no faster than its potentials allow.

    Each score is built from numbers `<phi, w x> + bias` or their negatives by maxima and minima and nothing else: phi
    among `potentials`, w one over the mass of the image or of the channel (`normalisation`), bias a function of masses.
    """

    normalisation: Normalisation
    potentials: Tensor  # (..., C, H, W)

    def __call__(self, images: Images) -> Logits:
        """The class scores."""

    def score_error(self) -> float:
        """How far a score as computed, on an image that the judge lets pass, may be from the exact one."""


def certified_radius(
    model: Classifier, images: Images, labels: Labels, *, ball: WassersteinBall, method: str = "auto"
) -> CertifiedResult:
    """The radius within which no plan changes the classifier's answer, for each image; the ball's own radius is unused.

    `auto` takes the certificate that fits the model: `potentials` for networks made of potentials (`mnist-certified`),
    `linear` for networks of convolutions, linear layers and ReLU. For anything else there is `smoothed_radius`, which
    certifies another classifier made of the given one. Every certificate holds for transport over the whole image;
    a window and the pixel box only make the ball smaller.
    """
    images = check_images(images)
    labels = check_labels(labels, batch=len(images)).to(images.device)
    if method == "auto":
        method = "potentials" if isinstance(model, PotentialScores) else "linear"
    if method == "potentials":
        if not isinstance(model, PotentialScores):
            raise MassmoverError(
                f"{type(model).__name__} is not made of potentials: use method='linear' for a network of convolutions, "
                "linear layers and ReLU, or massmover.certificates.smoothed_radius for any classifier"
            )
        return by_potentials(model, images, labels, ball=ball)
    if method == "linear":
        from massmover.certificates.linear import by_linear_bounds

        return by_linear_bounds(model, images, labels, ball=ball)
    raise MassmoverError(f"unknown method {method!r}: use 'auto', 'potentials' or 'linear'")


@torch.no_grad()
def by_potentials(model: PotentialScores, images: Images, labels: Labels, *, ball: WassersteinBall) -> CertifiedResult:
    """Margin over slope: by duality a plan of cost r changes each class score by at most its Lipschitz constant x r.

    With L the largest constant of a potential, the answer y stands within (s_y - s_c) / 2 L for every other class c.
    The error of the arithmetic is taken off the margin first. Where model and ball divide by different masses, a plan
    that the ball prices at r costs the model at most `stretch` x r, since masses do not change.
    """
    with borrowed(model):
        scores = torch.cat([logits_of(model, part) for part in torch.split(images, CHUNK)] or [images.new_zeros(0, 1)])
    scores = scores.double()
    labels = check_labels(labels, batch=len(images), classes=scores.shape[1] if len(images) else None)
    constant, error = lipschitz_constant(model, ball=ball), 2 * model.score_error()
    truth = labels[:, None]
    rival = scores.scatter(1, truth, -torch.inf).amax(dim=1)
    margin = scores.gather(1, truth)[:, 0] - rival  # (B,)
    left = (margin - error).clamp_min(0)
    radius = left / (2 * constant * stretch(model, images, ball=ball)) if constant > 0 else left.sign() * torch.inf
    radius = torch.where(left > 0, radius * (1 - 8 * torch.finfo(torch.float64).eps), 0.0)  # of the lines above
    still = images.double().sum(dim=(1, 2, 3)) == 0  # a black image has no mass to move
    return CertifiedResult(
        radius=torch.where((left > 0) & still, torch.inf, radius),
        method="potentials",
        ball=ball,
        evidence={
            "margin": margin,
            "error": torch.full_like(margin, error),
            "lipschitz": torch.full_like(margin, constant),
        },
    )


def stretch(model: PotentialScores, images: Images, *, ball: WassersteinBall) -> PerImage:
    """The most that a plan can cost in the model's normalisation for each pixel that it costs in the ball's."""
    if model.normalisation == ball.normalisation:
        return torch.ones(len(images), dtype=torch.float64, device=images.device)
    theirs = WassersteinBall(0.0, normalisation=model.normalisation).weights(images)  # (B, C)
    ours = ball.weights(images)
    ratio = torch.where(ours > 0, theirs / ours.clamp_min(1e-300), 0.0).amax(dim=1)
    return torch.where(ratio > 0, ratio, 1.0)


_KNOWN: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], float]] = WeakKeyDictionary()


def lipschitz_constant(model: PotentialScores, *, ball: WassersteinBall) -> float:
    """The largest constant of a potential under the ball's pixel distances, checked over all pairs of pixels.

    The check takes seconds for a large network, so its result is kept for as long as the potentials are untouched.
    """
    potentials = model.potentials
    # The version counts changes in place; another tensor in its place has another address.
    state = (ball.ground, ball.power, potentials.data_ptr(), potentials._version)
    known = _KNOWN.setdefault(model, {}) if isinstance(model, nn.Module) else {}
    if state not in known:
        constants = steepness(potentials.detach().cpu().numpy(), ground=ball.ground, power=ball.power)
        known[state] = float(constants.max())
    return known[state]
