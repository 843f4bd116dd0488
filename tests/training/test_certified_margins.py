from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from bars import bars

from massmover import WassersteinBall
from massmover.certificates import certified_radius, steepness
from massmover.models import PotentialNetwork, lenet
from massmover.training import RECIPES, Adversary, Margin, Recipe, train
from massmover.training.lesson import forgiven
from massmover.training.margins import margin_loss
from massmover.types import MassmoverError

RECIPE = dataclasses.replace(RECIPES["certified"], epochs=4, batch_size=16, averaging=0.9, held_out=0.2)


class InterruptedHereError(Exception):
    """Stands for a killed process."""


def potentials() -> PotentialNetwork:
    return PotentialNetwork((1, 28, 28), classes=2, groups=2, members=2)


def test_the_loss_is_that_of_duels_by_hand() -> None:
    won = torch.tensor([[-0.2, torch.inf, 0.7], [-0.2, torch.inf, 0.7]])  # class 1 against 0 and against 2
    by_hand = torch.stack(
        [torch.tensor([2 * (r + 0.2) / 0.5, 2 * (r - 0.7) / 0.5]).exp().sum().log1p() for r in (0.3, 0.1)]
    )
    torch.testing.assert_close(margin_loss(won, radii=torch.tensor([0.3, 0.1]), temperature=0.5), by_hand)


def test_a_spread_draws_a_radius_for_each_image() -> None:
    draws = torch.Generator().manual_seed(0)
    same = Margin(radius=0.3).radii(3, draws=draws)
    assert same.tolist() == pytest.approx([0.3] * 3)
    assert torch.rand(1, generator=draws) == torch.rand(1, generator=torch.Generator().manual_seed(0))  # none was used
    drawn = Margin(radius=0.3, spread=2).radii(10_000, draws=draws)
    assert 0 <= drawn.min() < 0.001 and 0.299 < drawn.max() < 0.3
    assert float(drawn.mean()) == pytest.approx(0.1, abs=0.003)  # the mean of u squared is a third


def test_the_duels_of_the_true_class_are_those_of_the_scores() -> None:
    torch.manual_seed(0)
    network = PotentialNetwork((2, 6, 5), classes=4, groups=2, members=3, mass_units=2).eval()
    with torch.no_grad():
        network.mass_out.normal_()
    images, labels = torch.rand(9, 2, 6, 5), torch.tensor([3, 0, 0, 2, 3, 0, 2, 2, 3])  # none of class 1
    won = network.margins(images, labels)
    assert bool((won[torch.arange(9), labels] == torch.inf).all())
    torch.testing.assert_close(won.amin(dim=1), network(images)[torch.arange(9), labels])


def test_centring_moves_scores_by_the_means_of_potentials() -> None:
    torch.manual_seed(0)
    network = PotentialNetwork((3, 5, 4), classes=2, groups=1, members=1).eval()
    grey = torch.full((1, 3, 5, 4), 0.4)
    plain = network(grey)
    torch.testing.assert_close(plain[0, 0], network.columns.mean() + network.biases.sum())
    network.centre_()
    torch.testing.assert_close(network(grey)[0, 0], network.biases.sum())


def test_training_certifies_what_it_learns() -> None:
    images, labels = bars(200)
    trained = train(potentials, images, labels, recipe=dataclasses.replace(RECIPE, epochs=8))
    frozen = trained.model.frozen()  # type: ignore[operator]
    found = certified_radius(frozen, images.float() / 255, labels, ball=WassersteinBall(0.1))
    assert float(found.radius.min()) > 0.15
    assert float(steepness(frozen.potentials.numpy(), ground="euclidean").max()) <= 1 + 1e-12
    assert trained.history[-1].robust["0.127551"] == 1


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path, steps: int) -> None:
    def interrupt(_epoch: int, step: int, _steps: int, _loss: float) -> None:
        if step == steps:
            raise InterruptedHereError

    whole = train(potentials, *bars(40), recipe=RECIPE)
    with pytest.raises(InterruptedHereError):
        train(potentials, *bars(40), recipe=RECIPE, folder=tmp_path, progress=interrupt)
    resumed = train(potentials, *bars(40), recipe=RECIPE, folder=tmp_path)
    assert resumed.losses == whole.losses
    kept, wanted = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(kept[name], wanted[name]) for name in wanted)


def test_a_margin_may_forgive() -> None:
    surprise = -torch.tensor([0.5, 0.1]).log()
    torch.testing.assert_close(forgiven(surprise, exponent=0.0), surprise.sum())
    torch.testing.assert_close(forgiven(surprise, exponent=1.0), torch.tensor(0.5 + 0.9))  # 1 - p
    assert float(forgiven(torch.tensor([1e4]), exponent=0.25)) == 4.0  # hopeless: never more than 1 / q
    forgiving = dataclasses.replace(RECIPE, forgiving=0.5, margin=Margin(radius=5.0))
    unforgiving = dataclasses.replace(forgiving, forgiving=0.0)
    runs = [train(potentials, *bars(40), recipe=recipe) for recipe in (forgiving, unforgiving)]
    assert runs[0].losses[-1] <= 2 < runs[1].losses[-1]  # nothing stands five pixels
    with pytest.raises(MassmoverError, match="or an adversary or a margin, and trades=0"):
        Recipe(forgiving=0.5)


def test_a_margin_needs_potentials_and_no_adversary() -> None:
    with pytest.raises(MassmoverError, match=r"a margin is trained with .*PotentialNetwork, not with Sequential"):
        train(lenet, *bars(40), recipe=RECIPE)
    with pytest.raises(MassmoverError, match="an adversary or a margin, not both"):
        Recipe(margin=Margin(), adversary=Adversary())
    with pytest.raises(MassmoverError, match="a radius >= 0 and a temperature > 0"):
        Margin(temperature=0)
    with pytest.raises(MassmoverError, match="0 < hardest <= softest"):
        Margin(softest=0.01, hardest=0.02)
    with pytest.raises(MassmoverError, match="spread >= 0"):
        Margin(spread=-1)
    with pytest.raises(MassmoverError, match="groups >= 1 and members >= 1"):
        Margin(groups=0)
    with pytest.raises(MassmoverError, match=r"memory in \[0, 1\)"):
        Recipe(memory=1.0)
