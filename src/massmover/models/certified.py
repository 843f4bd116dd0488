"""Networks whose answers come with a proof: duels between classes, made of potentials 1-Lipschitz over the pixels.

`PotentialNetwork` is what training moves; `CertifiedNetwork` is the frozen form that is saved, loaded and measured.
docs/certificates.md says why half of its margin is a radius.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from massmover.certificates.lipschitz import steepness
from massmover.certificates.transform import PixelMetric, projected, relax_
from massmover.models.weights import read_weights
from massmover.types import Images, Labels, Logits, MassmoverError, Normalisation

REACH = 2  # pixels: how far the neighbours lie by way of which training measures distance
UNIT = 1 / 1024  # pixels: frozen potentials are whole numbers of it, which 16 bits hold up to 32 pixels
DRIFT = 1e-6  # the share of an image's mass that the judge of attacks lets an image gain or lose


def shares_of_mass(images: Images, *, normalisation: Normalisation) -> Images:
    """The images divided by their mass, or each channel by its own; black stays black."""
    mass = images.sum(dim=(-2, -1), keepdim=True)  # (B, C, 1, 1)
    if normalisation == "image":
        mass = mass.sum(dim=1, keepdim=True)
    return images / torch.where(mass > 0, mass, 1.0)


def duels(classes: int) -> Tensor:
    """All pairs of different classes, the smaller number first: (pairs, 2)."""
    return torch.combinations(torch.arange(classes))


def class_scores(outcomes: Tensor, *, classes: int) -> Logits:
    """The score of a class is its worst duel; outcomes (B, pairs) are positive where the first class wins."""
    first, second = duels(classes).T
    table = outcomes.new_full((len(outcomes), classes, classes), torch.inf)
    table[:, first, second] = outcomes
    table[:, second, first] = -outcomes
    return table.amin(dim=2)


class PotentialNetwork(nn.Module):
    """The trainable form. Every two classes fight a duel, and the score of a class is its worst one.

    The outcome of a duel is the largest of its groups, a group the smallest of its members, a member
    `<phi, x / m> + bias`. A duel has potentials of its own, as steep as allowed; a class with one potential for all its
    rivals could not be steep against each of them. In training mode maxima and minima are soft, with the temperature
    `softness` in pixels; log-sum-exp is as Lipschitz as the maximum. `mass_units` hidden units add a function of the
    channels' masses to each duel: mass does not move, so it is free.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        classes: int = 10,
        groups: int = 4,
        members: int = 2,
        mass_units: int = 0,
        normalisation: Normalisation = "image",
    ) -> None:
        """Draw small random potentials for images of shape (C, H, W)."""
        super().__init__()
        pairs = classes * (classes - 1) // 2
        self.shape, self.sizes, self.normalisation = shape, (pairs, groups, members), normalisation
        self.classes, self.softness, self.even = classes, 0.0, 0.0
        pixels, count = shape[0] * shape[1] * shape[2], groups * members
        # Potentials of a duel lie side by side, pixel after pixel: so the projection runs along memory.
        self.columns = nn.Parameter(0.1 * torch.randn(pairs, pixels, count))
        self.biases = nn.Parameter(0.01 * torch.randn(pairs, count))
        self.mass_in = nn.Parameter(torch.randn(mass_units, shape[0] + 1))
        self.mass_out = nn.Parameter(torch.zeros(pairs, mass_units))
        self.project_()

    @torch.no_grad()
    def centre_(self) -> None:
        """Measure shares of mass from those of an evenly grey image: for photographs, which are never far from one.

        A score moves by the mean of its potential, which its bias makes up for, so nothing that can be learned changes.
        But a photograph lies on every pixel, and every gradient would raise or lower a potential as a whole. The
        potentials start smaller too, since those of photographs stay small.
        """
        channels, height, width = self.shape
        self.even = 1 / (height * width * (1 if self.normalisation == "channel" else channels))
        self.columns.mul_(0.1)

    @torch.no_grad()
    def heed_masses_(self, images: Images) -> None:
        """Let the hidden units of mass bend where the masses of grey images lie, evenly from the least to the most."""
        units = len(self.mass_in)
        bends = (
            images.mean(dim=(-2, -1))
            .mean(dim=1)
            .double()
            .quantile((torch.arange(units, dtype=torch.float64) + 0.5) / units)
        )
        slopes = torch.where(torch.arange(units) % 2 == 0, 10.0, -10.0)
        self.mass_in.copy_(torch.stack([slopes, -slopes * bends.float()], dim=1))

    def _shares(self, images: Images) -> Tensor:
        """The shares of mass that potentials are applied to: (B, pixels)."""
        return shares_of_mass(images, normalisation=self.normalisation).flatten(1) - self.even

    def forward(self, images: Images) -> Logits:
        """Score the images."""
        shares = self._shares(images)
        won = self._decided(shares @ self.columns) + mass_score(images, self.mass_in, self.mass_out).T  # (pairs, B)
        return class_scores(won.T, classes=self.classes)

    def margins(self, images: Images, labels: Labels) -> Tensor:
        """By how much the true class wins each of its duels (B, classes), and infinity against itself.

        Training asks for no other duels, so each is computed for the images of its two classes alone.
        """
        B, classes = len(images), self.classes
        first, second = duels(classes).T.to(labels.device)
        order = labels.argsort(stable=True)
        counts = torch.bincount(labels, minlength=classes)
        starts = counts.cumsum(0) - counts
        place = torch.empty_like(labels)  # of each image among those of its class
        place[order] = torch.arange(B, device=labels.device) - starts[labels[order]]
        most = int(counts.max())
        shares = self._shares(images)
        ranks = shares.new_zeros(classes, most, shares.shape[1])
        ranks[labels, place] = shares
        free = shares.new_zeros(classes, most, len(first))
        free[labels, place] = mass_score(images, self.mass_in, self.mass_out)
        number = torch.arange(len(first), device=labels.device)
        won = self._decided(torch.cat([ranks[first], ranks[second]], dim=1) @ self.columns)  # (pairs, 2 most)
        won = won + torch.cat([free[first, :, number], free[second, :, number]], dim=1)
        table = won.new_full((classes, most, classes), torch.inf)
        table[first, :, second] = won[:, :most]
        table[second, :, first] = -won[:, most:]
        return table[labels, place]

    def _decided(self, members: Tensor) -> Tensor:
        """The outcome of duels (pairs, B) from their members (pairs, B, groups x members); hard in eval mode."""
        members = (members + self.biases[:, None]).reshape(*members.shape[:2], *self.sizes[1:])
        if self.training and self.softness > 0:
            groups = -self.softness * torch.logsumexp(-members / self.softness, dim=3)
            return self.softness * torch.logsumexp(groups / self.softness, dim=2)
        return members.amin(dim=3).amax(dim=2)

    def project_(self) -> None:
        """Bring the potentials back to about 1-Lipschitz, as after a step of the optimiser."""
        _, height, width = self.shape
        for rows in self.columns.detach().view(-1, height * width, self.columns.shape[2]):
            relax_(rows, metric=PixelMetric(height, width), reach=REACH)

    @torch.no_grad()
    def frozen(self) -> CertifiedNetwork:
        """The network for use: potentials exactly 1-Lipschitz, in whole numbers of a unit.

        What training leaves is too steep by the detour by way of neighbours. All scores are divided by that, which
        changes no answer; the projection then has next to nothing to do. Scaled by 1 - unit before rounding, a
        difference is at most (1 - unit) d + unit, which is at most d between two different pixels: rounding keeps the
        constant.
        """
        metric = PixelMetric(*self.shape[1:])
        scale = (1 - UNIT) / metric.detour(REACH)
        arrays = self.columns.detach().double().transpose(1, 2).reshape(-1, *self.shape)
        arrays = projected(arrays / metric.detour(REACH), metric=metric)
        numbers = (arrays * (1 - UNIT) / UNIT).round()
        if numbers.abs().max() > torch.iinfo(torch.int16).max:
            raise MassmoverError("a potential rose above 32 pixels, more than a file holds: train at a lower rate")
        state = {
            "potentials": numbers.to(torch.int16).reshape(*self.sizes, *self.shape),
            "biases": (self.biases.double() - self.even * self.columns.double().sum(dim=1)).reshape(self.sizes) * scale,
            "mass_in": self.mass_in.double(),
            "mass_out": self.mass_out.double() * scale,
            "per_channel": torch.tensor(self.normalisation == "channel"),
        }
        return CertifiedNetwork(state, origin="the trained network")


