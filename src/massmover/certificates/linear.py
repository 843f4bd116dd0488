"""Certificates for ordinary networks: linear bounds carried backwards, then minimised exactly over the ball.

Every ReLU lies between two lines on the interval that its input can reach, so every output of the network lies between
two linear functions of the image (Zhang et al. 2018 call this CROWN). What is particular here is the last step: the
minimum of a linear function over a Wasserstein ball, by its dual, which has one variable, the price of cost.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from massmover.ball import WassersteinBall
from massmover.certificates.radius import CertifiedResult
from massmover.certificates.transform import PixelMetric
from massmover.classifier import first_logits_of
from massmover.inputs import check_labels
from massmover.types import Classifier, Images, Labels, MassmoverError, PerChannel, PerImage

TOGETHER = 4  # images at a time
ROWS = 64  # functions at a time
NEAR = 3  # rows and columns within which the rate of every move is looked at; farther ones are bounded
PRICES = (
    40  # prices tried at most: for a function that is flat, the best price is 0 and no width is small relative to it
)
PRICED = 1e-4  # relative width at which the interval of the best price is small enough; every price gives a valid bound
ROUNDING = 1e-5  # of the largest score: taken off for the float32 arithmetic of the network itself
FIRST = 0.01  # pixels: the radius that is tried first
STRIDE = 4.0  # from one radius to the next, before the largest is between two of them
TRIES = 9  # radii for each image


@dataclass(frozen=True)
class Sources:
    """What a plan may take from: the images, the weight of each channel, and the distances between their pixels."""

    images: Images  # (B, C, H, W), float64
    weights: PerChannel  # (B, C), cost of a unit of mass over a unit of distance; 0 for a black channel
    metric: PixelMetric

    @classmethod
    def of(cls, images: Images, *, ball: WassersteinBall) -> Sources:
        """The sources of the ball around each image; the ball's window is not used, so plans may reach everywhere."""
        height, width = images.shape[-2:]
        return cls(images.double(), ball.weights(images), PixelMetric(height, width, ball.ground, ball.power))


@dataclass(frozen=True)
class Interval:
    """Between which numbers the inputs of a layer of ReLUs lie, each (B, ...)."""

    lower: Tensor
    upper: Tensor


@torch.no_grad()
def by_linear_bounds(model: Classifier, images: Images, labels: Labels, *, ball: WassersteinBall) -> CertifiedResult:
    """The largest radius, to some per cent, at which the linear bounds of every margin are positive.

    Holds for transport over the whole image, whatever the window, with or without the pixel box. Each radius returned
    was proved by itself; the search for it only decides which radii are tried.
    """
    layers = layers_of(model)
    parts = []
    for start in range(0, len(images), TOGETHER):
        few, truth = images[start : start + TOGETHER].cpu(), labels[start : start + TOGETHER].cpu()
        scores = first_logits_of(sequence(layers), few.double())
        truth = check_labels(truth, batch=len(few), classes=scores.shape[1])
        sources = Sources.of(few, ball=ball)
        parts.append(torch.stack(_largest_radius(layers, sources, scores, truth)))
    radius, margin = torch.cat(parts, dim=1) if parts else images.new_zeros(2, 0, dtype=torch.float64)
    return CertifiedResult(radius=radius, method="linear", ball=ball, evidence={"margin": margin})


def _largest_radius(
    layers: list[nn.Module], sources: Sources, scores: Tensor, labels: Labels
) -> tuple[PerImage, PerImage]:
    """The radius proved for each image, and its margin."""
    rival = scores.scatter(1, labels[:, None], -torch.inf).amax(dim=1)
    margin = scores.gather(1, labels[:, None])[:, 0] - rival
    proved, failed = torch.zeros_like(margin), torch.full_like(margin, torch.inf)
    right = margin > ROUNDING * (1 + scores.abs().amax(dim=1))
    tried = torch.full_like(margin, FIRST)
    for _ in range(TRIES):
        holds = right & (worst_margin(layers, sources, scores, labels, radius=tried) > 0)
        proved, failed = torch.where(holds, tried, proved), torch.where(holds, failed, tried)
        # In strides until something holds and something fails, then halves of what is between, in logarithms.
        between = torch.where(failed < torch.inf, (proved * failed).sqrt(), STRIDE * proved)
        tried = torch.where(proved > 0, between, failed / STRIDE)
    black = sources.images.sum(dim=(1, 2, 3)) == 0
    return torch.where(right & black, torch.inf, torch.where(right, proved, 0.0)), margin


