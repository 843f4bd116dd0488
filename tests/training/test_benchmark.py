"""The benchmark of an epoch knows every recipe that has no proof to train for."""

from __future__ import annotations

import pytest
from benchmarks import training

from massmover.training import RECIPES


def test_the_benchmark_walks_every_recipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.set_num_threads", lambda _count: None)  # other tests have theirs
    training.main(count=4, epochs=2, rounds=1)
    said = capsys.readouterr().out
    names = [name for name, recipe in RECIPES.items() if recipe.margin is None]
    assert "taught" in names
    assert all(f"{architecture}, epoch of {name}: " in said for architecture in ("lenet", "mlp") for name in names)