def mass_score(images: Images, weights_in: Tensor, weights_out: Tensor) -> Tensor:
    """A small network on the mean brightness of each channel: anything it says is free of where mass lies."""
    brightness = images.mean(dim=(-2, -1))  # (B, C)
    units = torch.relu(brightness @ weights_in[:, :-1].T + weights_in[:, -1])
    return units @ weights_out.T


class CertifiedNetwork(nn.Module):
    """The frozen form: potentials and biases in float64, maxima and minima, nothing to train.

    Building one checks every potential over all pairs of pixels and refuses what is too steep.
    """

    potentials: Tensor  # (pairs, groups, members, C, H, W), pixels
    biases: Tensor  # (pairs, groups, members)
    mass_in: Tensor  # (units, C + 1)
    mass_out: Tensor  # (pairs, units)
    normalisation: Normalisation

    def __init__(self, state: dict[str, Tensor], *, origin: str) -> None:
        """Take the tensors of a file, once they fit together and every potential is 1-Lipschitz."""
        super().__init__()
        check_fit(state, origin=origin)
        whole = not state["potentials"].is_floating_point()
        potentials = state["potentials"].double() * (UNIT if whole else 1.0)
        # The claim of the form is about Euclidean pixels; for another ground the certificate measures again.
        steepest = float(steepness(potentials.numpy(), ground="euclidean").max())
        if steepest > 1 + 1e-9:
            raise MassmoverError(
                f"{origin} holds a potential that rises {steepest:.9g} over a pixel, which proves nothing: "
                "at most 1 is needed. The file was changed after training; take the original one."
            )
        self.normalisation = "channel" if bool(state["per_channel"]) else "image"
        self.whole, self.classes = whole, classes_of(len(potentials))
        self.register_buffer("potentials", potentials)
        for name in ("biases", "mass_in", "mass_out"):
            self.register_buffer(name, state[name].double())

    def forward(self, images: Images) -> Logits:
        """Score the images, in float64 inside and in their own number type outside."""
        exact = images.double()
        shares = shares_of_mass(exact, normalisation=self.normalisation).flatten(1)
        members = shares @ self.potentials.flatten(3).flatten(0, 2).T
        won = (members.reshape(-1, *self.biases.shape) + self.biases).amin(dim=3).amax(dim=2)
        won = won + mass_score(exact, self.mass_in, self.mass_out)
        return class_scores(won, classes=self.classes).to(images.dtype)

    def score_error(self) -> float:
        """How far a score as computed, on an image that the judge lets pass, may be from that of an image in the ball.

        Three parts: float64 sums over n pixels (Higham's n u / (1 - n u), twice, for product and mass); the judge's
        tolerance, a share of the mass created, lost or put elsewhere; and scores returned as float32.
        """
        pixels = self.potentials[0, 0, 0].numel()
        high = float(self.potentials.abs().max()) + float(self.biases.abs().max())
        reach = float(self.mass_in.abs().sum(dim=1).max()) if self.mass_in.numel() else 0.0
        free = reach * float(self.mass_out.abs().sum(dim=1).max()) if self.mass_out.numel() else 0.0
        sums = (2 * pixels + 64) * torch.finfo(torch.float64).eps * (high + free)
        spread = 2 * float(self.potentials.amax() - self.potentials.amin()) * self.potentials.shape[3]
        shown = torch.finfo(torch.float32).eps * (high + free)
        return sums + DRIFT * (spread + free) + shown

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """What `save_weights` writes: potentials as whole numbers where they are, the rest as it is used."""
        state = super().state_dict(*args, **kwargs)
        if self.whole:
            state["potentials"] = (self.potentials / UNIT).round().to(torch.int16)
        state["per_channel"] = torch.tensor(self.normalisation == "channel")
        return state


