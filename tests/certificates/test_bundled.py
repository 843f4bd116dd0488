from __future__ import annotations

import pytest
import torch

from massmover import WassersteinBall, attack, certified_radius
from massmover.models import BUNDLED, load_model

LEAST = {"mnist-certified": ((100, 26), (200, 20)), "mnist-certified-far": ((200, 21), (400, 11))}  # of 30 images


@pytest.mark.parametrize("name", [name for name, kind in BUNDLED.items() if kind == "potentials"])
def test_what_the_bundled_networks_prove_no_attack_breaks(digits: tuple[torch.Tensor, torch.Tensor], name: str) -> None:
    images, labels = digits[0][:30], digits[1][:30]
    model = load_model(name)
    found = certified_radius(model, images, labels, ball=WassersteinBall(0.1))
    for pixels, least in LEAST[name]:
        proved = found.proved(pixels / 784)
        assert int(proved.sum()) >= least
        broken = attack(model, images, labels, radius=pixels / 784, method="ascent", steps=30).success
        assert not bool((broken & proved).any())
