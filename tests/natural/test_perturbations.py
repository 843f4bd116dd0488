from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from massmover import MassmoverError, exact_distance
from massmover.natural import PUBLISHED, Blur, Elastic, Perturbation, Rotation, Translation
from scenes import random_images, seeds


def dice(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def framed(*, height: int, width: int, border: int, channels: int = 1) -> torch.Tensor:
    """Random pixels inside a black border."""
    images = torch.zeros(3, channels, height, width)
    inside = images[:, :, border:-border, border:-border]
    inside.copy_(torch.rand(inside.shape, generator=torch.Generator().manual_seed(1)) + 0.01)
    return images.clamp(0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pixels", [1, 2, 3])
def test_a_move_inside_a_black_border_costs_its_length(pixels: int, channels: int) -> None:
    images = framed(height=14, width=20, border=4, channels=channels)
    moved = Translation(pixels / 20, direction="fixed")(images, random=dice())
    assert torch.equal(moved, torch.roll(images, pixels, dims=3))
    assert exact_distance(images, moved).numpy() == pytest.approx(pixels, rel=1e-6)


def test_half_a_pixel_costs_half_a_pixel_when_interpolated() -> None:
    images = framed(height=12, width=10, border=3)
    moved = Translation(0.05, direction="fixed", interpolation="bilinear")(images, random=dice())
    assert exact_distance(images, moved).numpy() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_random_moves_are_whole_pixels_up_to_the_share_of_the_width(interpolation: Any) -> None:
    images = torch.zeros(400, 1, 15, 20)
    images[:, :, 7, 10] = 1
    moved = Translation(0.15, interpolation=interpolation)(images, random=dice())
    places = torch.nonzero(moved[:, 0] > 1e-4)  # one bright pixel an image, nothing between pixels
    assert len(places) == 400 and float(moved.amax(dim=(1, 2, 3)).min()) > 1 - 1e-4
    down, right = places[:, 1] - 7, places[:, 2] - 10
    for moves in (down, right):  # 0.15 x 20 is 3 pixels, both ways
        assert set(moves.tolist()) == {-3, -2, -1, 0, 1, 2, 3}
        assert abs(float(moves.double().mean())) < 0.3
    assert abs(np.corrcoef(down.numpy(), right.numpy())[0, 1]) < 0.15


def test_an_images_move_does_not_depend_on_its_batch() -> None:
    images = random_images(5, batch=7, channels=1, height=9, width=8)
    one_by_one, together = dice(3), dice(3)
    parts = [Translation(0.3)(part, random=one_by_one) for part in torch.split(images, 2)]
    assert torch.equal(torch.cat(parts), Translation(0.3)(images, random=together))


def test_a_quarter_turn_of_a_square_moves_every_pixel_to_its_place() -> None:
    images = random_images(2, batch=2, channels=3, height=9, width=9, dtype=torch.float32)
    turned = Rotation(90)(images, random=dice())
    assert torch.equal(turned, torch.rot90(images, 1, dims=(2, 3)))  # counter-clockwise as displayed


def test_half_a_turn_flips_both_axes_of_an_oblong() -> None:
    images = random_images(2, batch=2, channels=1, height=5, width=8, dtype=torch.float32)
    assert torch.equal(Rotation(180)(images, random=dice()), torch.flip(images, dims=(2, 3)))


def test_black_comes_in_at_the_corners() -> None:
    turned = Rotation(20)(torch.ones(1, 1, 28, 28), random=dice())
    assert turned[0, 0, 0, 0] == 0 and turned[0, 0, 14, 14] == 1


@pytest.mark.parametrize("width", [3, 5, 7])
def test_blur_is_the_gaussian_of_scipy(width: int) -> None:
    images = random_images(3, batch=2, channels=3, height=24, width=31)
    blurred = Blur(width)(images, random=dice()).numpy()
    sigma = (width - 1) / 2
    expected = gaussian_filter(images.numpy(), sigma=(0, 0, sigma, sigma), mode="nearest", truncate=4.0)
    assert np.abs(blurred - expected).max() < 1e-6


def test_blur_keeps_flat_images_and_the_mass_of_what_is_far_from_the_edge() -> None:
    flat = torch.full((1, 3, 11, 17), 0.4)
    assert Blur(5)(flat, random=dice()).numpy() == pytest.approx(0.4, rel=1e-5)
    images = framed(height=40, width=36, border=13)
    blurred = Blur(7)(images, random=dice())  # reaches 4 x 3 pixels
    assert blurred.sum(dim=(1, 2, 3)).numpy() == pytest.approx(images.sum(dim=(1, 2, 3)).numpy(), rel=1e-5)


def test_with_sigma_the_kernel_ends_at_its_width() -> None:
    point = torch.zeros(1, 1, 15, 13)
    point[0, 0, 7, 6] = 1
    cut = Blur(3, sigma=2.0)(point, random=dice())
    assert int((cut > 0).sum()) == 9
    assert int((Blur(3)(point, random=dice()) > 0).sum()) == 81  # sigma 1, 4 pixels to each side


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@given(seed=seeds, shape=st.tuples(st.integers(1, 3), st.integers(2, 9), st.integers(2, 9)))
def test_nothing_changes_nothing(interpolation: Any, seed: int, shape: tuple[int, int, int]) -> None:
    images = random_images(seed, batch=2, channels=shape[0], height=shape[1], width=shape[2])
    still: list[Perturbation] = [
        Translation(0, interpolation=interpolation),
        Rotation(0, interpolation=interpolation),
        Blur(1),
    ]
    for perturbation in still:
        assert torch.allclose(perturbation(images, random=dice()), images, atol=1e-5), perturbation


@given(seed=seeds, shape=st.tuples(st.integers(1, 3), st.integers(2, 9), st.integers(2, 9)))
def test_pixels_stay_in_range_and_the_originals_as_they_were(seed: int, shape: tuple[int, int, int]) -> None:
    images = random_images(seed, batch=2, channels=shape[0], height=shape[1], width=shape[2], dtype=torch.float32)
    before = images.clone()
    for perturbation in (*PUBLISHED, Rotation(33, interpolation="bilinear"), Blur(3, sigma=0.7)):
        changed = perturbation(images, random=dice(seed))
        assert changed.shape == images.shape and changed.dtype == images.dtype
        assert float(changed.min()) >= 0 and float(changed.max()) <= 1
    assert torch.equal(images, before)


def test_names_say_what_and_how_much() -> None:
    assert [perturbation.name for perturbation in PUBLISHED] == [
        *("translate 5 %", "translate 10 %", "translate 20 %"),
        *("rotate 5°", "rotate 10°", "rotate 20°"),
        *("blur 3", "blur 5", "blur 7"),
    ]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Translation(1.5), "from 0 to 1"),
        (lambda: Translation(float("nan")), "from 0 to 1"),
        (lambda: Translation(0.1, direction="up"), "random or fixed"),  # type: ignore[arg-type]
        (lambda: Rotation(float("inf")), "finite"),
        (lambda: Rotation(5, interpolation="cubic"), "nearest or bilinear"),  # type: ignore[arg-type]
        (lambda: Blur(4), "odd"),
        (lambda: Blur(3, sigma=0.0), "positive"),
    ],
)
def test_what_cannot_be_done_is_refused(make: Callable[[], Perturbation], word: str) -> None:
    with pytest.raises(MassmoverError, match=word):
        make()


