"""The smallest radius that breaks each image, for all images at once.

Every image keeps a bracket of its own. Plan ascent begins with a few searches whose radius follows the margin
(attacks/approach.py), which nearly always close it. What is still open is attacked at radii inside its bracket: a
success is first walked back towards the original, for that is free (the cost of a mix with "stay" is proportional,
docs/algorithms.md (3)), so that each attack tightens the bracket by more than half; a failure raises the lower end.
The answer is an upper bound of the true smallest radius, with its proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from massmover.attacks.api import asked, decided, method_of, posed
from massmover.attacks.approach import Reached, approach
from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Attack, AttackResult, Problem, prove
from massmover.attacks.losses import LossName
from massmover.attacks.show import figure_of, frame_of, rows_to_show, spread, table_of
from massmover.ball import WassersteinBall, pixel_count
from massmover.classifier import borrowed
from massmover.transport.plan import Certificate, Plan
from massmover.transport.repair import repair
from massmover.types import Backend, Classifier, Images, PerImage, Watch

WALK_BACK = 12  # halvings of the way back to the original
NARROW = 1.01  # a bracket whose ends are this close is not split again
FIRST, FIRST_SEARCH = 20.0, 100.0  # radius x pixels of the first attack, and where the first search starts
SHORTER = 0.6  # times an ascent's steps: those of a search
ATTACKS = 8  # of each image at most, by attacks that cannot search
WIDER = 0.7  # times what searches failed at: from where on attacks look again, when they are asked for
LEEWAY = 1 + 1e-5  # what the proof of a search may cost more: it was made in float32


class Way(NamedTuple):
    """One of the searches: what it climbs, where it starts, and to which wrong class it leads."""

    loss: LossName | None = None  # None: the ascent's own
    start: float = 1.0  # times the best radius so far
    rival: int | None = None  # 0 is the likeliest wrong class; None leads to whichever comes first


SEARCHES = (Way(), Way("dlr"), Way(start=5.0), Way("margin", rival=1), Way("margin", rival=2))


def ways_among(rivals: int) -> list[Way]:
    """The searches where there are so many wrong classes to lead to."""
    return [way for way in SEARCHES if way.rival is None or way.rival < rivals]


class Curve(NamedTuple):
    """Accuracy against radius: a staircase that falls at every smallest radius."""

    radius: Tensor  # (B,), sorted, infinite where no radius broke the image
    accuracy: Tensor  # (B,), just above each radius


@dataclass(frozen=True, eq=False)
class SmallestResult:
    """Per image the closest wrongly classified image that was found, and the plan that proves how close it is."""

    images: Images
    success: PerImage
    radius: PerImage  # certified; 0 for a clean mistake, infinite where nothing was found
    lower: PerImage  # the largest radius at which the attack failed; no proof, an attack may miss
    steps: PerImage
    plan: Plan
    certificate: Certificate
    backend: Backend

    def where(self, success: PerImage) -> SmallestResult:
        """The same images, of which only some count; the original itself may be one."""
        radius = torch.where(success, self.certificate.total.to(self.radius), torch.inf)
        return replace(self, success=success, radius=radius, lower=self.lower.minimum(radius))

    def accuracy_at(self, radius: float) -> float:
        """The share of images that no image found within the radius breaks."""
        return float((self.radius > radius).double().mean())

    def curve(self) -> Curve:
        """The whole accuracy curve from the one run."""
        ordered = self.radius.sort().values
        left = torch.arange(len(ordered) - 1, -1, -1, dtype=torch.float64)
        return Curve(radius=ordered, accuracy=left / max(len(ordered), 1))

    def area(self, largest: float) -> float:
        """Area under the accuracy curve up to a radius: the mean of the radii, cut off there."""
        return float(self.radius.clamp_max(largest).mean())

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        median = f"median radius {float(self._found().median()):.4g}" if bool(self.success.any()) else "none found"
        return f"SmallestResult({len(self)} images, {int(self.success.sum())} broken, {median})"

    def _repr_html_(self) -> str:
        counts = {"images": str(len(self)), "broken": str(int(self.success.sum()))}
        return table_of("SmallestResult", counts | {"radius where broken": spread(self._found())})

    def _found(self) -> PerImage:
        return self.radius[self.success]

    def show(self, rows: int | Sequence[int] = 4) -> Any:
        """Draw a few images with the closest wrong one found; returns a matplotlib figure.

        `rows` is how many to draw, broken ones first, or the numbers of the images.
        """
        chosen = rows_to_show(rows, success=self.success)
        captions = [f"radius {self.radius[row]:.3g}" if self.success[row] else "stands" for row in chosen]
        return figure_of(self.plan, self.images, rows=chosen, captions=captions)

    def to_dataframe(self) -> Any:
        """One row per image: success, certified radius, largest radius that failed, steps. Needs pandas."""
        return frame_of({name: getattr(self, name) for name in ("success", "radius", "lower", "steps")})


def smallest_radius(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    ball: WassersteinBall | None = None,
    method: str | Attack = "ascent",
    rounds: int | None = None,
    targets: Tensor | None = None,
    mask: Tensor | None = None,
    draws: int | None = None,
    seed: int = 0,
    backend: str | None = None,
    watch: Watch | None = None,
) -> SmallestResult:
    """Find, for every image, how little mass has to move how far until the classifier is wrong.

    The radius of the ball is where the search gives up (default: one pixel, radius 1.0). `rounds` is how often an image
    is attacked at most: 5 times by plan ascent, whose radius then follows the margin, 8 times by others and with draws.
    Further rounds of plan ascent attack radii below what was found; they pay where most pixels are full. The other
    arguments are those of `attack`.
    """
    chosen, limit = method_of(method), WassersteinBall(1.0) if ball is None else ball
    searched, judge = asked(model, images, draws=draws, seed=seed)
    problem = posed(searched, images, labels, ball=limit, targets=targets, mask=mask, backend=backend)
    problem = replace(problem, watch=watch)
    with borrowed(searched):
        search = _Search.begin(searched, problem)
        # A search that follows the margin would end where one draw of a model that answers by chance was lucky.
        # And it climbs with potentials, whose plans scatter.
        follows = not problem.climbing_lead and not problem.balls.coherent
        rivals = problem.rivals(searched) if isinstance(chosen, PlanAscent) and follows else None
        searches = [] if rivals is None else ways_among(rivals.shape[1])[:rounds]
        attacks = (len(searches) or ATTACKS if rounds is None else rounds) - len(searches)
        if isinstance(chosen, PlanAscent) and rivals is not None and searches and len(search.open()):
            search.begin_near(searched, problem, chosen, searches, rivals)
            if attacks:
                search.lower.mul_(WIDER)
        for _ in range(attacks):
            open_ = search.open()
            if not len(open_):
                break
            guess = search.next_radius(open_, first=FIRST / pixel_count(problem.images))
            part = problem.select(open_).with_budget(guess)
            search.learn(open_, guess, walk_back(searched, part, chosen.run(searched, part, seed=seed)))
    found = search.answer()
    if judge is not searched:
        found = found.where(decided(judge, problem, found.images))
    moved, plan = problem.whole(found.images, found.plan)
    return replace(found, images=moved, plan=plan)


def walk_back(model: Classifier, problem: Problem, found: AttackResult) -> AttackResult:
    """Mix every success with its original as far as the classifier stays wrong; the cost falls in proportion."""
    enough, far = torch.ones_like(found.radius), torch.zeros_like(found.radius)
    towards = found.images - problem.images
    for _ in range(WALK_BACK):
        middle = (enough + far) / 2
        wrong = problem.fooled(model, problem.images + middle.view(-1, 1, 1, 1).to(towards) * towards)
        enough, far = torch.where(wrong, middle, enough), torch.where(wrong, far, middle)
    stay = problem.balls.staying(dtype=torch.float64)
    mixed = torch.lerp(stay, found.plan.flows, enough.view(-1, 1, 1, 1, 1))
    proof = repair(Plan(window=found.plan.window, flows=mixed), problem.balls)
    walked = problem.answer(model, proof, steps=found.steps)
    # Rounding the mix anew can undo a success on the very edge; then the unwalked one stands.
    kept = walked.improved_by(found, torch.arange(len(found), device=found.radius.device))
    return replace(kept, steps=found.steps)


@dataclass(frozen=True, eq=False)
class _Search:
    """The bracket of every image, and the best example so far; `learn` is the only thing that writes to it."""

    limit: PerImage
    lower: PerImage
    best: AttackResult
    upper: PerImage

    @classmethod
    def begin(cls, model: Classifier, problem: Problem) -> _Search:
        plan = Plan(window=problem.balls.window, flows=problem.balls.staying(dtype=torch.float64))
        proof = repair(plan, problem.balls)
        best = problem.answer(model, proof, steps=torch.zeros_like(problem.labels))
        upper = torch.where(best.success, 0.0, torch.inf).to(problem.balls.budget)
        return cls(limit=problem.balls.budget, lower=torch.zeros_like(upper), best=best, upper=upper)

    def begin_near(
        self, model: Classifier, problem: Problem, ascent: PlanAscent, searches: Sequence[Way], rivals: Tensor
    ) -> None:
        """Tighten the brackets by searches whose radius follows the margin."""
        index = self.open()
        part = problem.select(index)
        reached = Reached.nothing(part)
        start = torch.full_like(part.balls.budget, FIRST_SEARCH / pixel_count(problem.images))
        for loss, times, rival in searches:
            shorter = replace(ascent, steps=max(round(SHORTER * ascent.steps), 1), loss=loss or ascent.loss)
            first = torch.where(torch.isfinite(reached.cost), times * reached.cost, start)
            if rival is None:
                reached = approach(shorter, model, part, first=first, reached=reached)
                continue
            led = approach(shorter, model, replace(part, targets=rivals[index, rival]), first=first, reached=reached)
            # What does not lead to one class may lead to another: no failure of the attack.
            reached = led._replace(failed=torch.where(reached.failed < led.cost, reached.failed, 0.0))
        budget = torch.where(torch.isfinite(reached.cost), LEEWAY * reached.cost, part.balls.budget)
        aimed = part.with_budget(budget.minimum(part.balls.budget))
        found = walk_back(model, aimed, prove(model, aimed, reached.found(floor=ascent.floor)))
        self.learn(index, reached.failed, found)
        self.lower[index] = reached.failed

    def open(self) -> Tensor:
        """The images whose brackets are still wide."""
        wide = self.upper > self.lower * NARROW
        return torch.nonzero(wide & (self.upper > 0) & (self.lower < self.limit)).flatten()

    def next_radius(self, index: Tensor, *, first: float) -> PerImage:
        """Three times the last failure where nothing has won yet, the geometric middle of the bracket elsewhere."""
        low, high = self.lower[index], self.upper[index]
        outward = torch.where(low > 0, 3 * low, first).minimum(self.limit[index])
        inward = torch.where(low > 0, (low * high).sqrt(), high / 2)
        return torch.where(torch.isinf(high), outward, inward)

    def learn(self, index: Tensor, radius: PerImage, found: AttackResult) -> None:
        """Tighten the brackets by what an attack at these radii found."""
        won = found.success & (found.cost < self.upper[index])
        self.lower[index] = torch.where(found.success, self.lower[index], radius)
        self.upper[index[won]] = found.cost[won]
        self.best.steps[index] += found.steps
        for ours, theirs in (
            (self.best.images, found.images),
            (self.best.success, found.success),
            (self.best.plan.flows, found.plan.flows),
            *zip(self.best.certificate, found.certificate, strict=True),
        ):
            ours[index[won]] = theirs[won]

    def answer(self) -> SmallestResult:
        """The best example of each image."""
        return SmallestResult(
            images=self.best.images,
            success=self.best.success,
            radius=self.upper,
            lower=self.lower.minimum(self.upper),  # walking back may land below an earlier failure
            steps=self.best.steps,
            plan=self.best.plan,
            certificate=self.best.certificate,
            backend=self.best.backend,
        )
