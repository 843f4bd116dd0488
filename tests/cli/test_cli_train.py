from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import command, environment, massmover

from massmover import WassersteinBall, certified_radius
from massmover.cli.train import chosen_parts
from massmover.models import CertifiedNetwork, lenet, load_model
from massmover.models.weights import load_weights
from massmover.training import RECIPES, TEACHERS, Recipe, Teachers
from massmover.types import MassmoverError

WORDS = ["--data", "bars.npz", "--count", "331", "--epochs", "3", "--attack-steps", "2", "--radius-pixels", "200"]


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """A folder with images that show one bright row or column."""
    random = np.random.default_rng(0)
    images = random.integers(0, 60, (400, 1, 28, 28)).astype(np.uint8)
    labels = np.arange(400) % 2
    images[labels == 0, :, 12:16, :] = 250
    images[labels == 1, :, :, 12:16] = 250
    np.savez(tmp_path / "bars.npz", images=images, labels=labels, classes=2)
    return tmp_path


def history(folder: Path) -> list[dict[str, object]]:
    """The history without the time it took."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_a_killed_run_goes_on_to_the_same_weights(workshop: Path) -> None:
    whole = massmover("train", "--out", "whole", "--recipe", "tiny", *WORDS, cwd=workshop)
    assert whole.returncode == 2 and "--recipe is 'tiny': use one of standard, paper, robust, " in whole.stderr
    words = ["--recipe", "robust", *WORDS]
    whole = massmover("train", "--out", "whole", *words, cwd=workshop)
    assert whole.returncode == 0, whole.stderr
    assert "test images" in whole.stdout and "epoch 3/3 loss" in whole.stderr
    victim = subprocess.Popen(command("train", "--out", "killed", *words), cwd=workshop, env=environment())
    while not (workshop / "killed" / "history.jsonl").exists():
        assert victim.poll() is None
        time.sleep(0.01)
    victim.kill()
    victim.wait()
    refused = massmover("train", "--out", "killed", *words, cwd=workshop)
    assert refused.returncode == 2 and "add --resume" in refused.stderr
    resumed = massmover("train", "--out", "killed", "--resume", *words, cwd=workshop)
    assert resumed.returncode == 0, resumed.stderr
    assert history(workshop / "killed") == history(workshop / "whole")
    files = [(workshop / name / "lenet.safetensors").read_bytes() for name in ("killed", "whole")]
    assert files[0] == files[1]
    load_weights(lenet(), workshop / "whole" / "lenet.safetensors")
    assert {path.name for path in (workshop / "whole").iterdir()} == {
        *("checkpoint.pt", "curve.png", "history.jsonl", "lenet.safetensors", "report.html")
    }
    assert "How lenet was trained" in (workshop / "whole" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("recipe", ["robust", "taught"])
def test_two_processes_have_the_loss_curve_of_one(workshop: Path, recipe: str) -> None:
    words = ["--recipe", recipe, *WORDS]
    one = massmover("train", "--out", "one", *words, cwd=workshop)
    assert one.returncode == 0, one.stderr
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = subprocess.run(
        [*torchrun, "-m", "massmover", "train", "--out", "two", *words],
        cwd=workshop,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("test images") == (4 if recipe == "taught" else 1)
    losses = [[line["loss"] for line in history(workshop / name)] for name in ("one", "two")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_options_without_an_adversary_are_refused(workshop: Path) -> None:
    done = massmover("train", "--out", "run", "--recipe", "standard", *WORDS, cwd=workshop)
    assert done.returncode == 2 and "--recipe standard has no adversary to change" in done.stderr
    assert not (workshop / "run").exists()


def test_the_recipe_certified_leaves_a_network_that_certifies(workshop: Path) -> None:
    words = ["--recipe", "certified", "--data", "bars.npz", "--epochs", "20"]
    done = massmover("train", "--out", "proof", *words, cwd=workshop)
    assert done.returncode == 0, done.stderr
    assert "potentials.safetensors: 100.00 % of" in " ".join(done.stdout.split())
    model = load_model("potentials", weights=workshop / "proof" / "potentials.safetensors")
    with np.load(workshop / "bars.npz") as kept:
        images, labels = torch.from_numpy(kept["images"][:20]).float() / 255, torch.from_numpy(kept["labels"][:20])
    found = certified_radius(model, images, labels, ball=WassersteinBall(0.1))
    assert bool((found.radius > 0).all())


def test_the_recipe_taught_trains_teachers_and_then_their_pupil(workshop: Path) -> None:
    words = ["--recipe", "taught", "--data", "bars.npz", "--epochs", "3", "--attack-steps", "1", "--model", "mlp"]
    done = massmover("train", "--out", "school", *words, cwd=workshop)
    assert done.returncode == 0, done.stderr
    folder, said = workshop / "school", " ".join(done.stdout.split())
    order = ("near/potentials", "far/potentials", "free/mlp", "school/mlp")
    places = [said.index(f"{name}.safetensors: ") for name in order]
    assert places == sorted(places)
    assert all(f"network {number} of 4: " in done.stderr for number in range(1, 5)) and ": the pupil" in done.stderr
    settings = [torch.load(folder / part / "checkpoint.pt")["recipe"] for part in ("near", "far", "free", "")]
    assert [each["taught"] for each in settings] == [0, 0, 0, RECIPES["taught"].taught]
    assert settings[2]["adversary"] == dataclasses.asdict(TEACHERS["free"])["adversary"]  # options are the pupil's
    assert settings[3]["adversary"]["steps"] == 1 and {each["epochs"] for each in settings} == {3}
    certified = [load_model("potentials", weights=folder / part / "potentials.safetensors") for part in ("near", "far")]
    assert all(isinstance(part, CertifiedNetwork) and len(part.mass_in) for part in certified)
    free = load_model("mlp", weights=folder / "free" / "mlp.safetensors")
    with np.load(workshop / "bars.npz") as kept:
        images = torch.from_numpy(kept["images"][:16]).float() / 255  # every tenth is a test image: others were first
    asked = torch.cat([images[:9], images[10:]])
    told = torch.load(folder / "checkpoint.pt")["teacher"][: len(asked)]
    assert torch.allclose(Teachers([*certified, free])(asked).detach(), told, rtol=1e-4, atol=1e-4)
    refused = massmover("train", "--out", "school", *words, cwd=workshop)
    assert refused.returncode == 2 and "add --resume" in refused.stderr
    before = (folder / "mlp.safetensors").read_bytes()
    (folder / "checkpoint.pt").unlink()
    again = massmover("train", "--out", "school", "--resume", *words, cwd=workshop)  # the pupil alone is left to train
    assert again.returncode == 0, again.stderr
    assert (folder / "mlp.safetensors").read_bytes() == before


def test_images_that_were_trained_on_are_no_test_images(workshop: Path) -> None:
    """A file has no test images of its own, so every tenth is held out; too few are called what they are."""
    done = massmover("train", "--out", "run", "--data", "bars.npz", "--epochs", "1", cwd=workshop)
    assert done.returncode == 0, done.stderr
    assert "% of 40 test images, every tenth of bars and not trained on" in done.stdout
    everything = np.load(workshop / "bars.npz")
    np.savez(workshop / "few.npz", images=everything["images"][:6], labels=everything["labels"][:6], classes=2)
    done = massmover("train", "--out", "few", "--data", "few.npz", "--epochs", "1", cwd=workshop)
    assert done.returncode == 0, done.stderr
    assert "of the 6 training images, for few has too few to hold any out" in done.stdout


def test_a_resume_without_a_checkpoint_is_refused(workshop: Path) -> None:
    (workshop / "empty").mkdir()
    for out, reason in (("nowhere", "is no folder of a run"), ("empty", "holds no checkpoint")):
        done = massmover("train", "--out", out, "--resume", "--data", "bars.npz", cwd=workshop)
        assert done.returncode == 2 and f"--resume: --out {out} {reason}" in done.stderr
    assert not (workshop / "nowhere").exists()


def chosen(name: str, *, epochs: int | None, weighing: Mapping[str, Any], adversary: Mapping[str, Any]) -> Recipe:
    return chosen_parts(name, epochs=epochs, weighing=weighing, adversary=adversary)[""]


@pytest.mark.parametrize("kind", ["frank-wolfe", "sinkhorn", "wong"])
def test_another_adversary_does_not_remember(kind: str) -> None:
    changed = chosen("robust", epochs=None, weighing={}, adversary={"attack": kind, "remember": None})
    assert changed.adversary is not None and not changed.adversary.remember and changed.adversary.attack == kind
    with pytest.raises(MassmoverError, match="no potentials to remember"):
        chosen("robust", epochs=None, weighing={}, adversary={"attack": kind, "remember": True})


def test_the_robust_adversary_can_be_told_to_forget() -> None:
    plain = chosen("robust", epochs=None, weighing={}, adversary={"remember": None})
    forgetful = chosen("robust", epochs=None, weighing={}, adversary={"remember": False, "steps": 5})
    assert plain.adversary is not None and plain.adversary.remember
    assert forgetful.adversary is not None and not forgetful.adversary.remember


def test_the_loss_can_be_told_to_forgive(workshop: Path) -> None:
    weighing = {"clean_share": 0.75, "forgiving": 0.7}
    told = chosen("robust", epochs=3, weighing=weighing, adversary={})
    assert (told.clean_share, told.forgiving, told.epochs) == (0.75, 0.7, 3)
    untold = chosen("robust", epochs=None, weighing={"clean_share": None, "forgiving": None}, adversary={})
    assert untold == RECIPES["robust"]
    with pytest.raises(MassmoverError, match="no adversary to change"):
        chosen("standard", epochs=None, weighing={"forgiving": 0.7}, adversary={})
    done = massmover(
        "train", "--out", "run", "--recipe", "robust", "--forgiving", "2", "--data", "bars.npz", cwd=workshop
    )
    assert done.returncode == 2 and "forgiving is an exponent in [0, 1]; got 2" in done.stderr
