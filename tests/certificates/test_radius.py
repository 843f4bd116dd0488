from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import broken, network
from torch import Tensor

from linear import least_radius
from massmover import WassersteinBall
from massmover.certificates import PixelMetric, certified_radius
from massmover.models import CertifiedNetwork, PotentialNetwork, lenet, load_certified, load_model, save_weights
from massmover.types import Images, Logits, MassmoverError, Normalisation
from scenes import grounds, random_images, seeds

normalisations = st.sampled_from(["image", "channel"])


def answers(model: CertifiedNetwork, images: Tensor) -> Tensor:
    found: Tensor = model(images).argmax(dim=1)
    return found


@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 3), st.integers(2, 5), st.integers(2, 5)),
    ground=grounds,
    power=st.sampled_from([0.5, 1.0, 2.0]),
    theirs=normalisations,
    ours=normalisations,
)
@settings(max_examples=60, deadline=None)
def test_no_plan_within_a_certified_radius_changes_the_answer(
    seed: int, shape: tuple[int, int, int], ground: str, power: float, theirs: Normalisation, ours: Normalisation
) -> None:
    model = network(seed, shape, normalisation=theirs, units=2)
    images = random_images(seed, batch=3, channels=shape[0], height=shape[1], width=shape[2])
    ball = WassersteinBall(0.1, ground=ground, power=power, normalisation=ours)  # type: ignore[arg-type]
    labels = answers(model, images)
    found = certified_radius(model, images, labels, ball=ball)
    assert found.radius.dtype == torch.float64 and bool((found.radius >= 0).all())
    assert not broken(model, images, labels, found.radius, ball=ball)
    wrong = certified_radius(model, images, (labels + 1) % 3, ball=ball)
    assert bool((wrong.radius == 0).all())


def opposite(height: int, width: int) -> CertifiedNetwork:
    """One duel, whose potential is a cone over a corner: a linear classifier whose certificate is tight.

    Mass on its way to the corner lowers the outcome at the rate 1 from every pixel.
    """
    cone = torch.from_numpy(np.hypot(*np.mgrid[0:height, 0:width]))[None]
    state = {
        "potentials": cone[None, None, None],
        "biases": torch.full((1, 1, 1), -3.1, dtype=torch.float64),
        "mass_in": torch.zeros(0, 2, dtype=torch.float64),
        "mass_out": torch.zeros(1, 0, dtype=torch.float64),
        "per_channel": torch.tensor(False),
    }
    return CertifiedNetwork(state, origin="a test")


def dim_images(seed: int, height: int, width: int, *, count: int = 6) -> Tensor:
    """Images so dark that the pixel box never binds."""
    draws = torch.Generator().manual_seed(seed)
    images = 0.01 * torch.rand(count, 1, height, width, generator=draws, dtype=torch.float64) + 1e-4
    images[..., 0, 0] = 0
    return images


def test_a_linear_classifier_has_the_exact_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    model = opposite(5, 6)
    monkeypatch.setattr(CertifiedNetwork, "score_error", lambda _self: 0.0)  # what is taken off is not the question
    images = dim_images(1, 5, 6)
    ball = WassersteinBall(0.1, window=None)
    found = certified_radius(model, images, answers(model, images), ball=ball)
    for image, label, radius in zip(images, answers(model, images).tolist(), found.radius.tolist(), strict=True):
        # Times the mass, which no plan changes, the difference of the scores is linear in the image.
        assert label == 0
        offset = float(image.sum()) * float(model.biases)
        exact = least_radius(image, -model.potentials, -offset, ball.moves(images))
        assert radius == pytest.approx(exact, abs=1e-6)
    assert float(found.radius.min()) > 0.01


def test_a_radius_from_margin_over_1_9_is_broken() -> None:
    model, ball = opposite(5, 6), WassersteinBall(0.1, window=None)
    images = dim_images(1, 5, 6)
    labels = answers(model, images)
    found = certified_radius(model, images, labels, ball=ball)
    assert not broken(model, images, labels, found.radius, ball=ball)
    assert broken(model, images, labels, found.radius * 2 / 1.9, ball=ball)


class Leaning(CertifiedNetwork):
    """A planted fault: the bias of a class depends on where the mass lies."""

    def forward(self, images: Images) -> Logits:
        lean = (images * torch.arange(images.shape[-1], dtype=images.dtype)).sum(dim=(1, 2, 3)) / images.sum((1, 2, 3))
        return super().forward(images) + torch.stack([lean, -lean], dim=1)


def test_a_bias_that_depends_on_position_is_broken() -> None:
    model, ball = opposite(5, 6), WassersteinBall(0.1, window=None)
    model.__class__ = Leaning
    images = dim_images(1, 5, 6)
    labels = answers(model, images)
    found = certified_radius(model, images, labels, ball=ball)
    assert broken(model, images, labels, found.radius, ball=ball)


