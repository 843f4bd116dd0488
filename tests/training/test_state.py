from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from bars import bars
from torch import nn

from massmover.models import lenet
from massmover.training import Adversary, Recipe, train
from massmover.training.batches import Scores
from massmover.training.state import CHECKPOINT, HISTORY, Epoch, Run, kept_epoch
from massmover.types import MassmoverError

RECIPE = Recipe(
    epochs=4, batch_size=16, averaging=0.9, held_out=0.2, clean_share=0.3, adversary=Adversary(steps=2, radius=0.5)
)


class InterruptedHereError(Exception):
    """Stands for a killed process."""


def dropping() -> nn.Module:
    """A network that draws random numbers while it trains."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(784, 2))


@pytest.mark.parametrize("architecture", [lenet, dropping])
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_an_interrupted_run_ends_with_the_same_weights(
    tmp_path: Path, architecture: type[nn.Module], steps: int
) -> None:
    def interrupt(_epoch: int, step: int, _steps: int, _loss: float) -> None:
        if step == steps:
            raise InterruptedHereError

    whole = train(architecture, *bars(40), recipe=RECIPE)
    with pytest.raises(InterruptedHereError):
        train(architecture, *bars(40), recipe=RECIPE, folder=tmp_path, progress=interrupt)
    resumed = train(architecture, *bars(40), recipe=RECIPE, folder=tmp_path)
    assert resumed.losses == whole.losses
    kept, wanted = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(kept[name], wanted[name]) for name in wanted)


def test_the_history_has_a_line_an_epoch(tmp_path: Path) -> None:
    trained = train(lenet, *bars(40), recipe=RECIPE, folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / HISTORY).read_text().splitlines()]
    assert lines == [dataclasses.asdict(line) for line in trained.history]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["radius"] == 0.5
    assert {path.name for path in tmp_path.iterdir()} == {CHECKPOINT, HISTORY}


def test_a_loss_that_is_no_number_leaves_the_last_checkpoint_intact(tmp_path: Path) -> None:
    kept: list[bytes] = []
    poisoned: list[nn.Module] = []

    def architecture() -> nn.Module:
        poisoned.append(lenet())
        return poisoned[0]

    def poison(epoch: int, step: int, _steps: int, _loss: float) -> None:
        if epoch == 1 and step == 3:
            kept.append((tmp_path / CHECKPOINT).read_bytes())
            with torch.no_grad():
                poisoned[0].get_parameter("7.bias").fill_(torch.nan)

    with pytest.raises(MassmoverError, match=r"NaN .* step 4 of 8 \(epoch 2\); the checkpoint of epoch 1 is intact"):
        train(architecture, *bars(40), recipe=RECIPE, folder=tmp_path, progress=poison)
    assert (tmp_path / CHECKPOINT).read_bytes() == kept[0]
    assert len(train(lenet, *bars(40), recipe=RECIPE, folder=tmp_path).history) == 4


def test_other_settings_are_refused_with_the_difference(tmp_path: Path) -> None:
    train(lenet, *bars(40), recipe=dataclasses.replace(RECIPE, epochs=1), folder=tmp_path)
    with pytest.raises(MassmoverError, match="epochs: was 1, is 4"):
        train(lenet, *bars(40), recipe=RECIPE, folder=tmp_path)
    with pytest.raises(MassmoverError, match="seed: was 0, is 5"):
        train(lenet, *bars(40), recipe=dataclasses.replace(RECIPE, epochs=1), seed=5, folder=tmp_path)


def test_a_broken_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"nonsense")
    with pytest.raises(MassmoverError, match="cannot be read"):
        train(lenet, *bars(40), recipe=RECIPE, folder=tmp_path)


def lines(*scores: float, attacked: int) -> list[Epoch]:
    return [
        Epoch(number, 0.1, 0.01, 1.0, 1.0, clean=0.9, robust={"1": score - 0.1, "2": score + 0.1}, attacked=attacked)
        for number, score in enumerate(scores, start=1)
    ]


@pytest.mark.parametrize(
    ("scores", "attacked", "kept"),
    [
        ((0.5, 0.6, 0.585), 500, 3),  # a standard error is 0.022
        ((0.5, 0.6, 0.57), 500, 2),
        ((0.5, 0.6, 0.3, 0.31), 500, 2),  # collapsed, and came back a little
        ((0.6, 0.585, 0.57), 500, 2),  # compared with the best, not with the last one kept
        ((0.5, 0.6, 0.6), 0, 3),  # proved: no chance, the latest of equals
        ((0.5, 0.6, 0.599), 0, 2),
        ((1.0, 1.0, 0.999), 500, 2),  # nothing in doubt
    ],
)
def test_the_latest_epoch_is_kept_that_is_as_good_as_the_best(
    scores: tuple[float, ...], attacked: int, kept: int
) -> None:
    assert kept_epoch(lines(*scores, attacked=attacked)).epoch == kept


def test_the_weights_of_the_kept_epoch_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter(lines(0.5, 0.6, 0.59, 0.3, attacked=500))
    weights: list[torch.Tensor] = []

    def scripted(run: Run, *_: object, **__: object) -> Scores:
        weights.append(run.average.state["7.bias"].clone())
        line = next(told)
        return Scores(line.clean, line.robust, line.attacked)

    monkeypatch.setattr("massmover.training.loop.scores", scripted)
    trained = train(lenet, *bars(40), recipe=RECIPE)
    assert kept_epoch(trained.history).epoch == 3 and trained.history[2].attacked == 500
    assert torch.equal(trained.model.get_parameter("7.bias"), weights[2])
    assert not torch.equal(weights[1], weights[2]) and not torch.equal(weights[2], weights[3])
