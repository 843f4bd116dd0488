"""The constrained Sinkhorn projection against a plain textbook sweep, interleaved in one run.

The textbook sweep does what the published algorithm says: unfold every window, update source, target and cap, and take
one Newton step for the price, for the whole batch until its last image has converged. Both stop at the same tolerance:
1 % of the radius over budget, 1 % of the mass misplaced.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from massmover import WassersteinBall
from massmover.attacks.pgd import scaled
from massmover.data import ImageSet, load
from massmover.models import load_model
from massmover.transport.scalars import wright_omega
from massmover.transport.sinkhorn import ATTACK, ConstrainedSinkhorn, Projection
from massmover.types import Images

IMAGES = 20
ROUNDS = 3
RADIUS = 0.1
STEP = 0.06
TEMPERATURE = 1e-3  # the published one
LIMIT = 400  # sweeps of the textbook


class Plain(NamedTuple):
    """What the textbook found."""

    images: Images
    sweeps: int  # of the whole batch
    converged: int  # images


def textbook(wish: Tensor, originals: Tensor, *, radius: float, temperature: float, cap: Tensor) -> Plain:
    """Block coordinate ascent as published; images in distribution space, one channel, a 5 x 5 window."""
    batch, _, height, width = originals.shape
    sharp = 1 / temperature
    offsets = torch.arange(25)
    costs = torch.hypot((offsets // 5 - 2).double(), (offsets % 5 - 2).double()).to(originals).view(1, 25, 1)

    def windows(values: Tensor) -> Tensor:
        return F.unfold(values.view(batch, 1, height, width), 5, padding=2)  # (B, 25, pixels)

    x, w, r = originals.flatten(1), wish.flatten(1), cap.view(-1, 1)
    beta = torch.full_like(x, -torch.log(torch.tensor(float(x.shape[1]))).item())
    price = torch.ones(batch, 1, 1, dtype=x.dtype)
    plain = beta
    held = x > 0
    sweep = 0
    done = torch.zeros(batch, dtype=torch.bool)
    while sweep < LIMIT and not bool(done.all()):
        sweep += 1
        kernel = torch.exp(-price * costs - 1)
        v = beta.exp()
        source = torch.where(held, x / (kernel * windows(v)).sum(dim=1), 0.0)
        arriving = (kernel * windows(source)).sum(dim=1)
        logarithm = arriving.clamp_min(torch.finfo(x.dtype).tiny).log()
        full = r.log() - logarithm
        free = sharp * w - wright_omega(torch.log(torch.tensor(sharp, dtype=x.dtype)) + sharp * w + logarithm)
        beta = torch.where(sharp * (w - r) > full, full, free)
        v = beta.exp()
        near = windows(v)
        rows = source * (kernel * near).sum(dim=1)
        cost = (source * (costs * kernel * near).sum(dim=1)).sum(dim=1)
        curvature = (source * (costs.square() * kernel * near).sum(dim=1)).sum(dim=1)
        plain = v * arriving
        done = (cost <= radius * (1 + ATTACK.budget)) & ((rows - x).abs().sum(dim=1) <= ATTACK.mass)
        price = (price + ((cost - radius) / curvature).view(-1, 1, 1)).clamp_min(0)
    return Plain(plain.view_as(originals), sweep, int(done.sum()))


def main() -> None:
    """Print milliseconds per image-projection, microseconds per sweep, and the ratios."""
    torch.set_num_threads(1)  # two threads wait for each other on a busy machine
    digits = load("mnist-sample").subset(0, IMAGES)
    images, mass, wish = stepped(digits)
    ball = WassersteinBall(RADIUS)
    solver = ConstrainedSinkhorn(TEMPERATURE)

    def ours(count: int) -> Projection:
        part = images[:count]
        return solver.project(wish[:count], ball.around(part))

    ours(2)  # compiles
    fast, slow = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        found = ours(IMAGES)
        fast.append(1e3 * (time.perf_counter() - started) / IMAGES)
        started = time.perf_counter()
        plain = textbook(
            (wish / mass).float(),  # as published
            (images / mass).float(),
            radius=RADIUS,
            temperature=TEMPERATURE,
            cap=(1 / mass).flatten().float(),
        )
        slow.append(1e3 * (time.perf_counter() - started) / IMAGES)
    ms, plain_ms = statistics.median(fast), statistics.median(slow)
    sweeps = 1 + float(found.sweeps.double().mean())
    print(
        f"Sinkhorn projection of {IMAGES} digits, radius {RADIUS}, step {STEP}, temperature {TEMPERATURE}, "
        f"to 1 % of the radius and 1 % of the mass\n"
        f"  ours      {ms:8.3f} ms a projection, {sweeps:5.1f} sweeps, {1e3 * ms / sweeps:5.0f} us a sweep, "
        f"{int(found.converged.sum())} converged\n"
        f"  textbook  {plain_ms:8.3f} ms a projection, {plain.sweeps:5.1f} sweeps, "
        f"{1e3 * plain_ms / plain.sweeps:5.0f} us a sweep, {plain.converged} converged\n"
        f"  ratio     {plain_ms / ms:.0f} a projection, {plain_ms / plain.sweeps / (ms / sweeps):.0f} a sweep"
    )


def stepped(digits: ImageSet) -> tuple[Images, Tensor, Images]:
    """Digits, their mass, and where one step of the attack on the bundled classifier takes them."""
    model = load_model("mnist-standard")
    images = digits.images_as_float().requires_grad_(True)
    loss = F.cross_entropy(model(images), digits.labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, images)
    pixels = images.detach().double()
    mass = pixels.sum(dim=(1, 2, 3), keepdim=True)
    return pixels, mass, pixels + STEP * mass * scaled(gradient, "gradient").double()


if __name__ == "__main__":
    main()
