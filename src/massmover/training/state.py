"""A training run between two epochs: enough to go on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from massmover.files import replace_through
from massmover.training.adversary import Memory, Mover
from massmover.training.lesson import same_teacher
from massmover.training.recipe import Recipe
from massmover.types import MassmoverError

CHECKPOINT = "checkpoint.pt"
HISTORY = "history.jsonl"


@dataclass(frozen=True)
class Epoch:
    """One line of the history; accuracies are of held-out images under the averaged weights, None without any."""

    epoch: int
    loss: float  # mean over the epoch
    rate: float  # of learning, at its end
    radius: float  # the largest the adversary may use, at its end, or the margin wants; 0 without either
    seconds: float
    clean: float | None = None
    robust: dict[str, float] = field(default_factory=dict)  # by radius
    attacked: int = 0  # held-out images behind that; 0 where it was not found by an attack

    @property
    def score(self) -> float:
        """What decides which epoch is kept: robust accuracy, or clean accuracy without an adversary."""
        if self.robust:
            return sum(self.robust.values()) / len(self.robust)
        return -1.0 if self.clean is None else self.clean

    @property
    def doubt(self) -> float:
        """The standard error of a score that an attack on a few images found."""
        return math.sqrt(self.score * (1 - self.score) / self.attacked) if self.attacked else 0.0


def kept_epoch(history: Sequence[Epoch]) -> Epoch:
    """The latest epoch whose score is the best one, or below the best so far by no more than chance explains.

    A few hundred images under a short attack tell a network that collapsed from one that did not; they do not tell the
    last epochs of a run apart, and there the learning rate has come down, so the latest is the one to take.
    """
    best = kept = history[0]
    for line in history:
        kept = line if line.score >= best.score - best.doubt else kept
        best = line if line.score >= best.score else best
    return kept


@dataclass(eq=False)
class Run:
    """Everything of a run that changes from epoch to epoch."""

    recipe: Recipe
    seed: int
    data: str  # checksum of the images and labels it trains on
    model: nn.Module
    optimiser: torch.optim.Optimizer
    average: WeightAverage
    mover: Mover
    draws: torch.Generator
    history: list[Epoch] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    teacher: Tensor | None = None  # its scores of a few training images, which say who it is

    @classmethod
    def start(
        cls,
        architecture: Callable[[], nn.Module],
        recipe: Recipe,
        mover: Mover,
        *,
        seed: int,
        data: str,
        device: torch.device,
    ) -> Run:
        """A fresh run. Initial weights draw from the global generator, which the caller guards."""
        torch.manual_seed(seed)
        model = architecture().to(device).train()
        if recipe.optimiser == "sgd":
            optimiser: torch.optim.Optimizer = torch.optim.SGD(
                model.parameters(), lr=recipe.peak_rate, momentum=0.9, weight_decay=recipe.weight_decay
            )
        else:
            optimiser = torch.optim.AdamW(
                model.parameters(), betas=(0.9, recipe.memory), weight_decay=recipe.weight_decay
            )
        average = WeightAverage(model, decay=recipe.averaging)
        return cls(recipe, seed, data, model, optimiser, average, mover, torch.Generator().manual_seed(seed))

    def end_epoch(self, line: Epoch) -> None:
        """Write the epoch down, and keep its weights if it is the one to keep so far."""
        self.history.append(line)
        if not self.recipe.held_out or kept_epoch(self.history) is line:
            weights = self.average.state if self.recipe.averaging > 0 else self.model.state_dict()
            self.best = {name: value.detach().clone() for name, value in weights.items()}

    def save(self, folder: Path) -> None:
        """Write the checkpoint, then the history it belongs to, each whole or not at all."""
        state = {
            **self._identity(),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": self.average.state_dict(),
            "memory": self.mover.memory and self.mover.memory._asdict(),
            "draws": self.draws.get_state(),
            "random": torch.get_rng_state(),
            "best": self.best,
            "teacher": self.teacher,
            "history": [dataclasses.asdict(line) for line in self.history],
        }
        replace_through(folder / CHECKPOINT, lambda path: torch.save(state, path))
        lines = "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in self.history)
        replace_through(folder / HISTORY, lambda path: path.write_text(lines))

    def resume(self, folder: Path) -> None:
        """Go on from the checkpoint of a folder; without one, from the start."""
        if not (folder / CHECKPOINT).exists():
            return
        try:
            saved = torch.load(folder / CHECKPOINT, map_location="cpu", weights_only=True)
        except Exception as problem:  # torch raises errors of many kinds on a file that is no checkpoint
            raise MassmoverError(f"{folder / CHECKPOINT} cannot be read ({problem}): start in another folder") from None
        _refuse_other_settings(saved, self._identity())
        if not same_teacher(saved.get("teacher"), self.teacher):
            raise MassmoverError(
                f"{folder / CHECKPOINT} was taught by another teacher, whose answers differ: resume with the same "
                "one, or start in another folder"
            )
        self.model.load_state_dict(saved["model"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.average.load_state_dict(saved["average"])
        if saved["memory"] is not None:
            place = next(self.model.parameters()).device
            self.mover.memory = Memory(**{name: field.to(place) for name, field in saved["memory"].items()})
        self.draws.set_state(saved["draws"])
        torch.set_rng_state(saved["random"])
        self.best = saved["best"]
        self.history = [Epoch(**line) for line in saved["history"]]

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        shapes = {name: tuple(value.shape) for name, value in self.model.state_dict().items()}
        network = (
            f"{type(self.model).__name__} with {len(shapes)} tensors, {sha256(repr(shapes).encode()).hexdigest()[:12]}"
        )
        return {"recipe": dataclasses.asdict(self.recipe), "seed": self.seed, "data": self.data, "network": network}


def _refuse_other_settings(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    flat = [
        {**{name: each.get(name) for name in ("seed", "data", "network")}, **each["recipe"]} for each in (saved, wanted)
    ]
    changed = [
        f"{name}: was {flat[0].get(name)}, is {now}" for name, now in flat[1].items() if flat[0].get(name) != now
    ]
    if changed:
        raise MassmoverError(
            f"the checkpoint was made with other settings ({'; '.join(changed)}): resume with the same"
        )


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
