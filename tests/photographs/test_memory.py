"""A photograph fits: what one costs in memory, and what happens to a batch that is too large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from finished import settings_of
from massmover.attacks import attack
from massmover.data import ImageSet
from massmover.evaluation import subject as subjects
from massmover.evaluation.batch import evaluate_batch
from massmover.evaluation.settings import Settings
from massmover.evaluation.store import Record, in_order
from massmover.evaluation.subject import Subject, fitting_batch_size
from massmover.memory import free_memory
from massmover.types import MassmoverError

MOST_MEGABYTES = 500  # more than the process took before; half of what the largest use of one photograph may be

# Each in a process of its own: a process keeps no second peak. VmHWM, because getrusage starts from the parent's peak.
HEAD = """
import json, re, resource, torch
from pathlib import Path
from torch import nn
import massmover

torch.set_num_threads(1)
torch.manual_seed(0)

def megabytes(field):
    return int(re.search(field + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) / 1024

network = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
    nn.Flatten(), nn.Linear(512, 10),
).eval()
"""
ONE = """
image = torch.rand(1, 3, 224, 224)
label = network(image).argmax(dim=1)
before = megabytes("VmHWM")
result = massmover.attack(network, image, label, radius=1e-3, method="ascent")
print(json.dumps({"more": megabytes("VmHWM") - before, "fooled": bool(result.success), "proven": bool(result.trusted),
                  "cost": float(result.cost), "moved": float((result.images - image).abs().sum())}))
"""
LIMITED = """
from massmover.data import ImageSet
from massmover.evaluation.batch import evaluate_batch
from massmover.evaluation.settings import Settings
from massmover.evaluation.subject import Subject
import numba, ot, scipy.sparse

images = torch.rand(24, 3, 224, 224)
wrong = (network(images).argmax(dim=1) + 1) % 10  # mistakes from the start: proven and judged, but no search
settings = Settings(**json.loads(SETTINGS))
subject = Subject(network, ImageSet("noise", images, wrong, 10), start=0, device=torch.device("cpu"))
evaluate_batch(subject, settings, range(1))  # compiles
room = int(600 * 2**20 + megabytes("VmSize") * 2**20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
try:
    massmover.attack(network, images, wrong, radius=0.001, method="ascent")
    whole = "fits"
except (MemoryError, RuntimeError) as error:
    whole = type(error).__name__
records, _ = evaluate_batch(subject, settings, range(24))
print(json.dumps({"whole": whole, "records": len(records), "mistakes": sum(r.clean_mistake for r in records)}))
"""

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured with /proc, as on Linux")


def answer_of(program: str) -> dict[str, Any]:
    """What a program that runs on its own prints as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def noise_settings(count: int, *, radii: tuple[float, ...] = (0.001,)) -> Settings:
    return settings_of(count=count, radii=radii, model="noise", data="noise", save_examples=0)


def subject_of(*shape: int) -> Subject:
    torch.manual_seed(0)
    images = torch.rand(*shape)
    network = nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 3)).eval()
    labels = network(images).argmax(dim=1)
    return Subject(network, ImageSet("noise", images, labels, 3), start=0, device=torch.device("cpu"))


@linux
def test_one_photograph_is_attacked_and_proven_in_little_memory() -> None:
    found = answer_of(ONE)
    assert found["fooled"] and found["proven"]
    assert 0 < found["cost"] <= 1e-3 * (1 + 1e-9)
    assert found["moved"] > 0
    assert found["more"] < MOST_MEGABYTES, found


@linux
@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_split() -> None:
    settings = json.dumps(vars(noise_settings(24)))
    found = answer_of(f"SETTINGS = {settings!r}" + LIMITED)
    assert found["whole"] != "fits"  # or the test shows nothing
    assert found["records"] == found["mistakes"] == 24


def refuse_more_than(most: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the attack run out of memory on larger batches; returns the sizes it was asked for."""
    asked: list[int] = []

    def limited(model: Any, images: Any, *others: Any, **options: Any) -> Any:
        asked.append(len(images))
        if len(images) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
        return attack(model, images, *others, **options)

    monkeypatch.setattr("massmover.evaluation.batch.attack", limited)
    return asked


def test_halves_give_the_records_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, settings = subject_of(7, 1, 6, 6), noise_settings(7, radii=(0.02, 0.1))
    whole, pictures = evaluate_batch(subject, settings, range(7))
    asked = refuse_more_than(2, monkeypatch)
    parts, same = evaluate_batch(subject, settings, range(7))
    assert max(asked) == 7 and min(asked) <= 2

    def outcomes(found: list[Record]) -> list[tuple[Any, ...]]:
        return [(one.index, one.radius, one.success, one.prediction_after, one.trusted) for one in in_order(found)]

    assert outcomes(whole) == outcomes(parts)
    assert len(pictures) == len(same) > 0


def test_an_image_too_large_for_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_more_than(0, monkeypatch)
    with pytest.raises(MassmoverError, match=r"image 0 alone does not fit memory .*--window"):
        evaluate_batch(subject_of(3, 1, 6, 6), noise_settings(3), range(3))


def test_other_errors_are_not_mistaken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr("massmover.evaluation.batch.attack", broken)
    with pytest.raises(RuntimeError, match="something else"):
        evaluate_batch(subject_of(3, 1, 6, 6), noise_settings(3), range(3))


def test_a_container_has_no_more_memory_than_it_is_given(tmp_path: Path) -> None:
    machine = free_memory(tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert free_memory(tmp_path) == 2_000_000 < machine
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) > 2_000_000


def test_batches_of_photographs_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "free_memory", lambda: 64 << 30)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sizes = [
        fitting_batch_size(subject_of(1, *shape), noise_settings(1), processes=1)
        for shape in ((1, 28, 28), (3, 32, 32), (3, 224, 224))
    ]
    assert sizes == [100, 100, 2]
    monkeypatch.setattr(subjects, "free_memory", lambda: 1 << 20)
    assert fitting_batch_size(subject_of(1, 3, 224, 224), noise_settings(1), processes=1) == 1