def worst_margin(
    layers: list[nn.Module], sources: Sources, scores: Tensor, labels: Labels, *, radius: PerImage
) -> PerImage:
    """A lower bound of the margin over the ball of each image, the rounding of the network taken off."""
    intervals: dict[int, Interval] = {}
    shape = scores.shape[1:]
    for place, layer in enumerate(layers):
        if isinstance(layer, nn.ReLU):
            output = sequence(layers[:place])(sources.images[:1])
            units = torch.eye(output[0].numel(), dtype=torch.float64).reshape(-1, *output.shape[1:])
            rows = units[None]  # the same for all images until the first ReLU on the way back
            lower = _bound(layers[:place], intervals, rows, sources, radius=radius)
            upper = -_bound(layers[:place], intervals, -rows, sources, radius=radius)
            intervals[place] = Interval(lower.reshape(-1, *output.shape[1:]), upper.reshape(-1, *output.shape[1:]))
    classes = torch.eye(shape[0], dtype=torch.float64)
    rows = classes[labels][:, None] - classes  # (B, classes, classes)
    slope, constant = backwards(layers, intervals, rows)
    bounds = constant + exact_minimum(slope, sources, radius=radius)
    bounds = bounds.scatter(1, labels[:, None], torch.inf)
    return bounds.amin(dim=1) - ROUNDING * (1 + scores.abs().amax(dim=1))


def _bound(
    layers: list[nn.Module], intervals: dict[int, Interval], rows: Tensor, sources: Sources, *, radius: PerImage
) -> Tensor:
    """Lower bounds (B, n) of rows . output of some layers over the ball; a few rows at a time stay in the cache."""
    found = []
    for part in torch.split(rows, ROWS, dim=1):
        slope, constant = backwards(layers, intervals, part)
        slope = slope.expand(len(radius), *slope.shape[1:])
        found.append(constant + quick_minimum(slope, sources, radius=radius))
    return torch.cat(found, dim=1)


def backwards(layers: list[nn.Module], intervals: dict[int, Interval], rows: Tensor) -> tuple[Tensor, Tensor]:
    """A linear function of the input below rows . output: its slopes (B, n, C, H, W) and constants (B, n).

    Rows may come with a batch of 1, for all images alike.
    """
    constant = torch.zeros(rows.shape[:2], dtype=torch.float64)
    for place in reversed(range(len(layers))):
        layer = layers[place]
        if isinstance(layer, nn.ReLU):
            rows, moved = _through_relu(rows, intervals[place])
            constant = constant + moved
        elif isinstance(layer, nn.Linear):
            constant = constant if layer.bias is None else constant + rows @ layer.bias
            rows = rows @ layer.weight
        elif isinstance(layer, nn.Conv2d):
            if layer.bias is not None:
                constant = constant + (rows.sum(dim=(-2, -1)) * layer.bias).sum(dim=-1)
            rows = _through_convolution(rows, layer)
        elif isinstance(layer, Scaling):
            constant = constant + (rows.sum(dim=(-2, -1)) * layer.shift).sum(dim=-1)
            rows = rows * layer.scale[:, None, None]
        elif isinstance(layer, Reshape):
            rows = rows.reshape(*rows.shape[:2], *layer.before)
    return rows, constant


def _through_relu(rows: Tensor, reach: Interval) -> tuple[Tensor, Tensor]:
    """Replace every ReLU by a line: the one above where its factor is negative, one below where it is positive."""
    lower, upper = reach.lower[:, None], reach.upper[:, None]
    crossing = (lower < 0) & (upper > 0)
    chord = torch.where(crossing, upper / (upper - lower).clamp_min(1e-300), (lower >= 0).double())
    offset = torch.where(crossing, -lower * chord, 0.0)
    below = torch.where(crossing, (upper > -lower).double(), (lower >= 0).double())
    negative = rows.clamp(max=0)
    slopes = rows.clamp(min=0) * below + negative * chord
    return slopes, (negative * offset).flatten(2).sum(dim=2)


