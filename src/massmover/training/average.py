"""Averaged weights: what training returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


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

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"updates": self.updates, "state": self.state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.updates = saved["updates"]
        for name, value in self.state.items():
            value.copy_(saved["state"][name])
