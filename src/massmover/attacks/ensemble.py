"""The parameter-free ensemble: several attacks in turn, each on the images that still stand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from massmover.attacks.ascent import PlanAscent, lags
from massmover.attacks.base import Attack, AttackResult, Found, Problem, prove
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import SinkhornAttack
from massmover.classifier import borrowed
from massmover.inputs import check_settings
from massmover.types import Classifier, Labels

# Measured on images 5000 to 5199 of MNIST's test set and two defended classifiers, at six radii: after the first two
# attacks no image with more than 0.27 of its clean margin left fell to any other (docs/algorithms.md, section 7).
SECOND_LOOK, LAST_LOOK = 0.4, 0.3
ENOUGH_STEPS = 50  # shorter attacks come too short a way to say who is hopeless


class Attempt(NamedTuple):
    """One of the attacks, and for which images it is worth its calls."""

    name: str
    attack: Attack
    aims: Labels | None = None  # the classes to lead to, where that is not what the problem says
    most_left: float = math.inf  # share of the clean margin that the best attack so far may have left


@dataclass(frozen=True)
class Scattering:
    """Plan ascent as if mass might scatter; the proof lets as much of it stay home as the scatter asks for.

    Worth a try where scatter is hardly bounded: the looser the bound, the less is given up.
    """

    ascent: PlanAscent

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        """Look for a way without asking whether mass moves together."""
        return self.ascent.search(model, replace(problem, balls=replace(problem.balls, coherence=None)), seed=seed)

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image, and prove what the bound on scatter leaves."""
        with borrowed(model):
            return prove(model, problem, self.search(model, problem, seed=seed))


@dataclass(frozen=True)
class Ensemble:
    """Plan ascent on three losses, towards the runner-up classes, Sinkhorn, Frank-Wolfe: the worst case per image.

    In the order of what they break per call of the model. An image is given up, within an attack and between attacks,
    once so much of its margin is left as no image was seen to make up for.
    """

    steps: int = 100
    runners_up: int = 4  # classes tried as targets, most likely first; the margin leads to the very first
    restarts: int = 2

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        check_settings(self, whole={"steps": 1, "runners_up": 0, "restarts": 0})

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball until one of the attacks wins."""
        with borrowed(model):
            result, best, clean = None, None, problem.look(model, problem.images)[1]
            for attempt in self._attempts(model, problem):
                if result is None or best is None:
                    result = attempt.attack.run(model, problem.called(attempt.name), seed=seed)
                    best = problem.look(model, result.images)[1]
                    continue
                hopeless = lags(best, clean=clean, most=attempt.most_left)
                tried = torch.nonzero(~result.success & ~hopeless).flatten()
                if not len(tried):
                    continue
                part = problem.select(tried).called(attempt.name)
                aimed = part if attempt.aims is None else replace(part, targets=attempt.aims[tried])
                found = attempt.attack.run(model, aimed, seed=seed)
                won, margin = part.look(model, found.images)  # whatever wrong answer an aim led to will do
                result = result.improved_by(replace(found, success=won), tried)
                best[tried] = best[tried].maximum(margin)
        assert result is not None  # there is always a first attack
        return result.replanned(problem.balls)

    def _attempts(self, model: Classifier, problem: Problem) -> Iterator[Attempt]:
        """The attacks in turn."""
        if problem.balls.coherent:
            yield from self._coherent_attempts(model, problem)
            return
        trusted = self.steps >= ENOUGH_STEPS
        second, last = (SECOND_LOOK, LAST_LOOK) if trusted else (math.inf, math.inf)
        ascent = PlanAscent(steps=self.steps, gives_up=trusted)
        margin = replace(ascent, loss="margin")
        yield Attempt("auto: ascent", ascent)
        yield Attempt("auto: ascent on the margin", margin)
        for rank, aims in enumerate(problem.rivals(model)[:, 1 : self.runners_up].unbind(dim=1), start=2):
            yield Attempt(f"auto: ascent to runner-up {rank}", margin, aims, second)
        yield Attempt("auto: sinkhorn", SinkhornAttack(steps=self.steps), None, second)
        yield Attempt("auto: ascent on the margin's ratio", replace(ascent, loss="dlr"), None, last)
        restarted = replace(ascent, restarts=self.restarts, steps=2 * self.steps)
        yield Attempt("auto: ascent, restarted", restarted, None, last)
        yield Attempt("auto: frank-wolfe", FrankWolfe(steps=self.steps), None, last)

    def _coherent_attempts(self, model: Classifier, problem: Problem) -> Iterator[Attempt]:
        """The attacks in turn where mass has to move together; nobody has measured whom to give up there."""
        ascent = PlanAscent(steps=self.steps)
        margin = replace(ascent, loss="margin")
        yield Attempt("auto: ascent", ascent)
        yield Attempt("auto: ascent on the margin", margin)
        for rank, aims in enumerate(problem.rivals(model)[:, 1 : self.runners_up].unbind(dim=1), start=2):
            yield Attempt(f"auto: ascent to runner-up {rank}", margin, aims)
        restarted = replace(ascent, loss="dlr", restarts=1 + self.restarts)
        yield Attempt("auto: ascent on the margin's ratio, restarted", restarted)
        yield Attempt("auto: ascent that scatters, the less of it", Scattering(ascent))
