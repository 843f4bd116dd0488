"""What mass tells of a class: no adversary changes it, so of those images more may be asked."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest
import torch
from bars import bars

from massmover.models import PotentialNetwork, lenet
from massmover.training import RECIPES, Adversary, Margin, Mover, Recipe, train
from massmover.training.batches import mass_tells
from massmover.training.margins import margin_loss
from massmover.types import MassmoverError

ASCENT = Recipe(epochs=1, batch_size=16, shift=0, adversary=Adversary(steps=1, radius=0.4, growth=0.0))


def weighing(masses: list[int]) -> torch.Tensor:
    """Images of 2 x 2 pixels with these masses."""
    images = torch.zeros(len(masses), 1, 2, 2, dtype=torch.uint8)
    images[:, 0, 1, 0] = torch.tensor(masses, dtype=torch.uint8)
    return images


def test_mass_tells_where_most_of_the_nearest_in_mass_are_of_the_class() -> None:
    # In order of mass: 0 0 1 0 | 1 0 1 0 | 1 1 1 0; of three neighbours, one on each side.
    labels = torch.tensor([0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0])
    by_hand = torch.tensor([True, True, False, False, False, False, False, False, True, True, True, False])
    masses = [*range(1, 13)]
    assert torch.equal(mass_tells(weighing(masses), labels, neighbours=3), by_hand)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    shuffled = weighing([masses[i] for i in order])
    assert torch.equal(mass_tells(shuffled, labels[order], neighbours=3), by_hand[order])
    assert torch.equal(mass_tells(shuffled.float() / 255, labels[order], neighbours=3), by_hand[order])


def test_few_images_are_all_neighbours() -> None:
    tells = mass_tells(weighing([3, 9, 1, 5]), torch.tensor([2, 2, 0, 2]))
    assert tells.tolist() == [True, True, False, True]
    assert not mass_tells(weighing([3, 9, 1, 5]), torch.tensor([2, 2, 0, 0])).any()  # half are not most


@pytest.mark.parametrize("farther", [1.0, 3.0])
def test_radii_grow_where_mass_tells(monkeypatch: pytest.MonkeyPatch, farther: float) -> None:
    images, labels = bars(64)
    labels[40:] = 0  # all are neighbours, and most of them are of class 0
    tells = mass_tells(images, labels)
    seen: dict[int, float] = {}

    plain = Mover.__call__

    def listening(self: Mover, *batch: Any, radii: Any, numbers: Any, mirrored: Any) -> Any:
        seen.update(zip(numbers.tolist(), radii.tolist(), strict=True))
        return plain(self, *batch, radii=radii, numbers=numbers, mirrored=mirrored)

    monkeypatch.setattr(Mover, "__call__", listening)
    adversary = dataclasses.replace(ASCENT.adversary or Adversary(), remember=True)
    train(lenet, images, labels, recipe=dataclasses.replace(ASCENT, adversary=adversary, farther=farther))
    draws = torch.Generator().manual_seed(0)
    order = torch.randperm(64, generator=draws)
    drawn = torch.cat([adversary.radii(16, share=1, draws=draws) for _ in range(4)])
    for number, radius in zip(order.tolist(), drawn.tolist(), strict=True):
        assert seen[number] == pytest.approx(radius * (farther if tells[number] else 1))
    assert 0 < int(tells.sum()) < 64


def test_margins_grow_where_mass_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = bars(32)
    labels[20:] = 0
    asked: list[float] = []

    def listening(won: Any, *, radii: Any, temperature: float) -> Any:
        asked.extend(radii.tolist())
        return margin_loss(won, radii=radii, temperature=temperature)

    monkeypatch.setattr("massmover.training.loop.margin_loss", listening)
    recipe = dataclasses.replace(
        RECIPES["certified"], epochs=1, batch_size=8, held_out=0.0, farther=4.0, margin=Margin(radius=0.1)
    )
    train(lambda: PotentialNetwork((1, 28, 28), classes=2), images, labels, recipe=recipe)
    tells = int(mass_tells(images, labels).sum())
    assert sorted(asked) == pytest.approx([0.1] * (32 - tells) + [0.4] * tells) and 0 < tells < 32


def test_units_of_mass_bend_where_the_masses_lie() -> None:
    images = torch.rand(101, 1, 5, 4, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 1, 101).view(
        -1, 1, 1, 1
    )
    network = PotentialNetwork((1, 5, 4), classes=3, mass_units=4)
    network.heed_masses_(images)
    bends = -network.mass_in[:, 1] / network.mass_in[:, 0]
    wanted = images.mean(dim=(1, 2, 3)).quantile(torch.tensor([0.125, 0.375, 0.625, 0.875]))
    torch.testing.assert_close(bends.detach(), wanted)
    assert (network.mass_in[:, 0].sign() == torch.tensor([1, -1, 1, -1])).all()  # half look up, half look down


def test_a_network_that_heeds_masses_tells_what_only_mass_tells() -> None:
    """Both classes are the same bar, one of them dimmer: what a potential sees, shares of mass, is the same."""
    images, labels = bars(64)
    images[:], labels = images[0], torch.arange(64) % 2
    images[labels == 1] //= 2

    def build(units: int) -> PotentialNetwork:
        network = PotentialNetwork((1, 28, 28), classes=2, groups=1, members=1, mass_units=units)
        if units:
            network.heed_masses_(images / 255)
        return network

    recipe = dataclasses.replace(RECIPES["certified"], epochs=10, batch_size=16, averaging=0.0, held_out=0.0)
    right = []
    for units in (0, 4):
        network = train(partial(build, units), images, labels, recipe=recipe).model
        right.append(float((network(images / 255).argmax(1) == labels).float().mean()))
    assert right == [0.5, 1.0]


def test_what_farther_is_not_for_is_refused() -> None:
    for farther in (0.5, float("nan")):
        with pytest.raises(MassmoverError, match="farther multiplies radii and is 1 or more"):
            dataclasses.replace(ASCENT, farther=farther)
    for adversary in (None, Adversary(attack="sinkhorn")):
        with pytest.raises(MassmoverError, match="about images with radii of their own"):
            Recipe(adversary=adversary, farther=2.0)
