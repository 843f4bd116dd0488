"""What an attack is: a problem, a search that finds a way, and the one proof of what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from massmover.attacks.losses import LossName, fooled, gradient_of, margin_of
from massmover.attacks.low_pass import low_passed
from massmover.attacks.show import figure_of, frame_of, rows_to_show, spread, table_of
from massmover.ball import Balls, Coherence
from massmover.classifier import borrowed, logits_of
from massmover.transport.plan import Certificate, Plan
from massmover.transport.repair import Kept, Repaired, settled
from massmover.transport.replan import replanned
from massmover.types import Backend, Classifier, Images, Labels, MassmoverError, PerImage, Stage, Watch

AGAIN = (2.0, 8.0)  # times the margin that a proof took away: by how much a search wins when it is repeated


@dataclass(frozen=True, eq=False)
class Problem:
    """Find, for each image, an image in its ball that the classifier gets wrong (or calls the target)."""

    balls: Balls
    labels: Labels
    targets: Labels | None = None
    watch: Watch | None = None  # hears where a search is, whenever it looks which images are done
    # The log odds by which a search has to win before it believes a model that answers by chance, on the draws of a
    # gradient and on those that only look: what one lucky set of draws shows, the next one may not. The first also
    # where a proof has taken a narrow success away.
    climbing_lead: float = 0.0
    looking_lead: float = 0.0

    @property
    def images(self) -> Images:
        """The original images, without mass that may not move."""
        return self.balls.originals

    def __len__(self) -> int:
        return len(self.balls)

    def select(self, index: Tensor) -> Problem:
        """The problem of some of the images."""
        targets = None if self.targets is None else self.targets[index]
        return replace(self, balls=self.balls.select(index), labels=self.labels[index], targets=targets)

    def shown(self, images: Images) -> Images:
        """Images as the classifier sees them: with the mass that may not move."""
        return self.balls.whole(images)

    def tell(self, attack: str, *, step: int, steps: int, standing: int) -> None:
        """Say where a search is to whoever watches; all of it is known without asking a device."""
        if self.watch is not None:
            self.watch(Stage(attack, step, steps, standing))

    def called(self, name: str) -> Problem:
        """The same problem, whose watcher hears of the search under a name of its own."""
        watch = self.watch
        return self if watch is None else replace(self, watch=lambda stage: watch(stage._replace(attack=name)))

    def with_budget(self, budget: PerImage) -> Problem:
        """The same problem with other radii."""
        return replace(self, balls=self.balls.with_budget(budget))

    def fooled(self, model: Classifier, images: Images) -> Tensor:
        """Where the classifier answers as the attack wants, by a lead that is to be believed."""
        return self.look(model, images)[0]

    def look(self, model: Classifier, images: Images) -> tuple[Tensor, PerImage]:
        """Where the classifier answers as the attack wants, and the margin by which it does or does not."""
        with torch.no_grad():
            logits = logits_of(model, self.shown(images))
            won, margin = (ask(logits, self.labels, targets=self.targets) for ask in (fooled, margin_of))
        return (margin > self.looking_lead if self.looking_lead else won), margin

    def rivals(self, model: Classifier) -> Tensor:
        """The wrong classes of each image, most likely first, (B, classes - 1); none where the attack has targets."""
        with torch.no_grad():
            logits = logits_of(model, self.shown(self.images)).scatter(1, self.labels[:, None], -torch.inf)
        wrong = logits.argsort(dim=1, descending=True, stable=True)[:, :-1]
        return wrong if self.targets is None else wrong[:, :0]

    def slope(
        self, model: Classifier, images: Images, *, loss: LossName, low_pass: float = 0.0
    ) -> tuple[PerImage, Images]:
        """The margin by which the attack has won, and the gradient of its loss with respect to the images.

        The gradient can be had without high frequencies (`low_passed`).
        """
        logits, gradient = gradient_of(model, self.shown(images), self.labels, name=loss, targets=self.targets)
        return margin_of(logits, self.labels, targets=self.targets), low_passed(gradient, low_pass)

    def must_let_scatter(self, attack: str) -> None:
        """Raise where scatter is bounded: what an attack finds that knows of no bound would hardly move in the end."""
        if self.balls.coherence is not None and self.balls.coherent:
            raise MassmoverError(
                f"{attack} lets mass scatter, and the ball bounds its scatter by {self.balls.coherence.scatter}: use "
                "auto or ascent, or a ball without scatter"
            )

    def whole(self, images: Images, plan: Plan) -> tuple[Images, Plan]:
        """Images and plans of an answer with the mass that may not move, which stays."""
        held = self.balls.held
        if held is None:
            return images, plan
        flows = plan.flows.clone()
        flows[:, :, 0] += held.to(flows)
        return self.shown(images), Plan(window=plan.window, flows=flows)

    def answer(self, model: Classifier, proof: Repaired, *, steps: PerImage) -> AttackResult:
        """What an attack returns: success is decided on the very images that are returned."""
        return AttackResult(
            images=proof.images,
            success=self.fooled(model, proof.images),
            radius=self.balls.budget,
            steps=steps,
            plan=proof.plan,
            certificate=proof.certificate,
            backend=self.balls.backend,
            coherence=self.balls.coherence,
        )


class Found(NamedTuple):
    """Where a search ended, before anything is proven."""

    moves: Callable[[Balls], Kept]  # what a potential, duals or a plan would move: those that can be kept, in float64
    images: Images  # as the model saw them: in their balls up to float32 accuracy
    steps: PerImage  # gradient steps spent on the image
    resting: PerImage  # bool: wrong from the start, so that nothing has to move


class Search(Protocol):
    """An attack that finds one way for each image."""

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        """Look for a way to a wrong answer; nothing is proven yet."""
        ...


class Attack(Protocol):
    """Anything that attacks a batch within its balls."""

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball, with the proof that each result lies in it."""
        ...


