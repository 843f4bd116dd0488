from __future__ import annotations

from pathlib import Path

import torch
from commandline import massmover

from massmover.models import load_model


def test_a_wrapped_checkpoint_is_evaluated_and_said_aloud(tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in load_model("mnist-standard").state_dict().items()}
    torch.save({"state_dict": [state], "err": 0.01}, tmp_path / "digits.pth")
    words = ("evaluate", "--model", "lenet", "--weights", "digits.pth", "--count", "2", "--attack", "ascent")
    done = massmover(*words, "--radius-pixels", "5", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    note = "digits.pth: took ['state_dict'][0] and dropped 'module.' before every name"
    assert [line for line in done.stderr.splitlines() if "digits.pth" in line] == [f"massmover: {note}"]
