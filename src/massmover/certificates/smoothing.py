"""Certificates for any classifier, by voting over random flows (Levine and Feizi 2020).

The classifier that is certified is not the given one but the vote of its answers on noisy copies: Laplace noise is
added to the flow of mass between neighbouring pixels, of the image divided by its mass. Moving mass changes the flow
by at most as much as it costs, and Laplace noise hides a change of a flow in the sum of absolute values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from massmover.ball import WassersteinBall
from massmover.certificates.radius import CertifiedResult
from massmover.classifier import borrowed, logits_of
from massmover.inputs import check_images, check_labels
from massmover.types import Classifier, Ground, Images, Labels, MassmoverError, PerImage

# A plan of cost r on one ground costs at most this x r in the sum of horizontal and vertical steps, which the noise
# hides: d_1 <= sqrt(2) d_2 by Cauchy and Schwarz, d_1 <= 2 d_max since both coordinates are at most d_max.
LONGEST: dict[Ground, float] = {"manhattan": 1.0, "euclidean": math.sqrt(2), "chebyshev": 2.0}


@dataclass(frozen=True)
class FlowSmoothing:
    """Settings of the vote: `scale` of the Laplace noise in shares of mass, samples, confidence, seed.

    `guesses` samples choose the class; `samples` others, drawn afterwards, count how often it wins. The certificate of
    an image is wrong with a probability of at most 1 - `confidence`.
    """

    scale: float = 0.01
    guesses: int = 100
    samples: int = 1000
    confidence: float = 0.999
    batch: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that cannot certify."""
        if not (math.isfinite(self.scale) and self.scale > 0 and 0 < self.confidence < 1):
            raise MassmoverError(
                f"smoothing needs a scale > 0 and a confidence in (0, 1); got {self.scale} and {self.confidence}"
            )
        if min(self.guesses, self.samples, self.batch) < 1:
            raise MassmoverError(
                f"smoothing needs guesses, samples and batch >= 1; got {self.guesses}, {self.samples}, {self.batch}"
            )


@torch.no_grad()
def smoothed_radius(
    model: Classifier,
    images: Images,
    labels: Labels,
    *,
    ball: WassersteinBall,
    smoothing: FlowSmoothing | None = None,
    first: int = 0,
) -> CertifiedResult:
    """The radius within which the vote over noisy flows keeps its answer, for each image; 0 where it abstains.

    With p a lower confidence bound (Clopper and Pearson) of the winner's share of votes, no change of the flow by less
    than `-scale log(2 (1 - p))` in the sum of absolute values makes another class win: tight for Laplace noise (Teng
    et al. 2020). `evidence["published"]` is Levine and Feizi's own bound, `scale log(p / (1 - p)) / 2`, never larger.
    Both are divided by how much longer steps between neighbours are than the ball's ground. Every image has draws of
    its own, from the seed and its number, `first` and up: parts of a data set can be certified one by one.
    """
    smoothing = smoothing or FlowSmoothing()
    images = check_images(images)
    labels = check_labels(labels, batch=len(images))
    stretch = _stretch(images, ball=ball)
    rows = []
    with borrowed(model):
        for place, image in enumerate(images):
            winner, share = vote(model, image, smoothing=smoothing, number=first + place)
            right = winner == int(labels[place])
            tight, theirs = tight_radius(share, scale=smoothing.scale), published_radius(share, scale=smoothing.scale)
            black = float(image.sum()) == 0
            unit = float(stretch[place])
            tight = math.inf if black and tight > 0 else tight / unit
            rows.append((tight if right else 0.0, theirs / unit if right else 0.0, share, winner if tight > 0 else -1))
    radius, published, shares, answer = torch.tensor(rows, dtype=torch.float64).reshape(-1, 4).unbind(dim=1)
    evidence = {"published": published, "share": shares, "answer": answer.long()}
    return CertifiedResult(radius=radius, method="smoothing", ball=ball, evidence=evidence)