def _through_convolution(rows: Tensor, layer: nn.Conv2d) -> Tensor:
    batch, count = rows.shape[:2]
    height, width = layer.input_size  # type: ignore[misc]  # set for every convolution
    options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    shape = (batch * count, layer.in_channels, int(height), int(width))
    found: Tensor = conv2d_input(shape, layer.weight, rows.flatten(0, 1), **options)  # type: ignore[no-untyped-call]
    return found.reshape(batch, count, *shape[1:])


def quick_minimum(slope: Tensor, sources: Sources, *, radius: PerImage) -> Tensor:
    """A lower bound (B, n) of linear functions (B, n, C, H, W) over the ball: nothing pays better than the best rate.

    The rate of a move is what it lowers the function by for its cost. Mass must be where a move starts. Moves within
    `NEAR` pixels are looked at one by one; a longer one gains at most the whole range, over its least length.
    """
    metric = sources.metric
    lengths = [[metric.between(dy, dx) for dx in range(NEAR + 2)] for dy in range(NEAR + 1)]
    rates = _best_rates(slope, sources.images, torch.tensor(lengths, dtype=torch.float64))  # (B, n, C)
    weights = sources.weights[:, None]  # (B, 1, C)
    rate = torch.where(weights > 0, rates / weights.clamp_min(1e-300), 0.0).amax(dim=-1)
    return torch.einsum("bnchw,bchw->bn", slope, sources.images) - rate * radius[:, None]


def _best_rates(slope: Tensor, images: Images, lengths: Tensor) -> Tensor:
    """The best rate (B, n, C) of a move, all of them looked at for short moves, none for long ones."""
    if find_spec("numba") is not None:
        from massmover.certificates import linear_kernel

        return torch.from_numpy(linear_kernel.best_rates(slope.numpy(), images.numpy(), lengths.numpy()))
    there = images[:, None] > 0
    highest = torch.where(there, slope, -torch.inf).amax(dim=(-2, -1))
    rates = (highest - slope.amin(dim=(-2, -1))).clamp_min(0) / lengths[0, NEAR + 1]
    for dy in range(-NEAR, NEAR + 1):
        for dx in range(-NEAR, NEAR + 1):
            if (dy or dx) and abs(dy) < slope.shape[-2] and abs(dx) < slope.shape[-1]:
                start, end = _cut(slope, dy, dx), _cut(slope, -dy, -dx)
                gain = torch.where(_cut(there, dy, dx), start - end, 0.0).amax(dim=(-2, -1))
                rates = torch.maximum(rates, gain / lengths[abs(dy), abs(dx)])
    return rates


def _cut(grid: Tensor, dy: int, dx: int) -> Tensor:
    """The pixels from which the move (dy, dx) stays on the grid."""
    height, width = grid.shape[-2:]
    return grid[..., max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]


def exact_minimum(slope: Tensor, sources: Sources, *, radius: PerImage) -> Tensor:
    """The minimum (B, n) of linear functions a (B, n, C, H, W) over the ball, but for the pixel box, from below.

    For a price t >= 0 of cost, `sum_i x_i min_j (a_j + t w d_ij) - t radius` is a lower bound, concave in t, and its
    best value is the minimum (strong duality of a linear programme). Every price tried gives a valid bound.
    """
    found = torch.empty(slope.shape[:2], dtype=torch.float64)
    distances = torch.tensor(sources.metric.matrix())
    for b in range(len(slope)):
        held = sources.images[b].flatten(1)  # (C, N)
        places = [torch.nonzero(channel > 0).flatten() for channel in held]
        masses = [channel[place] for channel, place in zip(held, places, strict=True)]
        costs = [sources.weights[b, c] * distances[place] for c, place in enumerate(places)]  # (sources, N)
        for n in range(slope.shape[1]):
            found[b, n] = _best_price(slope[b, n].flatten(1), masses, costs, radius=float(radius[b]))
    return found


