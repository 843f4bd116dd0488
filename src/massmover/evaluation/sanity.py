"""Checks that say "do not trust this evaluation yet". Each has a paragraph in docs/checks.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch

from massmover.attacks import attack
from massmover.attacks.losses import loss_of
from massmover.classifier import borrowed, logits_of
from massmover.evaluation.settings import Settings
from massmover.evaluation.store import Record
from massmover.evaluation.subject import Subject, ball_for
from massmover.types import Images, Labels, Logits

PROBED = 8  # images that the model is tried on before the run
DIFFERENT = 1e-3  # relative difference of logits that arithmetic alone does not explain
HALF = 0.5
CHANCE = 5.0  # times the difference between two sets of draws, beyond which chance does not explain a difference


class Check(NamedTuple):
    """One sanity check: a name that is also its heading in docs/checks.md, and what was seen."""

    name: str
    passed: bool
    seen: str

    def as_json(self) -> dict[str, object]:
        """As summary.json holds it, with the paragraph to read."""
        anchor = self.name.replace(" ", "-")
        return {"name": self.name, "passed": self.passed, "seen": self.seen, "read": f"docs/checks.md#{anchor}"}


def probe(subject: Subject, settings: Settings) -> list[Check]:
    """What can be said before the run, from a few images."""
    numbers = settings.numbers[:PROBED]
    images, labels = subject.pixels(numbers), subject.labels(numbers)
    return [
        _radius_zero(subject, settings, images, labels),
        _gradients(subject, images, labels),
        _steady(subject, images),
        _batch_free(subject, images),
        _logits(subject, images),
    ]


def _radius_zero(subject: Subject, settings: Settings, images: Images, labels: Labels) -> Check:
    result = attack(
        subject.model,
        images,
        labels,
        ball=ball_for(settings, 0.0),
        method=settings.attack,
        draws=subject.draws,
        seed=settings.seed,
        backend=settings.backend,
    )
    clean = int((subject.predictions(images) == labels).sum())
    attacked = int((subject.predictions(result.images) == labels).sum())
    seen = f"{clean} of {len(images)} right before, {attacked} after an attack of radius 0"
    return Check("accuracy at radius 0", clean == attacked, seen)


def _gradients(subject: Subject, images: Images, labels: Labels) -> Check:
    """Whether what the attacks climb has a slope: log odds, which do not saturate, also in half precision."""
    name = "gradients"
    variable, model = images.detach().clone().requires_grad_(True), subject.drawn(subject.seed)
    with borrowed(model), torch.enable_grad():
        loss = loss_of(logits_of(model, variable), labels, name="cross-entropy").sum()
        if not loss.requires_grad:
            return Check(name, False, "the model's answer carries no gradient")
        (gradient,) = torch.autograd.grad(loss, variable, allow_unused=True)
    if gradient is None:
        return Check(name, False, "the model's answer does not depend on the image")
    flat = gradient.nan_to_num().flatten(1)
    zero = int((flat.abs().amax(dim=1) == 0).sum())
    constant = int(((flat.amax(dim=1) - flat.amin(dim=1) == 0) & (flat.abs().amax(dim=1) > 0)).sum())
    same = len(flat) > 1 and bool((flat == flat[0]).all())
    seen = f"of {len(flat)} images {zero} have a zero gradient and {constant} the same at every pixel"
    return Check(name, zero == 0 and constant == 0 and not same, seen + ("; all images have the same" if same else ""))


def _steady(subject: Subject, images: Images) -> Check:
    name = "steady answers"
    first, second = subject.logits(images), _other_draws(subject, images)
    if subject.draws is not None:
        torn = int((first.argmax(dim=1) != second.argmax(dim=1)).sum())
        seen = f"of {len(images)} images {torn} are answered differently by other draws"
        return Check(name, not torn, seen + (f": --draws {subject.draws} is too few" if torn else ""))
    change = _relative(first, second)
    seen = f"two calls on the same images differ by {change:.1e}"
    if change <= DIFFERENT:
        return Check(name, True, seen)
    return Check(name, False, f"{seen}: if the model is random on purpose, average it with --draws 20")


def _other_draws(subject: Subject, images: Images) -> Logits:
    """A second opinion: another call, and other draws where the model is drawn."""
    return replace(subject, seed=subject.seed + 1).logits(images)


def _batch_free(subject: Subject, images: Images) -> Check:
    """A network in training mode (batch statistics) answers differently when images come one by one.

    So does one that is drawn, whose modes are its own affair; it may differ as much as it does between draws.
    """
    name = "evaluation mode"
    drawn = subject.draws is not None
    together = subject.logits(images)
    by_chance = _relative(*(s.softmax(dim=1) for s in (together, _other_draws(subject, images)))) if drawn else 0.0
    try:
        alone = torch.cat([subject.logits(images[row : row + 1]) for row in range(len(images))])
    except (ValueError, RuntimeError) as problem:  # batch normalisation refuses a single image in training mode
        return Check(name, False, f"the model refuses a single image ({str(problem).splitlines()[0]})")
    change = _relative(together.softmax(dim=1), alone.softmax(dim=1)) if drawn else _relative(together, alone)
    training = not drawn and any(module.training for module in subject.model.modules())
    seen = f"answers for a batch and for its images one by one differ by {change:.1e}"
    alike = change <= max(DIFFERENT, CHANCE * by_chance)
    return Check(name, alike and not training, seen + ("; the model is in training mode" if training else ""))


def _relative(first: torch.Tensor, second: torch.Tensor) -> float:
    size = max(float(first.abs().max()), 1e-12)
    return float((first - second).abs().max()) / size


def _logits(subject: Subject, images: Images) -> Check:
    with torch.no_grad(), borrowed(subject.drawn(subject.seed)):
        scores = logits_of(subject.model, images)  # of one draw: those of a mean are no longer the model's own
    softmax = bool((scores >= 0).all()) and bool(((scores.sum(dim=1) - 1).abs() < 1e-4).all())
    seen = "the scores are positive and add up to 1" if softmax else "the scores are no probabilities"
    return Check("logits", not softmax, seen)


def review(records: Sequence[Record], settings: Settings) -> list[Check]:
    """What can be said after the run, from its records."""
    return [_falling(records, settings), _budget(records, settings), _rounding(records, settings)]


def _falling(records: Sequence[Record], settings: Settings) -> Check:
    """Balls are nested, so an attack that finds less in a larger one is not searching well.

    Images that fell are carried to larger radii without another attack, but for a sample, which is compared here.
    """
    name = "accuracy falls with radius"
    if settings.smallest:
        return Check(name, True, "the smallest radius was searched for, so there is nothing to compare")
    won = {radius: {r.index: r.attack_success for r in records if r.radius == radius} for radius in settings.radii}
    drops = []
    for smaller, larger in pairwise(settings.radii):
        both = [
            index for index, again in won[larger].items() if again is not None and won[smaller].get(index) is not None
        ]
        earlier, later = (sum(bool(won[radius][index]) for index in both) for radius in (smaller, larger))
        if later < earlier:
            drops.append(f"{larger:g} ({later} successes after {earlier} among {len(both)} images attacked at both)")
    return Check(
        name, not drops, "fewer found at radius " + ", ".join(drops) if drops else "every larger radius found more"
    )


def _budget(records: Sequence[Record], settings: Settings) -> Check:
    name = "budget used"
    for radius in filter(None, settings.radii):  # at radius 0 there is no budget to use
        here = [record for record in records if record.radius == radius and not record.clean_mistake]
        failed = [record for record in here if not record.success]
        idle = [record for record in failed if record.used < HALF]
        if here and len(failed) > HALF * len(here) and len(idle) > HALF * len(here):
            seen = f"at radius {radius:g} {len(idle)} of {len(here)} images kept over half of their budget"
            return Check(name, False, seen + f" while accuracy is {len(failed) / len(here):.0%}")
    return Check(name, True, "where accuracy is high the attack spent its budget")


def _rounding(records: Sequence[Record], settings: Settings) -> Check:
    """At the smallest radius an example is only just across the boundary, and rounding may well take it back."""
    tried = [record for record in records if record.eight_bit is not None and not record.clean_mistake]
    lost = sum(not record.eight_bit for record in tried)
    seen = f"{lost} of {len(tried)} successes are undone by rounding to 8 bits"
    if settings.smallest and lost:
        return Check("outlives 8 bits", True, f"{seen}, as is to be expected of the smallest radius")
    return Check("outlives 8 bits", not tried or lost <= HALF * len(tried), seen)