def run(attack: Search, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
    """Search, then prove; what was won by so little that the proof undid it is searched again."""
    with borrowed(model):
        found = attack.search(model, problem, seed=seed)
        result = prove(model, problem, found)
        standing = torch.nonzero(~result.success).flatten()
        if problem.climbing_lead or not len(standing):  # such leads are wider than any proof takes away
            return result
        part = problem.select(standing)
        (won, before), (_, after) = (part.look(model, seen[standing]) for seen in (found.images, result.images))
        for row in torch.nonzero(won).flatten():  # rare, and each asks for a lead of its own
            index = standing[row].view(1)
            again = _won_by_more(attack, model, problem.select(index), lost=float(before[row] - after[row]), seed=seed)
            result = result.improved_by(again, index)
        return result


def _won_by_more(attack: Search, model: Classifier, problem: Problem, *, lost: float, seed: int) -> AttackResult:
    """The same search of one image, which goes on until it has won by more than the proof takes away.

    A proved image is a little closer to the original than the one that the search saw, for rounding it is paid from
    the budget: a thousandth of the way and more, where a radius is small.
    """
    for times in AGAIN:
        leading = replace(problem, climbing_lead=times * lost)
        result = prove(model, problem, attack.search(model, leading, seed=seed))
        if bool(result.success):
            break
    return result


def prove(model: Classifier, problem: Problem, found: Found) -> AttackResult:
    """The plans of what a search found in float64, repaired, rounded to the images' dtype and measured."""
    balls = problem.balls.with_budget(problem.balls.budget.masked_fill(found.resting, 0))
    proof = settled(found.moves(balls), balls)
    with borrowed(model):
        return problem.answer(model, proof, steps=found.steps)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """One adversarial image per image, with the plan that proves it lies in the ball.

    Every image is inside, whether the attack won or not; `success` says where the classifier is wrong on the image
    that is returned. A clean mistake is a success at cost 0.
    """

    images: Images  # (B, C, H, W), dtype and device of the originals; float32 where those are half precision
    success: PerImage  # bool
    radius: PerImage  # of the ball
    steps: PerImage  # gradient steps spent on the image
    plan: Plan  # float64
    certificate: Certificate
    backend: Backend  # which moved the mass
    coherence: Coherence | None = None  # how much mass may scatter; None where it may as it likes

    @property
    def cost(self) -> PerImage:
        """The certified bound of each image's distance, in float64."""
        return self.certificate.total

    @property
    def trusted(self) -> PerImage:
        """Where the certificate holds: rows and columns add up, pixels in range, cost and scatter within bounds."""
        return self.certificate.holds(self.radius, dtype=self.images.dtype, coherence=self.coherence)

    def improved_by(self, other: AttackResult, index: Tensor) -> AttackResult:
        """This result with the successes of another attack on some of its images; its steps are added."""
        steps = self.steps.clone()
        steps[index] += other.steps
        won = other.success & ~self.success[index]

        def take(ours: Tensor, theirs: Tensor) -> Tensor:
            mixed = ours.clone()
            mixed[index[won]] = theirs[won]
            return mixed

        return replace(
            self,
            images=take(self.images, other.images),
            success=take(self.success, other.success),
            steps=steps,
            plan=Plan(window=self.plan.window, flows=take(self.plan.flows, other.plan.flows)),
            certificate=Certificate(*map(take, self.certificate, other.certificate)),
        )

    def replanned(self, balls: Balls) -> AttackResult:
        """The same images, each success that moved with the cheapest plan that makes it.

        A cheaper plan may scatter more, so where that counts plans stay as they are.
        """
        if self.coherence is not None:
            return self
        rows = torch.nonzero(self.success & (self.cost > 0)).flatten()
        flows, certificate = self.plan.flows.clone(), Certificate(*(field.clone() for field in self.certificate))
        for row in rows.view(-1, 1):  # one at a time: a written-out plan of a photograph takes 29 MB
            old = Certificate(*(field[row] for field in certificate))
            plan, new = replanned(self.plan.select(row), old, balls.select(row), images=self.images[row])
            flows[row] = plan.flows
            for ours, theirs in zip(certificate, new, strict=True):
                ours[row] = theirs
        return replace(self, plan=Plan(window=self.plan.window, flows=flows), certificate=certificate)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self._counts().items())
        return f"AttackResult({counts} radius {spread(self.radius)})"

    def _repr_html_(self) -> str:
        numbers = {"radius": spread(self.radius), "cost where fooled": spread(self.cost[self.success])}
        return table_of("AttackResult", self._counts() | numbers)

    def _counts(self) -> dict[str, str]:
        counts = {"images": len(self), "fooled": int(self.success.sum()), "proven inside": int(self.trusted.sum())}
        return {name: str(count) for name, count in counts.items()}

    def show(self, rows: int | Sequence[int] = 4) -> Any:
        """Draw a few images with what became of them and where their mass went; returns a matplotlib figure.

        `rows` is how many to draw, successes first, or the numbers of the images.
        """
        chosen = rows_to_show(rows, success=self.success)
        words = {True: "fooled", False: "stands"}
        captions = [
            f"{words[bool(self.success[row])]}\n{self.cost[row]:.3g} of {self.radius[row]:.3g}" for row in chosen
        ]
        return figure_of(self.plan, self.images, rows=chosen, captions=captions)

    def to_dataframe(self) -> Any:
        """One row per image: success, radius, certified cost, steps, whether the certificate holds. Needs pandas."""
        names = ("success", "radius", "cost", "steps", "trusted")
        return frame_of({name: getattr(self, name) for name in names})