def _best_price(slope: Tensor, masses: list[Tensor], costs: list[Tensor], *, radius: float) -> float:
    """The largest of the bounds, by bisection of the price at which plans spend the radius."""

    def bound(price: float) -> tuple[float, float]:
        parts = [_priced(*channel, price) for channel in zip(slope, masses, costs, strict=True)]
        return sum(value for value, _ in parts) - price * radius, sum(spent for _, spent in parts)

    low, high = 0.0, 1.0
    best, spent = bound(low)
    if spent <= radius:
        return best
    while bound(high)[1] > radius:
        low, high = high, 4 * high
    for _ in range(PRICES):
        if high - low < PRICED * high:
            break
        middle = (low + high) / 2
        value, spent = bound(middle)
        best = max(best, value)
        low, high = (middle, high) if spent > radius else (low, middle)
    return max(best, bound(low)[0], bound(high)[0])


def _priced(values: Tensor, mass: Tensor, cost: Tensor, price: float) -> tuple[float, float]:
    """What the best plan of one channel reaches at a price, the price included, and what it spends."""
    if find_spec("numba") is not None:
        from massmover.certificates import linear_kernel

        value, spent = linear_kernel.priced(values.numpy(), mass.numpy(), cost.numpy(), price)
        return float(value), float(spent)
    least, end = (values + price * cost).min(dim=1)  # where each source sends its mass
    return float(mass @ least), float(mass @ cost.gather(1, end[:, None])[:, 0])


class Scaling(nn.Module):
    """Each channel times a factor plus a shift: what a normalising wrapper does."""

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        """Keep one number of each kind for every channel."""
        super().__init__()
        self.scale, self.shift = scale.double(), shift.double()

    def forward(self, images: Tensor) -> Tensor:
        """Scale and shift."""
        return images * self.scale[:, None, None] + self.shift[:, None, None]


class Reshape(nn.Module):
    """A flattening that remembers what it flattened."""

    before: tuple[int, ...] = ()

    def forward(self, features: Tensor) -> Tensor:
        """Flatten everything but the batch."""
        self.before = tuple(features.shape[1:])
        return features.flatten(1)


class SizedConvolution(nn.Conv2d):
    """A convolution that remembers the size of its input."""

    input_size: tuple[int, ...] = ()

    def forward(self, features: Tensor) -> Tensor:
        """Convolve."""
        self.input_size = tuple(features.shape[-2:])
        return F.conv2d(features, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def sequence(layers: list[nn.Module]) -> nn.Sequential:
    """The layers as one network."""
    return nn.Sequential(*layers)


def layers_of(model: Classifier) -> list[nn.Module]:
    """The layers of a network in float64, one after the other, or why it cannot be taken apart."""
    mean, std = getattr(model, "mean", None), getattr(model, "std", None)
    if isinstance(mean, Tensor) and isinstance(std, Tensor) and isinstance(model, nn.Module):
        inner: Classifier = model.get_submodule("model")
        scale = 1 / std.double().flatten().cpu()
        return [Scaling(scale, -mean.double().flatten().cpu() * scale), *layers_of(inner)]
    if isinstance(model, nn.Sequential):
        return [layer for part in model for layer in layers_of(part)]
    if isinstance(model, (nn.Identity, nn.Dropout)):
        return []
    if isinstance(model, nn.ReLU):
        return [nn.ReLU()]
    if isinstance(model, nn.Flatten) and model.start_dim == 1 and model.end_dim == -1:
        return [Reshape()]
    if isinstance(model, nn.Linear):
        return [copy.deepcopy(model).double().cpu()]
    if isinstance(model, nn.Conv2d) and model.padding_mode == "zeros" and not isinstance(model.padding, str):
        twin = copy.deepcopy(model).double().cpu()
        twin.__class__ = SizedConvolution
        return [twin]
    raise MassmoverError(
        f"linear bounds know Sequential, Conv2d (zero padding), Linear, ReLU, Flatten and Normalised, "
        f"not {type(model).__name__}: use massmover.certificates.smoothed_radius, which takes any classifier"
    )
