"""Train a classifier, in one visible loop.

The functions take and return values: images and labels in, a new model out.  Nothing is
printed and nothing is written; pass `progress` to hear how far it is, and give the model
to `massmover.models.save_weights` to keep it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from massmover.checks import check_labels, inference_mode_of, logits_of
from massmover.types import Images, Labels, MassmoverError

Progress: TypeAlias = Callable[[int, int, int, float], None]  # (epoch, step, steps, loss); steps of the whole run


@dataclass(frozen=True)
class StandardRecipe:
    """The settings of ordinary training: AdamW, one cycle of the learning rate, random shifts, averaged weights.

    `averaging` is the decay of an exponential average of the weights; the average is what
    is returned, and 0 turns it off.  `shift` is the largest move of a training image, in
    pixels, in each direction.  The schedule is fixed: no epoch is chosen by a test score.
    """

    epochs: int = 20
    batch_size: int = 128
    peak_rate: float = 4e-3
    weight_decay: float = 0.05
    warm_up: float = 0.2  # share of the steps before the peak
    label_smoothing: float = 0.0
    shift: int = 2  # pixels
    averaging: float = 0.998

    def __post_init__(self) -> None:
        """Refuse settings that cannot train."""
        if self.epochs < 1 or self.batch_size < 1 or self.shift < 0:
            raise MassmoverError(
                f"Training needs epochs >= 1, batch_size >= 1 and shift >= 0; "
                f"got {self.epochs}, {self.batch_size} and {self.shift}."
            )
        if not (math.isfinite(self.peak_rate) and self.peak_rate > 0 and self.weight_decay >= 0):
            raise MassmoverError(
                f"Training needs a peak_rate > 0 and a weight_decay >= 0; got {self.peak_rate} and {self.weight_decay}."
            )
        if not (0 < self.warm_up < 1 and 0 <= self.label_smoothing < 1 and 0 <= self.averaging < 1):
            raise MassmoverError(
                f"warm_up lies in (0, 1), label_smoothing and averaging in [0, 1); "
                f"got {self.warm_up}, {self.label_smoothing} and {self.averaging}."
            )


class Trained(NamedTuple):
    """A trained model in eval mode, and how it came about."""

    model: nn.Module
    recipe: StandardRecipe
    seed: int
    seconds: float
    losses: tuple[float, ...]  # mean training loss of each epoch


def train_standard(
    architecture: Callable[[], nn.Module],
    images: Tensor,  # (N, C, H, W), uint8, or floats in [0, 1]
    labels: Labels,  # (N,)
    *,
    recipe: StandardRecipe | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Trained:
    """Train a fresh network on labelled images, without an adversary.

    Minimises the mean cross-entropy over shifted copies of the images and returns the
    running average of the weights at the end of a fixed schedule.

    The seed decides the initial weights, the order and the shifts.  On a CPU the same seed
    gives the same weights bit for bit, for one version of PyTorch and one number of threads.
    The caller's tensors and the global random state are left as they were.
    """
    recipe = recipe or StandardRecipe()
    labels = check_training_data(images, labels)
    device = torch.device(device)
    started = time.perf_counter()
    # Initial weights (and dropout, where a network has it) draw from the global generator.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = architecture().to(device).train()
        average = WeightAverage(model, decay=recipe.averaging)
        draws = torch.Generator().manual_seed(seed)

        count = len(images)
        steps_per_epoch = math.ceil(count / recipe.batch_size)
        steps = recipe.epochs * steps_per_epoch
        optimiser = torch.optim.AdamW(model.parameters(), weight_decay=recipe.weight_decay)
        step = 0
        losses: list[float] = []
        for epoch in range(recipe.epochs):
            total = 0.0
            for chosen in torch.split(torch.randperm(count, generator=draws), recipe.batch_size):
                for group in optimiser.param_groups:
                    group["lr"] = one_cycle(step / steps, peak=recipe.peak_rate, warm_up=recipe.warm_up)
                batch = random_shift(images[chosen.to(images.device)], largest=recipe.shift, draws=draws)
                truth = labels[chosen.to(labels.device)].to(device)

                logits = model(as_floats(batch.to(device)))
                loss = nn.functional.cross_entropy(logits, truth, label_smoothing=recipe.label_smoothing)
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)  # typed, unlike loss.backward()
                optimiser.step()
                average.update(model)

                step += 1
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise MassmoverError(
                        f"The training loss became {value} at step {step} of {steps}; "
                        f"lower peak_rate (now {recipe.peak_rate})."
                    )
                total += value * len(chosen)
                if progress is not None:
                    progress(epoch, step, steps, value)
            losses.append(total / count)
    average.copy_to(model)
    return Trained(model.eval(), recipe, seed, time.perf_counter() - started, tuple(losses))


class WeightAverage:
    """An exponential running average of a model's weights and of its normalisation statistics."""

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        """Start from the model's present weights."""
        self.decay = decay
        self.updates = 0
        self.state = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average a little towards the model's present weights."""
        self.updates += 1
        # A short memory at first: otherwise the random initial weights stay in the average of a short run.
        decay = min(self.decay, self.updates / (self.updates + 10))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - decay)
            else:
                self.state[name].copy_(value)  # counters are not averaged

    def copy_to(self, model: nn.Module) -> None:
        """Give the model the averaged weights; with no averaging it keeps its last ones."""
        if self.decay > 0:
            model.load_state_dict(self.state)


