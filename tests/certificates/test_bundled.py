from __future__ import annotations

import torch

from massmover import WassersteinBall, attack, certified_radius
from massmover.models import load_model


def test_what_the_bundled_network_proves_no_attack_breaks(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    images, labels = digits[0][:30], digits[1][:30]
    model = load_model("mnist-certified")
    found = certified_radius(model, images, labels, ball=WassersteinBall(0.1))
    for pixels, least in ((100, 24), (200, 15)):
        proved = found.proved(pixels / 784)
        assert int(proved.sum()) >= least
        assert not bool((attack(model, images, labels, radius=pixels / 784, method="ascent").success & proved).any())
