"""The command line in processes of its own, on a model and images so small that the attack takes milliseconds."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

TINY_MODEL = '''
import time
import torch
from torch import nn

PAUSE = 0.0

def build():
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(36, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(3, 36, generator=generator))
        layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), layer)

def slow():
    model = build()
    def forward(images):
        time.sleep(0.004)
        return model(images)
    return forward

def cheating():
    """An attack that leaves the ball and says it won."""
    from dataclasses import replace
    from massmover.evaluation import batch
    honest = batch.attack
    def dishonest(model, images, labels, **rest):
        result = honest(model, images, labels, **rest)
        far = torch.flip(images, dims=(2, 3))
        with torch.no_grad():
            return replace(result, images=far, success=model(far).argmax(1) != labels)
    batch.attack = dishonest
    return build()

def softmax():
    model = build()
    return lambda images: model(images).softmax(1)

def two_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 2))

def broken():
    raise RuntimeError("no such checkpoint")
'''


def workshop(folder: Path, *, count: int = 12, seed: int = 0) -> Path:
    """A folder with a tiny model and images whose labels are what the model answers, but for one mistake."""
    import torch

    (folder / "tiny.py").write_text(TINY_MODEL)
    random = np.random.default_rng(seed)
    images = (random.integers(0, 256, (count, 1, 6, 6)) * (random.random((count, 1, 6, 6)) < 0.6)).astype(np.uint8)
    weight = torch.randn(3, 36, generator=torch.Generator().manual_seed(0)).numpy()
    labels = (images.reshape(count, 36) / 255 @ weight.T).argmax(1)
    labels[0] = (labels[0] + 1) % 3
    np.savez(folder / "images.npz", images=images, labels=labels, classes=3)
    return folder


def environment() -> dict[str, str]:
    """One thread each, so that two ranks and one process add up numbers in the same order."""
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**clean, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "massmover", *words]


NURSERY = """
import json, os, signal, sys, time
import massmover.cli
import massmover.__main__
import massmover.evaluation.run, massmover.report, massmover.training, massmover.natural  # commands import these late
import ot  # the judge imports it when it is first asked

def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0

for order in map(json.loads, sys.stdin):
    before = size(order["watched"]) if order["watched"] else 0
    child = os.fork()
    if child == 0:
        os.chdir(order["cwd"])
        for stream, name in ((0, os.devnull), (1, order["stdout"]), (2, order["stderr"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = ["massmover", *order["words"]]
        try:
            massmover.__main__.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        else:
            code = 0
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if order["kill_after"] is not None:
        while order["watched"] and size(order["watched"]) <= before:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(0.001)
        time.sleep(order["kill_after"])
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Nursery:
    """Runs command lines in processes of their own that are born with the imports done, seconds earlier than others."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
        )

    def run(
        self, words: Sequence[str], *, cwd: Path, kill_after: float | None = None, watched: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder) / name for name in ("stdout", "stderr")]
            order = {"words": words, "cwd": str(cwd), "stdout": str(outputs[0]), "stderr": str(outputs[1])}
            order["watched"] = "" if watched is None else str(watched)
            self.process.stdin.write(json.dumps({**order, "kill_after": kill_after}) + "\n")
            self.process.stdin.flush()
            code = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(list(words), code, *(path.read_text() for path in outputs))


@lru_cache(maxsize=1)
def nursery() -> Nursery:
    found = Nursery()
    atexit.register(found.process.kill)
    return found


def massmover(
    *words: str, cwd: Path, kill_after: float | None = None, watched: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own, to its end or until it is killed.

    `kill_after` counts seconds from the start, or from when a `watched` file first grew.
    """
    return nursery().run(words, cwd=cwd, kill_after=kill_after, watched=watched)


def fresh(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same from a standing start, as a user types it."""
    return subprocess.run(command(*words), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300)


def evaluation(out: str, *more: str, model: str = "tiny:build") -> list[str]:
    """The words of an evaluation of the tiny model."""
    radii = [] if any(word.startswith(("--radius", "--smallest")) for word in more) else ["--radius", "0.1,0.4"]
    words = [
        "evaluate",
        "--out",
        out,
        "--model",
        model,
        "--data",
        "images.npz",
        "--attack",
        "ascent",
        "--batch-size",
        "2",
    ]
    return [*words, *radii, *more]


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary without the time it took."""
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert found.pop("seconds_per_image") > 0
    return found


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The records without the time they took."""
    found = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line in found:
        assert line.pop("seconds") > 0 or line["attack_success"] is None  # carried without another attack
    return found
