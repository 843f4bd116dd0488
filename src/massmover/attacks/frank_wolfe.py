"""Frank-Wolfe on plans with an entropic linear oracle: the second opinion (Wu, Wang and Yu 2020).

Where plan ascent adds gradients up, Frank-Wolfe asks at every step for the plan that is best for the present gradient
alone, and moves a part of the way towards it. Both ends are feasible, so the mix is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from massmover.attacks.losses import LossName
from massmover.attacks.problem import Problem
from massmover.attacks.result import AttackResult
from massmover.checks import inference_mode_of
from massmover.geometry import scatter
from massmover.threat import WassersteinBall
from massmover.transport.plan import Plan
from massmover.transport.potential import priced_plan, send_back
from massmover.transport.repair import repair
from massmover.types import Classifier, Flows, Images, Labels, PerImage


@dataclass(frozen=True)
class FrankWolfe:
    """Conditional gradient ascent; the oracle's plan is the one of the potential `gradient / temperature`."""

    steps: int = 60
    loss: LossName = "cross-entropy"
    sharpness: float = 60.0  # largest potential the oracle is given: higher is closer to the linear programme

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
        """Attack every image within the ball, or within a budget of its own; finished images leave the batch."""
        problem = Problem.of(images, labels, ball=ball, targets=targets, budget=budget)
        with inference_mode_of(model):
            wrong = problem.fooled(model, images)  # a clean mistake needs no move
            best = _staying(problem)
            steps = torch.zeros_like(labels)
            standing = torch.nonzero(~wrong).flatten()
            best[standing], steps[standing] = self.climb(model, problem.select(standing))
            spend = replace(problem, budget=problem.budget.masked_fill(wrong, 0))
            plan = Plan(window=spend.window, flows=best)
            proof = repair(plan, originals=images, weights=spend.weights, budget=spend.budget)
            return problem.answer(model, proof, steps=steps)

    def climb(self, model: Classifier, problem: Problem) -> tuple[Flows, PerImage]:
        """Mix oracle plans into the plan, and keep the one with the best margin."""
        flows, best = _staying(problem), _staying(problem)
        highest = torch.full_like(problem.mass(), -torch.inf)
        steps = torch.zeros_like(problem.labels)
        price = torch.ones_like(problem.budget)
        active = torch.arange(len(problem), device=flows.device)
        for step in range(self.steps + 1):
            if not len(active):
                break
            # forward
            part = problem.select(active)
            moved = scatter(flows[active], window=part.window).clamp(0, 1)
            margin, gradient = part.slope(model, moved, loss=self.loss)
            steps[active] += 1
            # track
            better = active[margin > highest[active]]
            best[better] = flows[better]
            highest[active] = torch.maximum(highest[active], margin)
            standing = margin <= 0
            active, part, gradient = active[standing], part.select(standing), gradient[standing]
            # step
            goal, price[active] = self._oracle(part, gradient, price=price[active])
            flows[active] = torch.lerp(flows[active], goal, 2 / (step + 2))
        return best, steps

    def _oracle(self, problem: Problem, gradient: Images, *, price: PerImage) -> tuple[Flows, PerImage]:
        """The feasible plan that gains most along a gradient, up to the temperature."""
        gradient = gradient * problem.within_reach()
        largest = gradient.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(torch.finfo(gradient.dtype).tiny)
        found = priced_plan(
            self.sharpness * gradient / largest,
            originals=problem.images,
            budget=problem.budget,
            weights=problem.weights,
            window=problem.window,
            price=price,
        )
        flows = send_back(found.plan.flows, originals=problem.images, window=problem.window)
        return flows, found.price.to(price)


def _staying(problem: Problem) -> Flows:
    """The plan that moves nothing."""
    images = problem.images
    flows = images.new_zeros(*images.shape[:2], len(problem.window.offsets), *images.shape[2:])
    flows[:, :, 0] = images
    return flows
