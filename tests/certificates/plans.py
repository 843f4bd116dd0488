"""Plans against a certificate, written out as pixel x pixel matrices, and small networks to try them on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dense import cost_matrix
from massmover import WassersteinBall
from massmover.certificates import PixelMetric, projected
from massmover.models import CertifiedNetwork
from massmover.types import Normalisation


def network(
    seed: int,
    shape: tuple[int, int, int],
    *,
    sizes: tuple[int, int, int] = (3, 2, 2),  # three duels, so three classes
    normalisation: Normalisation = "image",
    units: int = 0,
) -> CertifiedNetwork:
    """A random certified network for images of a shape, its potentials as steep as they may be."""
    draws = torch.Generator().manual_seed(seed)
    rough = 3 * torch.randn(*sizes, *shape, generator=draws, dtype=torch.float64)
    state = {
        "potentials": projected(rough, metric=PixelMetric(shape[1], shape[2])),
        "biases": 0.1 * torch.randn(*sizes, generator=draws, dtype=torch.float64),
        "mass_in": torch.randn(units, shape[0] + 1, generator=draws, dtype=torch.float64),
        "mass_out": torch.randn(sizes[0], units, generator=draws, dtype=torch.float64),
        "per_channel": torch.tensor(normalisation == "channel"),
    }
    return CertifiedNetwork(state, origin="a test")


def greedy(image: Tensor, slope: Tensor, *, ball: WassersteinBall, radius: float) -> Tensor:
    """Send mass along the moves that raise slope . image most for their cost, until the radius is spent."""
    channels, height, width = image.shape
    costs = cost_matrix(height, width, ground=ball.ground, power=ball.power)
    weights = ball.weights(image[None])[0].numpy()
    moved, moves = image.flatten(1).numpy().copy(), []
    for c in range(channels):
        a = slope[c].flatten().numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(costs > 0, (a[None] - a[:, None]) / (costs * weights[c]), -np.inf)
        for i in np.flatnonzero(moved[c] > 0):
            j = int(np.argmax(rates[i]))
            moves.append((rates[i, j], c, i, j, costs[i, j] * weights[c]))
    left = radius
    start = moved.copy()
    for rate, c, i, j, cost in sorted(moves, reverse=True):
        sent = min(start[c, i], left / cost) if rate > 0 else 0.0
        moved[c, i] -= sent
        moved[c, j] += sent
        left -= sent * cost
    return torch.from_numpy(moved).reshape(image.shape)


def scattered(image: Tensor, *, ball: WassersteinBall, radius: float, seed: int) -> Tensor:
    """A random plan of exactly the radius, or everything it moves where that costs less."""
    channels, height, width = image.shape
    random = np.random.default_rng(seed)
    costs = cost_matrix(height, width, ground=ball.ground, power=ball.power)
    weights = ball.weights(image[None])[0].numpy()
    source = image.flatten(1).numpy()
    shares = random.dirichlet(np.full(height * width, 0.2), size=(channels, height * width))
    flows = source[:, :, None] * shares
    cost = float((flows * costs * weights[:, None, None]).sum())
    part = min(1.0, radius / cost) if cost > 0 else 0.0
    return torch.from_numpy((1 - part) * source + part * flows.sum(axis=1)).reshape(image.shape)


def broken(
    model: CertifiedNetwork, images: Tensor, labels: Tensor, radii: Tensor, *, ball: WassersteinBall
) -> list[int]:
    """The images whose answer a plan within their radius changes: random plans, and greedy ones against each class."""
    found = []
    for place, (image, label, radius) in enumerate(zip(images, labels.tolist(), radii.tolist(), strict=True)):
        if radius == 0 or radius == np.inf:
            continue
        shown = [scattered(image, ball=ball, radius=radius, seed=seed) for seed in range(3)]
        for rival in range(model.classes):
            slope = active(model, image, rival) - active(model, image, label)
            shown.append(greedy(image, slope, ball=ball, radius=radius))
        if any(int(model(z[None]).argmax()) != label for z in shown):
            found.append(place)
    return found


def active(model: CertifiedNetwork, image: Tensor, label: int) -> Tensor:
    """The slope of a class score at an image, by automatic differentiation."""
    point = image.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(point[None])[0, label], point)
    return slope