def vote(model: Classifier, image: Tensor, *, smoothing: FlowSmoothing, number: int) -> tuple[int, float]:
    """The class that wins on noisy copies, and a lower confidence bound of its share of the votes."""
    draws = torch.Generator().manual_seed(smoothing.seed * 1_000_003 + number)
    first = _counts(model, image, smoothing.guesses, smoothing=smoothing, draws=draws)
    winner = int(first.argmax())
    again = _counts(model, image, smoothing.samples, smoothing=smoothing, draws=draws)
    return winner, least_share(int(again[winner]), smoothing.samples, confidence=smoothing.confidence)


def _counts(
    model: Classifier, image: Tensor, count: int, *, smoothing: FlowSmoothing, draws: torch.Generator
) -> Tensor:
    """How many noisy copies get each class."""
    votes: Tensor | None = None
    for start in range(0, count, smoothing.batch):
        many = min(smoothing.batch, count - start)
        noisy = noisy_copies(image, many, scale=smoothing.scale, draws=draws)
        scores = logits_of(model, noisy.to(image.dtype))
        found = torch.bincount(scores.argmax(dim=1).cpu(), minlength=scores.shape[1])
        votes = found if votes is None else votes + found
    assert votes is not None
    return votes


def noisy_copies(image: Tensor, count: int, *, scale: float, draws: torch.Generator) -> Images:
    """Copies of an image (C, H, W) with Laplace noise on the flow over every edge between neighbouring pixels.

    The noise is a share of the image's mass, so the copies have its mass; pixels may leave [0, 1], and the model sees
    them as they are.
    """
    C, H, W = image.shape
    mass = float(image.double().sum())
    down = _laplace((count, C, H - 1, W), scale=scale * mass, draws=draws)
    right = _laplace((count, C, H, W - 1), scale=scale * mass, draws=draws)
    copies = image.double().cpu().expand(count, C, H, W).clone()
    copies[:, :, :-1] -= down
    copies[:, :, 1:] += down
    copies[:, :, :, :-1] -= right
    copies[:, :, :, 1:] += right
    return copies.to(image.device)


def _laplace(shape: tuple[int, ...], *, scale: float, draws: torch.Generator) -> Tensor:
    """Laplace noise: the difference of two exponential draws."""
    first, second = (torch.empty(shape, dtype=torch.float64).exponential_(generator=draws) for _ in range(2))
    return scale * (first - second)


def tight_radius(share: float, *, scale: float) -> float:
    """How far a flow may change, in the sum of absolute values, before a vote of this share could be lost."""
    return -scale * math.log(2 * (1 - share)) if share > 0.5 else 0.0


def published_radius(share: float, *, scale: float) -> float:
    """Levine and Feizi's bound for the same noise."""
    return scale * math.log(share / (1 - share)) / 2 if share > 0.5 else 0.0


def least_share(wins: int, samples: int, *, confidence: float) -> float:
    """Clopper and Pearson's lower bound: the share at which so many wins or more would have probability 1 - confidence.

    The probability of `wins` or more rises with the share, so bisection finds it; the lower end is returned.
    """
    if not 0 <= wins <= samples:
        raise MassmoverError(f"{wins} wins in {samples} samples: there must be from 0 to {samples}")
    if wins == 0:
        return 0.0
    choose = [
        math.lgamma(samples + 1) - math.lgamma(k + 1) - math.lgamma(samples - k + 1) for k in range(wins, samples + 1)
    ]

    def tail(share: float) -> float:
        logs = [c + k * math.log(share) + (samples - k) * math.log1p(-share) for k, c in enumerate(choose, start=wins)]
        return math.fsum(math.exp(value) for value in logs)

    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) < 1 - confidence else (low, middle)
    return low


def _stretch(images: Images, *, ball: WassersteinBall) -> PerImage:
    """The change of the flow, as a share of the image's mass, that a plan of cost 1 can make."""
    if ball.power < 1:
        raise MassmoverError(
            f"smoothing cannot certify power {ball.power}: below 1 long moves cost less than their steps. Use power 1."
        )
    # On a grid every move is at least 1 long, so a power above 1 costs at least as much as power 1. A channel's own
    # mass is at most the image's, so the same holds for the normalisation "channel".
    return torch.full((len(images),), LONGEST[ball.ground], dtype=torch.float64)
