"""Frank-Wolfe on plans with an entropic linear oracle: the second opinion (Wu, Wang and Yu 2020).

Where plan ascent adds gradients up, Frank-Wolfe asks at every step for the plan that is best for the present gradient
alone, and moves a part of the way towards it. Both ends are feasible, so the mix is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from massmover.attacks.base import AttackResult, Found, Problem, run
from massmover.attacks.losses import LossName, check_loss, check_margins
from massmover.classifier import borrowed
from massmover.inputs import check_settings
from massmover.transport.plan import Plan
from massmover.transport.potential import Pull, priced_plan, send_back
from massmover.transport.repair import kept_moves
from massmover.types import Classifier, Flows, Images, PerImage


@dataclass(frozen=True)
class FrankWolfe:
    """Conditional gradient ascent; the oracle's plan is the one of the potential `gradient / temperature`."""

    steps: int = 60
    loss: LossName = "cross-entropy"
    sharpness: float = 60.0  # largest potential the oracle is given: higher is closer to the linear programme

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        check_loss(self.loss)
        check_settings(self, whole={"steps": 1}, positive=("sharpness",))

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball; finished images leave the batch. Nothing is random: no seed is used."""
        return run(self, model, problem, seed=seed)

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        """Mix oracle plans into the plan of each image, and keep the one with the best margin."""
        problem.must_let_scatter("frank-wolfe")
        with borrowed(model):
            wrong = problem.fooled(model, problem.images)  # a clean mistake needs no move
            flows, best = (problem.balls.staying(dtype=torch.float32) for _ in range(2))
            highest = torch.full_like(problem.balls.mass, -torch.inf)
            steps, price = torch.zeros_like(problem.labels), torch.ones_like(problem.balls.budget)
            active = torch.nonzero(~wrong).flatten()
            for step in range(self.steps + 1):
                problem.tell("frank-wolfe", step=step, steps=self.steps, standing=len(active))
                if not len(active):
                    break
                # forward
                part = problem.select(active)
                moved = Plan(part.balls.window, flows[active]).images().clamp(0, 1).to(part.images)
                margin, gradient = part.slope(model, moved, loss=self.loss)
                check_margins(margin)
                # track
                better = active[margin > highest[active]]
                best[better] = flows[better]
                highest[active] = torch.maximum(highest[active], margin.to(highest))
                standing = margin <= problem.climbing_lead
                active, part, gradient = active[standing], part.select(standing), gradient[standing]
                if step == self.steps:  # the last look only judges the last step
                    break
                # step
                goal, price[active] = self._oracle(part, gradient, price=price[active])
                flows[active] = torch.lerp(flows[active], goal, 2 / (step + 2))
                steps[active] += 1
        plan = Plan(problem.balls.window, best)
        images = plan.images().clamp(0, 1).to(problem.images)
        return Found(moves=partial(kept_moves, plan), images=images, steps=steps, resting=wrong)

    def _oracle(self, problem: Problem, gradient: Images, *, price: PerImage) -> tuple[Flows, PerImage]:
        """The feasible plan that gains most along a gradient, up to the temperature."""
        gradient = gradient.float() * problem.balls.within_reach().float()
        largest = gradient.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(torch.finfo(gradient.dtype).tiny)
        found = priced_plan(Pull(self.sharpness * gradient / largest, price), problem.balls, dtype=torch.float32)
        return send_back(found.plan.flows, problem.balls), found.price
