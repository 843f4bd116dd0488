"""The small networks the package knows by name: two for digits, three for 32x32 colour images.

Inputs are images in [0, 1]; where a network wants other units, wrap it in `Normalised`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from massmover.types import Images, Logits


def lenet() -> nn.Sequential:
    """Return the digit network of the published checkpoints: 28x28 grey images, 10 classes, 166,406 parameters.

    A plain `Sequential` on purpose: the checkpoints name their tensors by position
    (`0.weight`, `2.weight`, `5.weight`, `7.weight` and the biases).
    """
    return nn.Sequential(
        PixelConvolution(1, 16, 4, stride=2, padding=1),  # (B, 16, 14, 14)
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),  # (B, 32, 7, 7)
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def mlp() -> nn.Sequential:
    """Return the digit network that stands most movement for its cost: 28x28 grey images, 731,526 parameters.

    Every unit of its first layer sees the whole digit, so it can be as smooth as transport asks it to be; a convolution
    of 4x4 pixels cannot.
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 700),
        nn.ReLU(),
        nn.Linear(700, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def resnet8(*, classes: int = 10) -> nn.Module:
    """Return a residual network for 32x32 colour images that is cheap to train on a processor, 0.3M parameters.

    The stem halves the resolution, then come three blocks of widths 32-64-128: a quarter of the cost of `resnet20`.
    """
    return ResidualNetwork(
        widths=(32, 64, 128), blocks=(1, 1, 1), classes=classes, learned_shortcut=True, halving_stem=True
    )


def resnet20(*, classes: int = 10) -> nn.Module:
    """Return the 20-layer residual network for 32x32 colour images, widths 16-32-64, about 0.27M parameters.

    The shortcuts are He et al.'s option A (2016, section 4.2): where the width doubles the
    identity is subsampled and padded with zero channels, so that no shortcut has weights.
    """
    return ResidualNetwork(widths=(16, 32, 64), blocks=(3, 3, 3), classes=classes, learned_shortcut=False)


def resnet18(*, classes: int = 10) -> nn.Module:
    """Return ResNet-18 with a 3x3 stem for 32x32 colour images, widths 64-512, about 11.2M parameters.

    The stem keeps the full resolution (no 7x7 convolution, no pooling), as is usual for
    CIFAR; the shortcuts are 1x1 convolutions (option B) where the shape changes.
    """
    return ResidualNetwork(widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), classes=classes, learned_shortcut=True)


class PixelConvolution(nn.Conv2d):
    """A convolution that is the first to see an image, with a gradient by the image that is quick on a processor.

    Ordinary training never asks for that gradient, so libraries do not hurry; an attack asks at every step. Pixels that
    lie alike between the strides see the same weights, so one small convolution gives the gradients of them all, side
    by side, and only their order is left to mend.
    """

    def forward(self, images: Images) -> Tensor:
        """The convolution; only its gradient by the images goes another way, and only where a processor counts."""
        asked = images.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        # Products of half-precision matrices have crashed on processors with instructions for them.
        plain = images.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
        if asked and plain and images.device.type == "cpu":
            how = (self.weight, self.bias, self.stride, self.padding)
            features: Tensor = _PhasedGradient.apply(images, *how)  # type: ignore[no-untyped-call]
            return features
        return super().forward(images)


