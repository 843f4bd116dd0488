"""Classifiers around classifiers: one that normalises its input, one that makes a function a module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from massmover.types import Classifier, Images, Logits, MassmoverError


class FunctionModel(nn.Module):
    """A plain function as a module, so that every loaded model is one; it has no weights."""

    def __init__(self, function: Classifier) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, images: Images) -> Logits:
        """Call the function."""
        return self.function(images)


class Normalised(nn.Module):
    """A model that was trained on (images - mean) / std, made to take images in [0, 1].

    Distances are measured in pixels of [0, 1], so an attack must see those and the model must
    normalise for itself.  Mean and std hold one number for each channel, in units of [0, 1].
    They are settings, not weights: the keys of `state_dict` are those of the inner model, so a
    checkpoint saved without the wrapper loads into it, and the other way round.
    """

    mean: Tensor  # (C, 1, 1)
    std: Tensor  # (C, 1, 1)

    def __init__(self, model: Classifier, mean: Sequence[float], std: Sequence[float]) -> None:
        """Wrap a model, once mean and std are usable."""
        super().__init__()
        means, stds = [float(value) for value in mean], [float(value) for value in std]
        check_mean_and_std(means, stds)
        self.model = model if isinstance(model, nn.Module) else FunctionModel(model)
        self.register_buffer("mean", torch.tensor(means).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(stds).reshape(-1, 1, 1), persistent=False)

    def forward(self, images: Images) -> Logits:
        """Normalise the images and classify them."""
        channels = len(self.mean)
        if images.ndim != 4 or images.shape[1] != channels:
            raise MassmoverError(
                f"This model normalises {channels} channels, so images must be (B, {channels}, H, W); "
                f"got {tuple(images.shape)}. Give mean and std one number for each channel of the images."
            )
        logits: Logits = self.model((images - self.mean.to(images)) / self.std.to(images))
        return logits

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights under the inner model's own names."""
        return self.model.state_dict(*args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The counterpart of state_dict: torch looks for the inner model's weights below "model.".
        for name in [name for name in state_dict if name.startswith(prefix)]:
            state_dict[f"{prefix}model.{name.removeprefix(prefix)}"] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def check_mean_and_std(mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise unless there is one finite mean and one positive std for each channel."""
    if not mean or len(mean) != len(std):
        raise MassmoverError(
            f"Mean and std need one number each for every channel; got {len(mean)} means and {len(std)} stds."
        )
    if not all(math.isfinite(value) for value in mean):
        raise MassmoverError(f"Every mean must be finite; got {list(mean)}.")
    if not all(math.isfinite(value) and value > 0 for value in std):
        raise MassmoverError(f"Every std must be finite and > 0; got {list(std)}.")