def one_cycle(share: float, *, peak: float, warm_up: float) -> float:
    """Return the learning rate after a share of the run: a cosine up from peak/25, then one down to almost nothing."""
    low_start, low_end = peak / 25, peak / 10_000
    if share < warm_up:
        return low_start + (peak - low_start) * (1 - math.cos(math.pi * share / warm_up)) / 2
    return low_end + (peak - low_end) * (1 + math.cos(math.pi * (share - warm_up) / (1 - warm_up))) / 2


def random_shift(images: Tensor, *, largest: int, draws: torch.Generator) -> Tensor:
    """Return the images, each moved by its own whole number of pixels; what enters is black."""
    if largest == 0:
        return images
    B, _, H, W = images.shape
    moves = torch.randint(0, 2 * largest + 1, (2, B, 1), generator=draws).to(images.device)
    padded = nn.functional.pad(images, (largest,) * 4)
    rows = moves[0] + torch.arange(H, device=images.device)  # (B, H)
    columns = moves[1] + torch.arange(W, device=images.device)  # (B, W)
    which = torch.arange(B, device=images.device)
    shifted = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (B, H, W, C)
    return shifted.permute(0, 3, 1, 2).contiguous()


def as_floats(images: Tensor) -> Images:
    """Return images as float32 in [0, 1], whether they came as bytes or as floats."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def accuracy(model: nn.Module, images: Tensor, labels: Labels, *, batch_size: int = 1000) -> float:
    """Return the share of images, bytes or floats in [0, 1], that the model labels correctly."""
    labels = check_training_data(images, labels)
    place = next((parameter.device for parameter in model.parameters()), images.device)
    right = 0
    with inference_mode_of(model), torch.no_grad():
        for batch, truth in zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True):
            guesses = logits_of(model, as_floats(batch.to(place))).argmax(dim=1)
            right += int((guesses == truth.to(place)).sum())
    return right / len(images)


def check_training_data(images: Tensor, labels: Labels) -> Labels:
    """Return the labels as int64 once images and labels fit together."""
    if images.ndim != 4 or len(images) == 0:
        raise MassmoverError(f"Images must be a non-empty (N, C, H, W) tensor; got shape {tuple(images.shape)}.")
    if images.dtype != torch.uint8 and not (images.is_floating_point() and images.min() >= 0 and images.max() <= 1):
        raise MassmoverError(
            f"Images must be uint8, or floats in [0, 1]; got {images.dtype} "
            f"with values from {images.min().item():g} to {images.max().item():g}."
        )
    return check_labels(labels, batch=len(images))
