"""The parameter-free ensemble: several attacks in turn, each on the images that still stand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.losses import fooled
from massmover.attacks.pgd import SinkhornAttack
from massmover.attacks.result import AttackResult
from massmover.checks import inference_mode_of, logits_of
from massmover.threat import WassersteinBall
from massmover.types import Classifier, Images, Labels, PerImage


@dataclass(frozen=True)
class Ensemble:
    """Plan ascent on two losses, towards the runner-up classes, Frank-Wolfe, Sinkhorn: the worst case per image."""

    steps: int = 100
    runners_up: int = 4  # classes tried as targets, most likely first
    restarts: int = 2

    def run(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        targets: Labels | None = None,
        seed: int = 0,
        budget: PerImage | None = None,
    ) -> AttackResult:
        """Attack every image within the ball, or within a budget of its own, until one of the attacks wins."""
        ascent = PlanAscent(steps=self.steps)
        result = ascent.run(model, images, labels, ball=ball, targets=targets, seed=seed, budget=budget)

        def try_next(attack: PlanAscent | FrankWolfe | SinkhornAttack, aims: Labels | None) -> None:
            nonlocal result
            standing = torch.nonzero(~result.success).flatten()
            if not len(standing):
                return
            own = {} if budget is None else {"budget": budget[standing]}
            found = attack.run(
                model,
                images[standing],
                labels[standing],
                ball=ball,
                targets=None if aims is None else aims[standing],
                seed=seed,
                **own,
            )
            if targets is None and aims is not None:  # whatever wrong answer the aim led to will do
                with inference_mode_of(model), torch.no_grad():
                    wrong = fooled(logits_of(model, found.images), labels[standing])
                found = replace(found, success=wrong)
            result = result.improved_by(found, standing)

        try_next(replace(ascent, loss="margin"), targets)
        if targets is None:
            for aims in self._runners_up(model, images, labels):
                try_next(replace(ascent, loss="margin"), aims)
        try_next(FrankWolfe(steps=self.steps), targets)
        if budget is None:  # the projected attack knows one radius for all
            try_next(SinkhornAttack(steps=self.steps), targets)
        try_next(replace(ascent, restarts=self.restarts, steps=2 * self.steps), targets)
        return result

    def _runners_up(self, model: Classifier, images: Images, labels: Labels) -> list[Labels]:
        """The most likely wrong classes of each image, one tensor of labels per rank."""
        with inference_mode_of(model), torch.no_grad():
            logits = logits_of(model, images).scatter(1, labels[:, None], -torch.inf)
        ranks = logits.argsort(dim=1, descending=True, stable=True)
        return [ranks[:, rank] for rank in range(min(self.runners_up, logits.shape[1] - 1))]