def test_without_kornia_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, package: str | None = None) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name="kornia")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MassmoverError, match=r"kornia.*massmover\[natural\]"):
        Blur(3)(torch.zeros(1, 1, 8, 8), random=dice())


def field_by_ramps(perturbation: Elastic, *, side: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The field that bends an image, read off where two ramps end up: (2, side, side), right and down."""
    ramp = torch.linspace(0, 1, side, dtype=torch.float64)
    ramps = torch.stack([ramp.expand(side, side), ramp.unsqueeze(1).expand(side, side)]).unsqueeze(0)  # (1, 2, S, S)
    moved = perturbation(ramps, random=dice(seed))
    return ((moved - ramps)[0] * (side - 1)).numpy()


def test_an_elastic_field_is_blurred_noise_of_the_length_asked_for() -> None:
    side, sigma, pixels = 40, 3.0, 0.8
    field = field_by_ramps(Elastic(pixels, sigma=sigma), side=side)
    noise = dice().uniform(-1, 1, (1, 2, side, side))[0]
    smooth = np.stack([gaussian_filter(part, sigma, mode="constant", truncate=4.0) for part in noise])
    wanted = pixels * smooth / np.sqrt((smooth**2).sum(axis=0).mean())
    inner = (slice(None), slice(4, -4), slice(4, -4))  # at the edge black comes in
    assert np.abs(field - wanted)[inner].max() < 1e-3
    assert np.sqrt((wanted**2).sum(axis=0).mean()) == pytest.approx(pixels)


def test_no_elastic_deformation_changes_nothing_and_more_moves_mass_farther() -> None:
    images = framed(height=20, width=16, border=5)
    assert torch.allclose(Elastic(0)(images, random=dice()), images, atol=1e-6)
    far = [
        float(exact_distance(images, _scaled(images, Elastic(amount)(images, random=dice()))).mean())
        for amount in (0.5, 1, 2)
    ]
    assert far == sorted(far) and far[0] > 0.1


def _scaled(images: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    return moved * (images.sum(dim=(1, 2, 3)) / moved.sum(dim=(1, 2, 3))).view(-1, 1, 1, 1)


def test_an_elastic_deformation_depends_on_its_image_alone() -> None:
    images = random_images(3, batch=3, channels=1, height=12, width=10)
    together = Elastic(1.5)(images, random=dice())
    random = dice()
    alone = torch.cat([Elastic(1.5)(image.unsqueeze(0), random=random) for image in images])
    assert torch.allclose(together, alone, atol=1e-6) and not torch.allclose(together, images, atol=1e-2)


@pytest.mark.parametrize("settings", [{"pixels": -1}, {"pixels": float("nan")}, {"pixels": 1, "sigma": 0}])
def test_an_elastic_deformation_that_is_none_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(MassmoverError, match="such as"):
        Elastic(**settings)
