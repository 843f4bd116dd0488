"""torchattacks' own entry point, `attack(images, labels)`, in every mode, on a real model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from victim import RADIUS, Victim, victim, violations

import massmover
from massmover import WassersteinBall
from massmover.types import MassmoverError

FAR = 0.5


@pytest.fixture(scope="module")
def digits() -> Victim:
    return victim()


@pytest.fixture(scope="module")
def adapter() -> Any:
    return pytest.importorskip("massmover.adapters.torchattacks", exc_type=ImportError)


@pytest.mark.usefixtures("backend")
def test_the_default_mode(adapter: Any, digits: Victim) -> None:
    attack = adapter.WassersteinAttack(digits.model, ball=WassersteinBall(RADIUS), method="ascent")
    found = attack(digits.images, digits.labels)
    assert violations(digits, found) == 0
    own = massmover.attack(digits.model, digits.images, digits.labels, radius=RADIUS, method="ascent")
    assert own.success.any()
    torch.testing.assert_close(found, own.images)


@pytest.mark.parametrize("mode", ["by_function", "by_label", "least_likely", "random"])
def test_targeted_modes(adapter: Any, digits: Victim, mode: str) -> None:
    torch.manual_seed(0)
    attack = adapter.WassersteinAttack(digits.model, ball=WassersteinBall(FAR), method="ascent")
    attack.set_mode_targeted_by_function(lambda images, labels: (labels + 1) % 10)
    wanted = {"by_function": (digits.labels + 1) % 10, "by_label": (digits.labels + 2) % 10}.get(mode)
    labels = wanted if mode == "by_label" else digits.labels
    if not hasattr(attack, f"set_mode_targeted_{mode}"):
        pytest.skip(f"this version of torchattacks has no mode {mode}")
    if mode != "by_function":
        getattr(attack, f"set_mode_targeted_{mode}")()
    found = attack(digits.images, labels)
    assert violations(digits, found, radius=FAR) == 0
    if wanted is not None:
        assert (digits.answers(found) == wanted).sum() >= 2
    else:
        assert (digits.answers(found) != digits.labels).any()


def test_images_that_were_normalised_for_the_model(adapter: Any, digits: Victim) -> None:
    seen = []

    class Normal(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = digits.model

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images.detach() * 0.5 + 0.25)
            logits: torch.Tensor = self.inner(images * 0.5 + 0.25)
            return logits

    attack = adapter.WassersteinAttack(Normal().eval(), ball=WassersteinBall(RADIUS), method="ascent")
    attack.set_normalization_used(mean=[0.25], std=[0.5])
    found = attack((digits.images - 0.25) / 0.5, digits.labels) * 0.5 + 0.25
    torch.testing.assert_close(seen[0], digits.images[:1])  # the network got the digit as it is
    assert violations(digits, found) == 0
    assert (digits.answers(found) != digits.labels).any()


def test_labels_are_needed(adapter: Any, digits: Victim) -> None:
    with pytest.raises(MassmoverError, match="needs labels"):
        adapter.WassersteinAttack(digits.model)(digits.images, None)
