"""What section 7 of the paper leaves open: training against mass that moves together.

Robustness to an adversary that scatters mass does not carry over to translation, rotation and blur, which move
neighbours alike. Here LeNets learn from clean digits alone, from the scattered adversary too, and from coherent ones
(docs/coherent.md), none of them with shifted or turned digits, and all are measured under what no adversary chose and
under both attacks. Settings are compared on training images that no network learns from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Problem
from massmover.ball import WassersteinBall
from massmover.data import ImageSet
from massmover.evaluation.proof import Claim, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.files import replace_file
from massmover.models import ARCHITECTURES, save_weights
from massmover.natural import PUBLISHED, Elastic, Study, study
from massmover.reproduce.curves import Progress, Subject, batches
from massmover.reproduce.natural import CLEAN
from massmover.training import RECIPES, Adversary, Recipe, train
from massmover.types import Classifier, MassmoverError

PERTURBATIONS = (*PUBLISHED, Elastic(1), Elastic(2), Elastic(3))
NAMES = (CLEAN, *(perturbation.name for perturbation in PERTURBATIONS))
HELD_OUT = 12  # one of as many training images is not learned from: the last ones
EPOCHS = 5
ATTACKED = 200  # test images under each attack
NOTHING, SCATTERED = "nothing", "scattered"
COHERENT = (  # a radius wants a window that reaches as far
    Adversary(steps=3, radius=5.0, window=13, scatter=0.05, width=9),
    Adversary(steps=3, radius=6.0, window=13, scatter=0.05, width=14),
)
ATTACKS = {  # by name: within which ball
    **{f"scattered {pixels / 784:.2f}": WassersteinBall(pixels / 784) for pixels in (50, 100, 200, 400)},
    **{
        f"coherent {radius:g}": WassersteinBall(radius, window=13, scatter=0.05, width=9)
        for radius in (0.5, 1.0, 2.0, 4.0)
    },
}


class Pupil(NamedTuple):
    """A network to train: what it is called, and how it learns."""

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class Outcome:
    """Percent right of one network: on held-out training images, on test images, and under attack."""

    model: str
    held_out: Mapping[str, float]  # by perturbation, and clean
    test: Mapping[str, float]
    attacked: Mapping[str, float]  # by attack
    unproved: int  # successes that the proof checker does not accept; they are not counted
    seconds: float  # of training

    @property
    def score(self) -> float:
        """What settings are compared by: the mean over clean and perturbed held-out images."""
        return sum(self.held_out.values()) / len(self.held_out)


class Lesson(NamedTuple):
    """The images of a study: to learn from, to choose by, to measure on."""

    training: ImageSet
    held_out: Subject  # their model is no matter
    test: Subject


def pupils(*, epochs: int) -> tuple[Pupil, ...]:
    """The networks of the study: the same number of epochs, no shifts, the last epoch kept."""
    plain = replace(RECIPES["standard"], shift=0)
    robust, coherent = RECIPES["robust"], RECIPES["coherent"]
    recipes = {NOTHING: plain, SCATTERED: robust}
    recipes |= {name_of(adversary): replace(coherent, adversary=adversary) for adversary in COHERENT}
    return tuple(Pupil(name, replace(recipe, epochs=epochs, held_out=0.0)) for name, recipe in recipes.items())


def name_of(adversary: Adversary) -> str:
    """What a network is called by the adversary it learns from."""
    bends = "one vector" if adversary.width is None else f"width {adversary.width}"
    return f"coherent {adversary.radius:g}, {bends}, scatter {adversary.scatter:g}"


def lesson_of(training: ImageSet, test: Subject, *, train_count: int | None) -> Lesson:
    """Divide the training images: the last of them to choose settings by, the first of the others to learn from."""
    kept = max(1, len(training) // HELD_OUT)
    most = len(training) - kept
    count = most if train_count is None else train_count
    if not 1 <= count <= most:
        raise MassmoverError(f"--train-count is {count}: use a number from 1 to {most}, as {kept} images are held out")
    chosen = training.subset(most, min(kept, len(test.images)))
    held_out = replace(test, images=chosen.images_as_float(), labels=chosen.labels)
    return Lesson(training.subset(0, count), held_out, test)


def coherent(
    lesson: Lesson, folder: Path, *, epochs: int = EPOCHS, progress: Progress | None = None
) -> tuple[Outcome, ...]:
    """Train and measure every network, or go on where an earlier run in the folder stopped.

    Each has a folder of its own with its weights, its history and what was measured.
    """
    found = []
    for pupil in pupils(epochs=epochs):
        place = folder / "models" / pupil.name.replace(", ", "-").replace(" ", "-")
        place.mkdir(parents=True, exist_ok=True)
        trained = train(
            ARCHITECTURES["lenet"],
            lesson.training.images,
            lesson.training.labels,
            recipe=pupil.recipe,
            folder=place,
            progress=None if progress is None else _steps(progress, f"{pupil.name}, batches"),
        )
        weights = save_weights(trained.model, place / "lenet.safetensors")
        asked = {
            "weights": sha256(weights.read_bytes()).hexdigest(),
            "images": [[len(part.images), _checksum(part)] for part in (lesson.held_out, lesson.test)],
            "perturbations": [repr(perturbation) for perturbation in PERTURBATIONS],
            "attacks": {name: repr(ball) for name, ball in ATTACKS.items()},
            "attacked": ATTACKED,
        }
        outcome = _kept(place / "measured.json", asked)
        if outcome is None:
            outcome = measured(pupil.name, trained.model, lesson, seconds=trained.seconds, progress=progress)
            text = json.dumps({"asked": asked, "outcome": asdict(outcome)}, indent=2) + "\n"
            replace_file(place / "measured.json", text.encode())
        found.append(outcome)
    return tuple(found)


def chosen(outcomes: Sequence[Outcome]) -> str:
    """The coherent network that does best on held-out images."""
    coherent_ones = [outcome for outcome in outcomes if outcome.model not in (NOTHING, SCATTERED)]
    return max(coherent_ones, key=lambda outcome: outcome.score).model


def measured(
    name: str, model: nn.Module, lesson: Lesson, *, seconds: float, progress: Progress | None = None
) -> Outcome:
    """One network on all images, perturbed in every way and attacked in every ball."""
    natural = [
        _percents(study(model, batches(part), PERTURBATIONS, distances=0)) for part in (lesson.held_out, lesson.test)
    ]
    attacked, unproved = {}, 0
    for number, (attack, ball) in enumerate(ATTACKS.items()):
        if progress is not None:
            progress(f"{name}, attacks", number, len(ATTACKS))
        attacked[attack], refused = under_attack(model, lesson.test, ball)
        unproved += refused
    if progress is not None:
        progress(f"{name}, attacks", len(ATTACKS), len(ATTACKS))
    return Outcome(name, natural[0], natural[1], attacked, unproved, seconds)


def under_attack(model: Classifier, subject: Subject, ball: WassersteinBall) -> tuple[float, int]:
    """Percent of the first images that stand within a ball, and how many successes have no proof."""
    images, labels = subject.images[:ATTACKED], subject.labels[:ATTACKED]
    found = PlanAscent().run(model, Problem(ball.around(images), labels))
    scatter, width = ball.coherence or (None, None)
    claim = Claim(float(ball.radius), ball.window, tolerance=1e-9, scatter=scatter, width=width)
    fallen = refused = 0
    for row in torch.nonzero(found.success).flatten().tolist():
        moves = proving_moves(found.plan, images, row)
        proved = check(images[row].numpy(), found.images[row].numpy(), moves, claim).status == "proved"
        fallen, refused = fallen + proved, refused + (not proved)
    return 100 * (1 - fallen / len(images)), refused


def _percents(found: Study) -> dict[str, float]:
    return {CLEAN: found.clean_accuracy, **{effect.name: effect.accuracy for effect in found.effects}}


def _steps(progress: Progress, name: str) -> Callable[[int, int, int, float], None]:
    """Tell how many batches of a training are done."""
    return lambda epoch, step, steps, loss: progress(name, step, steps)


def _checksum(part: Subject) -> str:
    return sha256(part.images.numpy().tobytes() + part.labels.numpy().tobytes()).hexdigest()


def _kept(path: Path, asked: Mapping[str, Any]) -> Outcome | None:
    """What an earlier run measured, if it measured the same."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Outcome(**kept["outcome"]) if kept["asked"] == asked else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
