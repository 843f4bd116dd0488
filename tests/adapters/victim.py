"""The real model and the few real digits that every adapter is tried on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

import massmover
from massmover.data import load
from massmover.models import load_model

RADIUS = 0.15


class Victim(NamedTuple):
    model: nn.Module
    images: Tensor
    labels: Tensor

    def answers(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.model(images)
            return logits.argmax(dim=1)


def victim(count: int = 6) -> Victim:
    digits = load("mnist-sample").subset(0, count)
    return Victim(load_model("mnist-standard"), digits.images_as_float(), digits.labels)


def violations(victim: Victim, images: Tensor, *, radius: float | Tensor = RADIUS) -> int:
    """How many images the exact judge refuses."""
    return massmover.verify(victim.images, images, radius).violations
