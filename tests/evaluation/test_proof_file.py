from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from massmover import attack
from massmover.evaluation.proof import Claim, Moves
from massmover.evaluation.proof_file import COLUMNS, checked_proofs, proof_arrays, proofs_in
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import load_model
from massmover.types import MassmoverError

PAGE = Path(__file__).parents[2] / "docs/proof-format.md"
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def arrays(digits: tuple[torch.Tensor, torch.Tensor]) -> Arrays:
    """Six examples; the third has no proof, and one that nothing moved in has an empty one."""
    images, labels = digits[0][:6], digits[1][:6]
    found = attack(load_model("mnist-standard"), images, labels, radius=0.05, method="ascent")
    moves: list[Moves | None] = [proving_moves(found.plan, images, row) for row in range(5)]
    moves[2] = None
    moves.append(Moves(np.zeros(0, int), np.zeros((0, 2), int), np.zeros(0, int), unit=36))
    shown = found.images.numpy().copy()
    shown[5] = images[5]
    pictures = {"original": images.numpy(), "adversarial": shown, "radius": np.full(6, 0.05)}
    return pictures | proof_arrays(moves, Claim(0.05))


def saved(arrays: Arrays, path: Path) -> Arrays:
    """The arrays after a way through a file without pickle."""
    np.savez_compressed(path, allow_pickle=False, **arrays)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def test_what_is_written_is_read(arrays: Arrays, tmp_path: Path) -> None:
    back = proofs_in(saved(arrays, tmp_path / "examples.npz"))
    direct = proofs_in(arrays)
    assert back is not None
    assert direct is not None
    assert back.claim == direct.claim == Claim(0.0)
    assert len(back) == 6
    assert back.moves[2] is None
    for one, other in zip(back.moves, direct.moves, strict=True):
        if one is not None and other is not None:
            assert all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))
            assert one.unit == other.unit
    assert sum(0 if one is None else len(one.mass) for one in back.moves) == len(arrays["proof_mass"]) > 100


def test_every_example_is_checked(arrays: Arrays, tmp_path: Path) -> None:
    verdicts = checked_proofs(saved(arrays, tmp_path / "examples.npz"))
    assert [verdict and verdict.status for verdict in verdicts] == ["proved", "proved", None, *["proved"] * 3]
    swapped = arrays | {"adversarial": arrays["adversarial"][[1, 0, 2, 3, 4, 5]]}
    assert [verdict and verdict.proved for verdict in checked_proofs(swapped)] == [False, False, None, *[True] * 3]
    less = checked_proofs(arrays | {"radius": np.array(0.01)})
    assert [verdict.status for verdict in less if verdict] == ["refuted"] * 4 + ["proved"]


@pytest.mark.parametrize(
    "claim", [Claim(0.1, window=None, ground="manhattan"), Claim(0.1, power=0.5, normalisation="channel", window=3)]
)
def test_the_claim_is_kept(claim: Claim, tmp_path: Path) -> None:
    back = proofs_in(saved(proof_arrays([], claim), tmp_path / "none.npz"))
    assert back is not None
    assert len(back) == 0
    assert (back.claim.window, back.claim.ground, back.claim.power) == (claim.window, claim.ground, claim.power)
    assert back.claim.normalisation == claim.normalisation


def test_a_file_without_proofs_is_read(arrays: Arrays) -> None:
    earlier = {name: values for name, values in arrays.items() if name not in COLUMNS}
    assert proofs_in(earlier) is None
    assert checked_proofs(earlier) == [None] * 6


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        ({"proof_version": np.int64(2)}, "version 2"),
        ({"proof_version": np.array([1.5])}, "version"),
        ({"proof_start": np.array([0, 1, 2])}, "proof_start"),
        ({"proof_start": np.zeros(7)}, "proof_start"),
        ({"proof_unit": np.full(6, 7, np.int16)}, "proof_unit"),
        ({"proof_mass": np.zeros(3, np.int64)}, "proof_start"),
        ({"proof_window": np.int64(4)}, "window"),
        ({"proof_ground": np.str_("taxi")}, "ground"),
    ],
)
def test_damaged_proofs_are_refused(damage: dict[str, Any], word: str, arrays: Arrays) -> None:
    with pytest.raises(MassmoverError, match=word):
        proofs_in(arrays | damage)
    start = arrays["proof_start"].copy()
    start[1], start[2] = start[2], start[1] + 1
    with pytest.raises(MassmoverError, match="rise"):
        proofs_in(arrays | {"proof_start": np.maximum(start, [0, 99999, 0, 0, 0, 0, 0])})
    with pytest.raises(MassmoverError, match="proof_mass missing"):
        proofs_in({name: values for name, values in arrays.items() if name != "proof_mass"})


def the_ten_lines() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(next(block for block in blocks if "np.load" in block))


def run_alone(folder: Path) -> subprocess.CompletedProcess[str]:
    """The page's lines in a Python that has nothing of this package."""
    alone = "import sys\nsys.modules['massmover'] = sys.modules['torch'] = None\n" + the_ten_lines()
    command = [sys.executable, "-I", "-c", alone]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_ten_lines_of_the_page_check_a_file_with_numpy_alone(arrays: Arrays, tmp_path: Path) -> None:
    code = the_ten_lines()
    assert "massmover" not in code
    statements = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    assert len([node for node in statements if not isinstance(node, ast.Import)]) == 10  # however they are broken up
    proved = {name: arrays[name].copy() for name in arrays}
    proved["adversarial"][2] = proved["original"][2]  # the example without a proof: nothing moved
    saved(proved, tmp_path / "examples.npz")
    done = run_alone(tmp_path)
    assert done.returncode == 0, done.stderr
    for name, value in (("adversarial", 1e-6), ("proof_mass", -(2**50)), ("proof_step", 3), ("radius", -0.04)):
        wrong = {key: values.copy() for key, values in proved.items()}
        wrong[name].flat[len(wrong[name].flat) // 2] += value
        saved(wrong, tmp_path / "examples.npz")
        done = run_alone(tmp_path)
        assert done.returncode == 1, name
        assert "AssertionError" in done.stderr or "invalid entry" in done.stderr