class _PhasedGradient(torch.autograd.Function):
    """conv2d without dilation or groups, whose gradient by the images is a convolution for all phases of the stride."""

    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor, stride: Any, padding: Any) -> Tensor:
        return nn.functional.conv2d(images, weight, bias, stride, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        images, weight, _, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(images, weight)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        (slope,) = slopes  # (B, features, h, w)
        by_images = by_weight = by_bias = None
        if ctx.needs_input_grad[0]:
            by_images = phased(slope, weight, size=images.shape[2:], stride=ctx.stride, padding=ctx.padding)
        if ctx.needs_input_grad[1]:
            by_weight = conv2d_weight(images, weight.shape, slope, ctx.stride, ctx.padding)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[2]:
            by_bias = slope.sum(dim=(0, 2, 3))
        return by_images, by_weight, by_bias, None, None


def phased(slope: Tensor, weight: Tensor, *, size: Sequence[int], stride: Sequence[int], padding: Any) -> Tensor:
    """The gradient (B, C, *size) of a convolution by its images, given that by its features (B, F, h, w).

    Along an axis, with a stride of s, a pixel s q + a of the padded image has the gradient
    sum_t slope[q - t] w[s t + a]: for each phase a, a convolution of the slope with every s-th weight. Phases are
    channels until they are put in place.
    """
    down, across = stride
    rows, columns = (math.ceil(taps / step) for taps, step in zip(weight.shape[2:], stride, strict=True))
    padded = nn.functional.pad(weight, (0, columns * across - weight.shape[3], 0, rows * down - weight.shape[2]))
    phases = padded.view(*weight.shape[:2], rows, down, columns, across)
    phases = phases.flip(2, 4).permute(1, 3, 5, 0, 2, 4).flatten(0, 2)  # (C down across, F, rows, columns)
    found = nn.functional.conv2d(slope, phases, padding=(rows - 1, columns - 1))  # (B, C down across, h, w)
    found = found.reshape(len(slope), -1, down, across, *found.shape[2:])
    whole = found.permute(0, 1, 4, 2, 5, 3).flatten(4).flatten(2, 3)  # (B, C, padded rows, padded columns)
    above, aside = padding
    missing = [
        max(0, before + length - have) for before, length, have in zip(padding, size, whole.shape[2:], strict=True)
    ]
    whole = nn.functional.pad(whole, (0, missing[1], 0, missing[0]))  # pixels that no stride reached
    return whole[..., above : above + size[0], aside : aside + size[1]]


class ZeroPadShortcut(nn.Module):
    """Halve the resolution and fill the new channels with zeros: a shortcut without weights."""

    def __init__(self, *, extra_channels: int) -> None:
        """Say how many channels to add."""
        super().__init__()
        self.extra_channels = extra_channels

    def forward(self, features: Tensor) -> Tensor:
        """Keep every second row and column, and put half of the new channels on either side."""
        before = self.extra_channels // 2
        after = self.extra_channels - before
        return nn.functional.pad(features[:, :, ::2, ::2], (0, 0, 0, 0, before, after))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, learned_shortcut: bool) -> None:
        """Build the convolutions, and the shortcut the change of shape asks for."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module
        if stride == 1 and inputs == outputs:
            self.shortcut = nn.Identity()
        elif learned_shortcut:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        else:
            self.shortcut = ZeroPadShortcut(extra_channels=outputs - inputs)

    def forward(self, features: Tensor) -> Tensor:
        """Add what the convolutions find to what came in."""
        residual = torch.relu(self.norm1(self.conv1(features)))
        residual = self.norm2(self.conv2(residual))
        return torch.relu(residual + self.shortcut(features))


class ResidualNetwork(nn.Module):
    """A stem, stages of residual blocks that halve the resolution, the mean over pixels, one linear layer.

    The stem is 3x3, or 4x4 where it is to halve the resolution too.
    """

    def __init__(
        self,
        *,
        widths: Sequence[int],
        blocks: Sequence[int],
        classes: int,
        learned_shortcut: bool,
        halving_stem: bool = False,
        channels: int = 3,
    ) -> None:
        """Build one stage for each width, with as many blocks as given."""
        super().__init__()
        size, stride = (4, 2) if halving_stem else (3, 1)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], size, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
        )
        stages: list[nn.Module] = []
        inputs = widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            strides = [1 if stage == 0 else 2] + [1] * (count - 1)
            layers = []
            for stride in strides:
                layers.append(ResidualBlock(inputs, width, stride=stride, learned_shortcut=learned_shortcut))
                inputs = width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster on a processor

    def forward(self, images: Images) -> Logits:
        """Return one score per class."""
        pixels = images.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.stages(self.stem(pixels))  # (B, width, h, w)
        logits: Logits = self.classifier(features.mean(dim=(2, 3)))
        return logits


ARCHITECTURES: Mapping[str, Callable[[], nn.Module]] = {
    "lenet": lenet,
    "mlp": mlp,
    "resnet8": resnet8,
    "resnet20": resnet20,
    "resnet18": resnet18,
}
