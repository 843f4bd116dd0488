"""What a network learns from in one step, and what it costs to get it wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from massmover.classifier import borrowed, logits_of
from massmover.models.certified import CertifiedNetwork
from massmover.training.recipe import Recipe
from massmover.types import Classifier, Images, Labels, Logits, MassmoverError, PerImage

CLOSE = 1e-3  # scores of a teacher that differ by less are those of the same one, on another processor


class Lesson(NamedTuple):
    """A batch, as an adversary moved it, and what is to be said of it."""

    clean: Images
    moved: Images | None
    labels: Labels
    told: Logits | None = None  # what a teacher answers to the moved images


def loss_of(recipe: Recipe, model: nn.Module, lesson: Lesson, *, share: float) -> Tensor:
    """The loss added up over a batch, after a share of the run.

    With an adversary both kinds of images go through the model together.
    """
    clean, moved, labels, told = lesson
    if moved is None:
        return F.cross_entropy(model(clean), labels, label_smoothing=recipe.label_smoothing, reduction="sum")
    if recipe.clean_share == 0 and recipe.trades == 0:
        return moved_loss(recipe, model(moved), labels, told=told, share=share)
    before, after = model(torch.cat([clean, moved])).chunk(2)
    plain = F.cross_entropy(before, labels, label_smoothing=recipe.label_smoothing, reduction="sum")
    if recipe.trades > 0:
        return plain + recipe.trades * divergence(before, after)
    hard = moved_loss(recipe, after, labels, told=told, share=share)
    return recipe.clean_share * plain + (1 - recipe.clean_share) * hard


def moved_loss(recipe: Recipe, logits: Logits, labels: Labels, *, told: Logits | None = None, share: float) -> Tensor:
    """The loss on moved images, added up: by their labels, and by what a teacher says of them."""
    surprise = F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing, reduction="none")
    labelled = forgiven(surprise, exponent=recipe.exponent(share))
    if told is None:
        return labelled
    return (1 - recipe.taught) * labelled + recipe.taught * divergence(told, logits)


def divergence(wanted: Logits, given: Logits) -> Tensor:
    """Kullback and Leibler's divergence from the answers given to those wanted, added up."""
    return F.kl_div(given.log_softmax(1), wanted.log_softmax(1), log_target=True, reduction="sum")


def forgiven(surprise: PerImage, *, exponent: float) -> Tensor:
    """Losses `-log p` added up, or with an exponent q above 0 their forgiving form `(1 - p ** q) / q`."""
    return surprise.sum() if exponent == 0 else -torch.expm1(-exponent * surprise).sum() / exponent


class Teachers(nn.Module):
    """Networks that teach together: their scores added up, a pixel of a certified one counted `pixel` times.

    What an adversary teaches a network is partly a defence against that adversary; a network of potentials owes its
    margins to nobody, but reads fewer images. Trained apart, each makes up for what the other lacks.
    """

    def __init__(self, networks: Iterable[nn.Module], *, pixel: float = 2.0) -> None:
        """Take networks of any kinds, of as many classes each."""
        super().__init__()
        self.networks, self.pixel = nn.ModuleList(networks), pixel

    def forward(self, images: Images) -> Logits:
        """Score the images."""
        weights = [self.pixel if isinstance(each, CertifiedNetwork) else 1.0 for each in self.networks]
        parts = [weight * each(images) for weight, each in zip(weights, self.networks, strict=True)]
        return torch.stack(parts).sum(dim=0)


def told_by(teacher: Classifier, images: Images) -> Logits:
    """What a teacher answers; it learns nothing, and keeps its modes."""
    with borrowed(teacher), torch.no_grad():
        return logits_of(teacher, images)


def check_teacher(recipe: Recipe, teacher: Classifier | None) -> None:
    """Raise where a recipe is taught and nobody teaches, or the other way round."""
    if (recipe.taught > 0) != (teacher is not None):
        given = "no teacher was given" if teacher is None else "a teacher was given"
        raise MassmoverError(
            f"taught is {recipe.taught} and {given}: pass teacher= with a recipe whose taught is above 0, and with "
            "no other"
        )


def same_teacher(before: Tensor | None, now: Tensor | None) -> bool:
    """Whether two teachers gave the same answers to the same images."""
    if before is None or now is None:
        return before is now
    return before.shape == now.shape and torch.allclose(before, now, rtol=CLOSE, atol=CLOSE)
