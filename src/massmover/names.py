"""What can be chosen by name. Imports nothing, so that the command line can say it before torch is there."""

from __future__ import annotations

ATTACKS = ("auto", "ascent", "frank-wolfe", "sinkhorn", "wong")  # massmover.METHODS
ADVERSARIES = ("ascent", "frank-wolfe", "sinkhorn", "wong")  # of adversarial training
ARCHITECTURES = ("lenet", "resnet20", "resnet18")
BUNDLED = ("mnist-standard", "mnist-robust", "mnist-certified")
RECIPES = ("standard", "paper", "robust", "certified")
