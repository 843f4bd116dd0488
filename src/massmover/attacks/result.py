"""What an attack returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch

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
        proven, fooled = int(self.trusted.sum()), int(self.success.sum())
        return f"AttackResult({len(self)} images, {fooled} fooled, {proven} proven inside)"
