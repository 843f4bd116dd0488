"""What an attack returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from massmover.attacks.showing import figure_of, frame_of, rows_to_show, spread, table_of
from massmover.transport.plan import Certificate, Plan
from massmover.types import Images, PerImage


@dataclass(frozen=True, eq=False)
class AttackResult:
    """One adversarial image per image, with the plan that proves it lies in the ball.

    Every image is inside, whether the attack won or not; `success` says where the classifier is wrong on the image
    that is returned. A clean mistake is a success at cost 0.
    """

    images: Images  # (B, C, H, W), dtype and device of the originals
    success: PerImage  # bool
    radius: PerImage
    steps: PerImage  # gradient steps spent on the image
    plan: Plan  # float64
    certificate: Certificate

    @property
    def cost(self) -> PerImage:
        """The certified bound of each image's distance, in float64."""
        return self.certificate.total

    @property
    def trusted(self) -> PerImage:
        """Where the certificate holds: rows and columns add up, pixels in range, cost within the radius."""
        proof = self.certificate
        unit = torch.finfo(self.images.dtype).eps
        return (
            (proof.total <= self.radius * (1 + 1e-9) + 1e-15)
            & (proof.row_error <= 1e-12)
            & (proof.column_error <= unit)
            & (proof.below <= 0)
            & (proof.above <= 0)
            & (proof.mass_drift <= 1e-6)
        )

    def improved_by(self, other: AttackResult, index: torch.Tensor) -> AttackResult:
        """This result with the successes of another attack on some of its images; its steps are added."""
        steps = self.steps.clone()
        steps[index] += other.steps
        won = other.success & ~self.success[index]

        def take(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
            mixed = ours.clone()
            mixed[index[won]] = theirs[won]
            return mixed

        return AttackResult(
            images=take(self.images, other.images),
            success=take(self.success, other.success),
            radius=self.radius,
            steps=steps,
            plan=Plan(window=self.plan.window, flows=take(self.plan.flows, other.plan.flows)),
            certificate=Certificate(*map(take, self.certificate, other.certificate)),
        )

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
