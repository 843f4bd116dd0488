"""A cheaper proof for the same image: the cheapest plan of the window that makes it (docs/algorithms.md, (1c))."""

from __future__ import annotations

import torch

from massmover.ball import Balls
from massmover.transport.plan import Certificate, Plan, certify
from massmover.transport.repair import rounding_cost, summing_cost
from massmover.types import Images


def replanned(plan: Plan, certificate: Certificate, balls: Balls, *, images: Images) -> tuple[Plan, Certificate]:
    """The cheapest plans that make the same images (of large ones, tile by tile), where they prove more.

    Plans of potentials are soft: some mass goes round in circles, the more the sooner an attack has won. The images
    stay as they are. Only Numba has a kernel for it; elsewhere the plans are returned as they came.
    """
    if balls.backend != "numba" or not len(balls):
        return plan, certificate
    from massmover.transport.kernels.flow import WHOLE, cheaper_flows, cheapest_flows

    small = max(images.shape[-2:]) <= WHOLE
    flows = cheapest_flows(plan.images(), balls) if small else cheaper_flows(plan.flows, balls)
    cheapest = Plan(window=plan.window, flows=flows)
    made = cheapest.images()
    moved = made != balls.originals.double()
    rounding = rounding_cost(made, images, balls) + summing_cost(moved, balls)
    measured = certify(cheapest, balls, returned=images, rounding=rounding)
    better = (measured.total < certificate.total) & measured.holds(balls.budget, dtype=images.dtype)
    chosen = torch.where(better.view(-1, 1, 1, 1, 1), cheapest.flows, plan.flows)
    both = (torch.where(better, new, old) for new, old in zip(measured, certificate, strict=True))
    return Plan(window=plan.window, flows=chosen), Certificate(*both)
