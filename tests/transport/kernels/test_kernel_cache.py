"""A kernel gives the same bits whether it was just compiled or came from Numba's cache, and never an old one's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import massmover

pytest.importorskip("numba")

SCRIPT = """
import hashlib, torch
from massmover import WassersteinBall
from massmover.transport.potential import Pull, move_mass
from massmover.transport.repair import settled
from massmover.transport.sinkhorn import ConstrainedSinkhorn

torch.set_num_threads(1)
random = torch.Generator().manual_seed(0)
images = torch.rand(4, 1, 12, 11, generator=random) * (torch.rand(4, 1, 12, 11, generator=random) < 0.5)
digest = hashlib.sha256()
for radius in (0.01, 0.2):
    balls = WassersteinBall(radius).around(images, backend="numba")
    price = None
    for scale in (1.0, 30.0, 300.0):
        potential = scale * torch.rand(images.shape, generator=random)
        move = move_mass(Pull(potential, price, floor=3.0, booked=balls.budget), balls)
        price = move.price
        for found in move:
            digest.update(found.numpy().tobytes())
    proof = settled(Pull(potential, price, floor=3.0, booked=2 * balls.budget).moves(balls), balls)
    for found in (proof.plan.flows, proof.images, proof.sweeps, *proof.certificate):
        digest.update(found.numpy().tobytes())
    projected = ConstrainedSinkhorn(1e-3).project(
        images.double() + torch.rand(images.shape, generator=random),
        WassersteinBall(radius).around(images.double(), backend="numba"),
    )
    digest.update(projected.images.numpy().tobytes())
print(digest.hexdigest())
"""


def test_a_cold_and_a_warm_cache_give_the_same_bits(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    cold, warm = (
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300, check=True
        ).stdout
        for _ in range(2)
    )
    assert len(cold) == 65 and cold == warm


CROWDED = """
import torch
from massmover import WassersteinBall
from massmover.transport.potential import Pull, move_mass

random = torch.Generator().manual_seed(0)
images = (torch.rand(2, 1, 8, 7, generator=random) < 0.6).float()
potential = 30 * torch.rand(images.shape, generator=random)
print(float(move_mass(Pull(potential), WassersteinBall(0.5).around(images, backend="numba")).images.sum()))
"""


def test_an_edited_constant_is_not_hidden_by_the_cache(tmp_path: Path) -> None:
    """With a warm cache, a kernel whose constant was changed must be compiled anew: without sweeps mass is cut off."""
    package = Path(massmover.__file__).parent
    shutil.copytree(package, tmp_path / "massmover", ignore=shutil.ignore_patterns("__pycache__", "*.nb?", "bundled"))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    def mass() -> float:
        command = [sys.executable, "-c", CROWDED]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
        return float(done.stdout)

    before = mass()
    kernels = tmp_path / "massmover" / "transport" / "kernels" / "plan.py"
    text = kernels.read_text()
    assert "SEND_BACK_SWEEPS = 8" in text
    kernels.write_text(text.replace("SEND_BACK_SWEEPS = 8", "SEND_BACK_SWEEPS = 0"))
    assert mass() < before - 0.1
