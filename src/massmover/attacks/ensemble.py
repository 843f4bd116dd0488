"""The parameter-free ensemble: several attacks in turn, each on the images that still stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Attack, AttackResult, Problem
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import SinkhornAttack
from massmover.classifier import borrowed, logits_of
from massmover.inputs import check_settings
from massmover.types import Classifier, Labels


@dataclass(frozen=True)
class Ensemble:
    """Plan ascent on two losses, towards the runner-up classes, Frank-Wolfe, Sinkhorn: the worst case per image."""

    steps: int = 100
    runners_up: int = 4  # classes tried as targets, most likely first
    restarts: int = 2

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        check_settings(self, whole={"steps": 1, "runners_up": 0, "restarts": 0})

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball until one of the attacks wins."""
        with borrowed(model):
            result = None
            for name, attack, aims in self._attempts(model, problem):
                if result is None:
                    result = attack.run(model, problem.called(name), seed=seed)
                    continue
                standing = torch.nonzero(~result.success).flatten()
                if not len(standing):
                    break
                part = problem.select(standing).called(name)
                found = attack.run(
                    model, replace(part, targets=aims[standing]) if aims is not None else part, seed=seed
                )
                if aims is not None:  # whatever wrong answer the aim led to will do
                    found = replace(found, success=part.fooled(model, found.images))
                result = result.improved_by(found, standing)
        assert result is not None  # there is always a first attack
        return result

    def _attempts(self, model: Classifier, problem: Problem) -> Iterator[tuple[str, Attack, Labels | None]]:
        """The attacks in turn by name, and the classes to lead to where that is not what the problem says."""
        ascent = PlanAscent(steps=self.steps)
        yield "auto: ascent", ascent, None
        yield "auto: ascent on the margin", replace(ascent, loss="margin"), None
        if problem.targets is None:
            for rank, aims in enumerate(self._runners_up(model, problem), start=1):
                yield f"auto: ascent to runner-up {rank}", replace(ascent, loss="margin"), aims
        yield "auto: frank-wolfe", FrankWolfe(steps=self.steps), None
        yield "auto: sinkhorn", SinkhornAttack(steps=self.steps), None
        yield "auto: ascent, restarted", replace(ascent, restarts=self.restarts, steps=2 * self.steps), None

    def _runners_up(self, model: Classifier, problem: Problem) -> list[Labels]:
        """The most likely wrong classes of each image, one tensor of labels per rank."""
        with torch.no_grad():
            logits = logits_of(model, problem.shown(problem.images)).scatter(1, problem.labels[:, None], -torch.inf)
        ranks = logits.argsort(dim=1, descending=True, stable=True)
        return [ranks[:, rank] for rank in range(min(self.runners_up, logits.shape[1] - 1))]