def classes_of(pairs: int) -> int:
    """How many classes have so many duels."""
    return (1 + math.isqrt(1 + 8 * pairs)) // 2


def check_fit(state: dict[str, Tensor], *, origin: str) -> None:
    """Raise unless the tensors of a file are those of a certified network."""
    needed = {"potentials", "biases", "mass_in", "mass_out", "per_channel"}
    if set(state) != needed:
        raise MassmoverError(
            f"{origin} does not hold a certified network: it has {', '.join(sorted(state)) or 'nothing'}, "
            f"needed are {', '.join(sorted(needed))}. Train one with the recipe certified."
        )
    shape = tuple(state["potentials"].shape)
    units = state["mass_in"].shape[0]
    fits = (
        len(shape) == 6
        and 0 not in shape
        and classes_of(shape[0]) * (classes_of(shape[0]) - 1) == 2 * shape[0]
        and tuple(state["biases"].shape) == shape[:3]
        and tuple(state["mass_in"].shape) == (units, shape[3] + 1)
        and tuple(state["mass_out"].shape) == (shape[0], units)
    )
    if not fits:
        given = ", ".join(f"{name} {tuple(value.shape)}" for name, value in sorted(state.items()))
        raise MassmoverError(f"{origin} holds tensors that do not fit together: {given}. Take the original file.")
    if not all(bool(torch.isfinite(state[name]).all()) for name in ("biases", "mass_in", "mass_out")):
        raise MassmoverError(f"{origin} holds NaN or infinity. Take the original file.")


def load_certified(path: str | os.PathLike[str]) -> CertifiedNetwork:
    """Read a certified network from a safetensors file; one whose potentials are too steep is refused."""
    return CertifiedNetwork(dict(read_weights(Path(path)).tensors), origin=str(path))
