"""ART's own entry point, `attack.generate(x, y)`, on a real model inside ART's classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from victim import RADIUS, Victim, victim, violations

import massmover
from massmover import WassersteinBall
from massmover.types import MassmoverError


@pytest.fixture(scope="module")
def digits() -> Victim:
    return victim()


@pytest.fixture(scope="module")
def adapter() -> Any:
    return pytest.importorskip("massmover.adapters.art", exc_type=ImportError)


def classifier(model: nn.Module, **settings: Any) -> Any:
    from art.estimators.classification import PyTorchClassifier

    return PyTorchClassifier(
        **{
            "model": model,
            "loss": nn.CrossEntropyLoss(),
            "input_shape": (1, 28, 28),
            "nb_classes": 10,
            "clip_values": (0, 1),
            "device_type": "cpu",
            **settings,
        }
    )


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("labels", ["numbers", "column", "one-hot", "absent"])
def test_generate(adapter: Any, digits: Victim, labels: str) -> None:
    numbers = digits.labels.numpy()
    y = {"numbers": numbers, "column": numbers[:, None], "one-hot": np.eye(10)[numbers], "absent": None}[labels]
    estimator = classifier(digits.model)
    attack = adapter.WassersteinAttack(estimator, ball=WassersteinBall(RADIUS), method="ascent")
    x = digits.images.numpy()
    found = attack.generate(x=x, y=y)
    assert found.dtype == np.float32
    assert violations(digits, torch.from_numpy(found)) == 0
    own = massmover.attack(digits.model, digits.images, digits.labels, radius=RADIUS, method="ascent")
    torch.testing.assert_close(torch.from_numpy(found), own.images)
    fooled = estimator.predict(found).argmax(axis=1) != numbers
    assert fooled.tolist() == own.success.tolist()
    assert fooled.any()


def test_a_targeted_attack_in_batches(adapter: Any, digits: Victim) -> None:
    targets = (digits.labels + 1) % 10
    attack = adapter.WassersteinAttack(
        classifier(digits.model), ball=WassersteinBall(0.5), method="ascent", targeted=True, batch_size=4
    )
    found = torch.from_numpy(attack.generate(digits.images.numpy(), targets.numpy()))
    assert violations(digits, found, radius=0.5) == 0
    assert (digits.answers(found) == targets).sum() >= 3
    with pytest.raises(MassmoverError, match="targeted attack needs y"):
        attack.generate(digits.images.numpy())


def test_the_classifiers_preprocessing_is_part_of_it(adapter: Any, digits: Victim) -> None:
    seen = []

    class Stretched(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images.detach() * 0.5 + 0.1)
            logits: torch.Tensor = digits.model(images * 0.5 + 0.1)
            return logits

    estimator = classifier(Stretched(), preprocessing=(0.1, 0.5))
    attack = adapter.WassersteinAttack(estimator, ball=WassersteinBall(RADIUS), method="ascent")
    seen.clear()
    found = attack.generate(digits.images.numpy(), digits.labels.numpy())
    torch.testing.assert_close(seen[0], digits.images[:1])  # the network got the digit as it is
    assert violations(digits, torch.from_numpy(found)) == 0
    assert (estimator.predict(found).argmax(axis=1) != digits.labels.numpy()).any()


def test_settings_are_changed_the_toolbox_way(adapter: Any, digits: Victim) -> None:
    attack = adapter.WassersteinAttack(classifier(digits.model), ball=WassersteinBall(RADIUS), method="ascent")
    attack.set_params(ball=WassersteinBall(0.0))
    assert "radius=0.0" in repr(attack)
    found = attack.generate(digits.images.numpy(), digits.labels.numpy())
    assert np.array_equal(found, digits.images.numpy())


def test_the_model_is_attacked_in_eval_mode_and_left_as_it_was(adapter: Any) -> None:
    fresh = victim(2)
    attack = adapter.WassersteinAttack(classifier(fresh.model), ball=WassersteinBall(RADIUS), method="ascent")
    fresh.model.train()
    modes = set()
    fresh.model.register_forward_hook(lambda module, *_: modes.add(module.training))
    attack.generate(fresh.images.numpy(), fresh.labels.numpy())
    assert modes == {False}
    assert all(module.training for module in fresh.model.modules())
    assert all(weight.requires_grad and weight.grad is None for weight in fresh.model.parameters())


def test_a_classifier_that_does_not_fit_is_refused(adapter: Any, digits: Victim) -> None:
    from art.defences.preprocessor import SpatialSmoothing

    with pytest.raises(MassmoverError, match=r"clip_values=\(0, 1\)"):
        adapter.WassersteinAttack(classifier(digits.model, clip_values=(0, 255)))
    with pytest.raises(MassmoverError, match="channels_first=True"):
        adapter.WassersteinAttack(classifier(digits.model, channels_first=False))
    smoothing = SpatialSmoothing(channels_first=True)
    with pytest.raises(MassmoverError, match="not written in PyTorch"):
        adapter.WassersteinAttack(classifier(digits.model, preprocessing_defences=[smoothing]))
    with pytest.raises(MassmoverError, match="batch_size is 0"):
        adapter.WassersteinAttack(classifier(digits.model), batch_size=0)