def test_a_file_with_a_potential_too_steep_is_refused(tmp_path: Path) -> None:
    model = opposite(6, 5)
    images = random_images(0, batch=4, channels=1, height=6, width=5)
    path = save_weights(model, tmp_path / "fine.safetensors")
    torch.testing.assert_close(load_certified(path)(images), model(images))
    model.potentials[0, 0, 0, 0, 5, 4] *= 1 + 1e-6
    tampered = save_weights(model, tmp_path / "tampered.safetensors")
    with pytest.raises(MassmoverError, match=r"rises 1\.000001 over a pixel, which proves nothing"):
        load_certified(tampered)


def test_potentials_changed_in_memory_shrink_the_radius() -> None:
    model, ball = opposite(5, 6), WassersteinBall(0.1)
    images = dim_images(1, 5, 6)
    labels = answers(model, images)
    before = certified_radius(model, images, labels, ball=ball)
    model.potentials.mul_(2)
    model.biases.mul_(2)
    after = certified_radius(model, images, labels, ball=ball)
    torch.testing.assert_close(after.radius, before.radius, rtol=1e-3, atol=1e-4)
    assert float(after.evidence["lipschitz"][0]) == pytest.approx(2 * float(before.evidence["lipschitz"][0]))


@pytest.mark.parametrize("change", ["missing", "shape", "nan"])
def test_files_that_hold_something_else_are_refused(tmp_path: Path, change: str) -> None:
    state = network(0, (1, 4, 4)).state_dict()
    if change == "missing":
        del state["biases"]
    elif change == "shape":
        state["biases"] = state["biases"][:, :1]
    else:
        state["biases"][0] = torch.nan
    expected = {"missing": "does not hold a certified network", "shape": "do not fit together", "nan": "NaN"}
    with pytest.raises(MassmoverError, match=expected[change]):
        CertifiedNetwork(state, origin="a test")


@pytest.mark.parametrize("centred", [False, True])
def test_a_network_freezes_to_nearly_the_same_scores_and_to_whole_numbers(tmp_path: Path, centred: bool) -> None:
    torch.manual_seed(0)
    for normalisation in ("image", "channel"):
        trained = PotentialNetwork((2, 7, 6), classes=3, groups=3, members=2, mass_units=2, normalisation=normalisation)
        if centred:
            trained.centre_()
        with torch.no_grad():
            trained.columns.mul_(300 if centred else 30).add_(2.0)  # a mean that centring would otherwise lose
            trained.mass_out.normal_()
        trained.project_()
        frozen = trained.eval().frozen()
        images = random_images(3, batch=5, channels=2, height=7, width=6, dtype=torch.float32)
        # Training measures distances by way of neighbours: scores are divided by the detour, which changes no answer.
        scale = PixelMetric(7, 6).detour(2)
        assert scale > 1.02
        torch.testing.assert_close(frozen(images), trained(images) / scale, atol=0.02, rtol=0)
        again = load_model("potentials", weights=save_weights(frozen, tmp_path / f"{normalisation}.safetensors"))
        assert torch.equal(again(images), frozen(images)) and again.normalisation == normalisation


def test_black_images_stay_what_they_are() -> None:
    model, black = network(1, (2, 4, 4)), torch.zeros(2, 2, 4, 4)
    label = int(answers(model, black)[0])
    found = certified_radius(model, black, torch.tensor([label, (label + 1) % 3]), ball=WassersteinBall(0.1))
    assert found.radius.tolist() == [np.inf, 0.0]


def test_a_batch_is_its_members_and_may_be_empty() -> None:
    model, ball = network(2, (1, 6, 5)), WassersteinBall(0.1)
    images = random_images(2, batch=4, channels=1, height=6, width=5)
    labels = answers(model, images)
    together = certified_radius(model, images, labels, ball=ball).radius
    alone = [certified_radius(model, images[i : i + 1], labels[i : i + 1], ball=ball).radius for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert certified_radius(model, images[:0], labels[:0], ball=ball).radius.shape == (0,)


def test_other_grounds_are_measured_anew() -> None:
    model = network(4, (1, 6, 6))
    images = random_images(4, batch=6, channels=1, height=6, width=6)
    labels = answers(model, images)
    radii = {
        ground: certified_radius(
            model, images, labels, ball=dataclasses.replace(WassersteinBall(0.1), ground=ground)
        ).radius
        for ground in ("manhattan", "euclidean", "chebyshev")
    }
    # Longer distances make moves dearer, so more is certified: d_max <= d_2 <= d_1.
    assert bool((radii["chebyshev"] <= radii["euclidean"]).all()) and bool(
        (radii["euclidean"] <= radii["manhattan"]).all()
    )


def test_what_cannot_be_certified_is_refused_with_a_way_out() -> None:
    images, labels, ball = torch.rand(1, 1, 28, 28), torch.tensor([0]), WassersteinBall(0.1)
    with pytest.raises(MassmoverError, match="Sequential is not made of potentials: use method='linear'"):
        certified_radius(lenet(), images, labels, ball=ball, method="potentials")
    with pytest.raises(MassmoverError, match=r"linear bounds know .* not function: use .*smoothed_radius"):
        certified_radius(lambda x: x.flatten(1), images, labels, ball=ball)
    with pytest.raises(MassmoverError, match="unknown method 'magic'"):
        certified_radius(lenet(), images, labels, ball=ball, method="magic")
