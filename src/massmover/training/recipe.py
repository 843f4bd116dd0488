"""Recipes: every setting of a training run, as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from massmover.ball import WassersteinBall
from massmover.types import MassmoverError, PerImage

AttackName = Literal["ascent", "frank-wolfe", "sinkhorn", "wong"]
ATTACKS: tuple[AttackName, ...] = ("ascent", "frank-wolfe", "sinkhorn", "wong")
OPTIMISERS = ("adamw", "sgd")
FORGIVING_BY = 0.6  # share of the run after which a forgiving loss is as forgiving as it gets


@dataclass(frozen=True)
class Adversary:
    """Who moves the mass of the training images, how hard it tries, and how far it may go.

    Each image draws a radius of its own: `radius * u ** spread` with u uniform in (0, 1), so that a spread of 1 tries
    all radii alike and a larger one prefers small radii. The upper end grows linearly from 0 over the first `growth`
    of the run: from clean to robust. The projected attacks know one radius a batch, so there a batch draws one. With
    `ramp` they draw none: the radius of each image grows with every step, geometrically from `radius / 100` to
    `radius`, until the image is broken, as in the paper. With `remember` plan ascent goes on from the potential it
    found for the same image in the epoch before, and fewer steps do. With a `scatter` mass moves together, along
    fields that bend over `width` pixels (docs/coherent.md): only plan ascent can do that, and it wants a window as
    large as its radius.
    """

    attack: AttackName = "ascent"
    steps: int = 5
    radius: float = 1.0
    spread: float = 1.0
    growth: float = 0.4
    ramp: bool = False
    remember: bool = False
    window: int | None = 5
    scatter: float | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        if self.attack not in ATTACKS:
            raise MassmoverError(f"unknown attack {self.attack!r} to train against: use one of {', '.join(ATTACKS)}")
        if self.steps < 1 or not (math.isfinite(self.radius) and self.radius > 0):
            raise MassmoverError(
                f"training needs attack steps >= 1 and a radius > 0; got {self.steps} and {self.radius}"
            )
        if not (self.spread > 0 and 0 <= self.growth <= 1):
            raise MassmoverError(f"training needs spread > 0 and growth in [0, 1]; got {self.spread} and {self.growth}")
        if self.ramp and not self.projected:
            raise MassmoverError(f"a radius that grows until an image breaks needs sinkhorn or wong, not {self.attack}")
        if self.remember and (self.attack != "ascent" or self.scatter is not None):
            raise MassmoverError(
                f"{self.attack} has no potentials to remember: use ascent without scatter, or remember=False"
            )
        if self.scatter is not None and self.attack != "ascent":
            raise MassmoverError(f"scatter is {self.scatter}, and {self.attack} scatters: use ascent, or scatter=None")

    @property
    def projected(self) -> bool:
        """Whether the attack is projected gradient ascent, which knows one radius a batch."""
        return self.attack in ("sinkhorn", "wong")

    def radii(self, count: int, *, share: float, draws: torch.Generator) -> PerImage:
        """The radius of each image of a batch, after a share of the run."""
        drawn = torch.rand(1 if self.projected else count, generator=draws, dtype=torch.float64)
        return (self.upper_end(share) * drawn.pow(self.spread)).expand(count)

    def ball(self, radius: float | PerImage) -> WassersteinBall:
        """What the adversary may do at a radius, or at one an image."""
        return WassersteinBall(radius, window=self.window, scatter=self.scatter, width=self.width)

    def upper_end(self, share: float) -> float:
        """The largest radius after a share of the run."""
        return self.radius * (min(1.0, share / self.growth) if self.growth > 0 else 1.0)


@dataclass(frozen=True)
class Margin:
    """Train for a proof: cross-entropy on the duels of a network of potentials, with a radius wanted.

    The true class gives up a wanted radius in each of its duels before they, divided by `temperature`, count. That is
    `radius` with a `spread` of 0; otherwise each image draws `radius * u ** spread` anew at every visit, with u uniform
    in (0, 1), so that no one radius is won at the cost of all others.
    Maxima and minima are soft at first and nearly hard at the end: their temperature falls geometrically from `softest`
    to `hardest`. At first every potential then has a part in every answer, and they part ways one by one; started hard,
    most would never be the largest anywhere and learn nothing. All are in pixels but `spread`. A duel has `groups`
    times `members` potentials.
    """

    radius: float = 0.2
    spread: float = 0.0
    temperature: float = 0.05
    softest: float = 0.5
    hardest: float = 0.02
    groups: int = 6
    members: int = 6

    def __post_init__(self) -> None:
        """Refuse settings that prove nothing."""
        if not (math.isfinite(self.radius) and self.radius >= 0 and self.temperature > 0):
            raise MassmoverError(
                f"a margin needs a radius >= 0 and a temperature > 0; got {self.radius} and {self.temperature}"
            )
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise MassmoverError(f"a margin needs a spread >= 0; got {self.spread}")
        if not 0 < self.hardest <= self.softest:
            raise MassmoverError(f"a margin needs 0 < hardest <= softest; got {self.hardest} and {self.softest}")
        if self.groups < 1 or self.members < 1:
            raise MassmoverError(f"a duel needs groups >= 1 and members >= 1; got {self.groups} and {self.members}")

    def radii(self, count: int, *, draws: torch.Generator) -> PerImage:
        """The radius wanted for each image of a batch; one and the same needs no draws."""
        if self.spread == 0:
            return torch.full((count,), self.radius)
        return self.radius * torch.rand(count, generator=draws).pow(self.spread)

    def softness(self, share: float) -> float:
        """The temperature of maxima and minima after a share of the run."""
        return float(self.softest * (self.hardest / self.softest) ** share)


@dataclass(frozen=True)
class Recipe:
    """How to train. Without an adversary or a margin this is ordinary training.

    The loss is `clean_share` times the cross-entropy on clean images plus the rest on moved ones; with `trades` above 0
    it is the cross-entropy on clean images plus `trades` times the divergence from clean to moved answers. With
    `forgiving` at q above 0 a moved image that is given its class with probability p (or one whose margin is wanted)
    costs `(1 - p ** q) / q` in place of `-log p`: a hopeless image then costs no more than 1 / q and pulls no longer at
    images that can be held. The exponent grows linearly to q over the first `FORGIVING_BY` of the run. `taught` is the
    share of the loss on moved images that asks for a teacher's answer to the same moved image in place of the label:
    the divergence from the one to the other. A teacher knows which images are hopeless, and by how much. `farther`
    multiplies the radii, of an adversary or of a margin, of images whose mass tells their class (`mass_tells`): no
    adversary changes a mass, so those can be held at any radius. `averaging` is the decay of an exponential average of
    the weights; the average is what is returned, and 0 turns it off. `shift` is the largest move of a training image,
    in pixels, in each direction; with `mirror` half of them are seen in a mirror. `memory` is the decay of AdamW's mean
    of squared gradients. The last images of the training set, a share of `held_out`, are not trained on: the epoch that
    does best on them is kept. Without any, the last epoch is.
    """

    epochs: int = 20
    batch_size: int = 128
    optimiser: Literal["adamw", "sgd"] = "adamw"
    peak_rate: float = 4e-3
    weight_decay: float = 0.05
    warm_up: float = 0.2  # share of the steps before the peak
    label_smoothing: float = 0.0
    memory: float = 0.999
    shift: int = 2  # pixels
    mirror: bool = False
    averaging: float = 0.998
    held_out: float = 0.0
    adversary: Adversary | None = None
    clean_share: float = 0.0
    trades: float = 0.0
    forgiving: float = 0.0
    taught: float = 0.0
    farther: float = 1.0
    margin: Margin | None = None

    def __post_init__(self) -> None:
        """Refuse settings that cannot train."""
        if self.epochs < 1 or self.batch_size < 1 or self.shift < 0:
            raise MassmoverError(
                f"Training needs epochs >= 1, batch_size >= 1 and shift >= 0; "
                f"got {self.epochs}, {self.batch_size} and {self.shift}."
            )
        if self.optimiser not in OPTIMISERS:
            raise MassmoverError(f"Unknown optimiser {self.optimiser!r}: use one of {', '.join(OPTIMISERS)}.")
        if not (math.isfinite(self.peak_rate) and self.peak_rate > 0 and self.weight_decay >= 0):
            raise MassmoverError(
                f"Training needs a peak_rate > 0 and a weight_decay >= 0; got {self.peak_rate} and {self.weight_decay}."
            )
        if not (0 < self.warm_up < 1 and all(0 <= x < 1 for x in (self.label_smoothing, self.averaging, self.memory))):
            raise MassmoverError(
                f"warm_up lies in (0, 1), label_smoothing, averaging and memory in [0, 1); "
                f"got {self.warm_up}, {self.label_smoothing}, {self.averaging} and {self.memory}."
            )
        if not 0 <= self.held_out < 1:
            raise MassmoverError(f"held_out is a share of the training images, in [0, 1); got {self.held_out}.")
        if self.margin is not None and self.adversary is not None:
            raise MassmoverError("a recipe has an adversary or a margin, not both: set one of them to None")
        if self.shift and self.adversary is not None and self.adversary.remember:
            raise MassmoverError(
                f"an adversary that remembers needs every image in its place; got shift {self.shift}: use 0"
            )
        if not (0 <= self.clean_share <= 1 and math.isfinite(self.trades) and self.trades >= 0):
            raise MassmoverError(
                f"clean_share lies in [0, 1] and trades is not negative; got {self.clean_share} and {self.trades}."
            )
        if not 0 <= self.forgiving <= 1:
            raise MassmoverError(f"forgiving is an exponent in [0, 1]; got {self.forgiving}.")
        if self.forgiving and ((self.adversary is None and self.margin is None) or self.trades):
            raise MassmoverError(
                f"forgiving is {self.forgiving}, about moved images or margins in a loss without trades: "
                "use 0, or an adversary or a margin, and trades=0."
            )
        if not 0 <= self.taught <= 1:
            raise MassmoverError(f"taught is a share of the loss on moved images, in [0, 1]; got {self.taught}.")
        if self.taught and (self.adversary is None or self.trades):
            raise MassmoverError(
                f"taught is {self.taught}, about moved images in a loss without trades: use 0, or an adversary and "
                "trades=0."
            )
        if not (math.isfinite(self.farther) and self.farther >= 1):
            raise MassmoverError(f"farther multiplies radii and is 1 or more; got {self.farther}.")
        if self.farther > 1 and (self.margin is None and (self.adversary is None or self.adversary.projected)):
            raise MassmoverError(
                f"farther is {self.farther}, about images with radii of their own: use 1, or ascent, frank-wolfe or a "
                "margin."
            )

    def exponent(self, share: float) -> float:
        """The exponent of the loss on moved images after a share of the run; 0 stands for cross-entropy."""
        return self.forgiving * min(1.0, share / FORGIVING_BY)


ROBUST = Recipe(
    epochs=30,
    weight_decay=0.0,
    shift=0,
    averaging=0.999,
    held_out=0.02,
    adversary=Adversary(steps=1, remember=True),
    clean_share=0.5,
)
CERTIFIED = Recipe(
    epochs=14,
    batch_size=256,
    peak_rate=0.07,
    weight_decay=0.0,
    warm_up=0.1,
    memory=0.99,
    shift=0,
    held_out=1 / 12,
    margin=Margin(),
)
FAR = Margin(radius=0.75, spread=1.0, temperature=0.1)
RECIPES = {
    "standard": Recipe(),
    "paper": Recipe(
        epochs=100,
        optimiser="sgd",
        peak_rate=0.05,
        weight_decay=5e-4,
        shift=0,
        averaging=0.0,
        held_out=0.02,
        adversary=Adversary(attack="sinkhorn", steps=50, radius=10.0, growth=0.0, ramp=True),
    ),
    "robust": ROBUST,
    "taught": replace(
        ROBUST,
        epochs=36,
        adversary=Adversary(steps=2, radius=0.9, remember=True),
        clean_share=0.4,
        taught=0.9,
        farther=1.5,
    ),
    "robust-colour": Recipe(
        epochs=10,
        weight_decay=0.0,
        shift=0,
        mirror=True,
        averaging=0.999,
        held_out=0.005,
        adversary=Adversary(steps=2, radius=50 / 3072, spread=3.0, growth=0.3, remember=True),
    ),
    "coherent": Recipe(
        epochs=10,
        weight_decay=0.0,
        shift=0,
        held_out=0.02,
        adversary=Adversary(steps=3, radius=5.0, window=13, scatter=0.05, width=9),
        clean_share=0.5,
    ),
    "certified": CERTIFIED,
    "certified-far": replace(CERTIFIED, margin=FAR),
    "certified-colour": replace(
        CERTIFIED,
        epochs=10,
        peak_rate=0.03,
        mirror=True,
        held_out=0.1,
        margin=Margin(radius=0.005, temperature=0.02, softest=0.1, hardest=0.005, groups=4, members=4),
    ),
}
# Who teaches the recipe taught: trained apart, for networks that learn together lean on each other.
TEACHERS = {
    "near": replace(CERTIFIED, farther=5.0),
    "far": replace(CERTIFIED, farther=2.0, margin=FAR),
    "free": replace(ROBUST, epochs=16, adversary=Adversary(steps=2, remember=True), clean_share=0.3, farther=1.5),
}
