"""Checks of what the caller gave, with errors that say what was given, what is needed and what to do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import overload

import torch
from torch import Tensor

from massmover.types import Images, Labels, MassmoverError, PerImage

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64, *HALVES)
ROUND_OFF = 1e-6  # how far outside [0, 1] a pixel may be by arithmetic alone


def check_images(images: Tensor) -> Images:
    """Return the images, detached, once they are a float batch with pixels in [0, 1].

    A pixel outside by no more than round-off (1e-6) is clamped in a new tensor; the caller's
    tensor is never written to.  An empty batch is allowed, an image without pixels is not. Half-precision images come
    back as float32, which holds them exactly: half precision cannot hold an image whose mass is to be kept.
    """
    if not isinstance(images, Tensor):
        raise MassmoverError(
            f"Images must be a torch tensor; got {type(images).__name__}. Convert arrays with torch.from_numpy."
        )
    check_image_shape(images)
    if images.dtype == torch.uint8:
        raise MassmoverError("Images must be floats in [0, 1]; got uint8. Use images.float() / 255.")
    if images.dtype not in FLOATS:
        raise MassmoverError(f"Images must be float32 or float64; got {images.dtype}. Use images.float().")
    if images.layout != torch.strided:
        raise MassmoverError(f"Images must be a dense tensor; got layout {images.layout}. Use images.to_dense().")
    detached = images.detach()
    detached = detached.float() if images.dtype in HALVES else detached
    if len(images) == 0:
        return detached
    low, high = (bound.item() for bound in detached.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        broken = torch.nonzero(~torch.isfinite(detached).flatten(1).all(dim=1)).flatten().tolist()
        raise MassmoverError(
            f"Images must be finite; {len(broken)} of {len(images)} hold NaN or infinity, "
            f"the first is number {broken[0]}."
        )
    if low < -ROUND_OFF or high > 1 + ROUND_OFF:
        raise MassmoverError(
            f"Pixels must lie in [0, 1]; got values from {low:g} to {high:g}. {likely_cause(low=low, high=high)}"
        )
    return detached.clamp(0, 1) if low < 0 or high > 1 else detached


def check_image_shape(images: Tensor) -> None:
    """Raise unless the tensor is (B, C, H, W) with at least one channel, row and column."""
    shape = tuple(images.shape)
    advice = {
        2: "For one grey image use images[None, None].",
        3: "For one image (C, H, W) use images[None]; for grey images (B, H, W) use images[:, None].",
    }
    if images.ndim != 4:
        raise MassmoverError(
            f"Images must have four axes (B, C, H, W); got shape {shape}. {advice.get(images.ndim, '')}".rstrip()
        )
    if 0 in shape[1:]:
        raise MassmoverError(
            f"Images must have at least one channel, row and column; got shape {shape}. Only B may be zero."
        )


def likely_cause(*, low: float, high: float) -> str:
    """Say what most often puts pixels into the range from low to high."""
    if low < -ROUND_OFF:
        return "This looks normalised: give the images in [0, 1] and pass mean and std to the model loader instead."
    if 2 < high <= 255:
        return "This looks like 0-255: divide by 255."
    return "Rescale the images to [0, 1]; clamp them if they overshoot by an interpolation."


def check_labels(labels: Tensor, *, batch: int, classes: int | None = None) -> Labels:
    """Return the labels, as int64 on their own device, once there is one valid class number for each image."""
    if not isinstance(labels, Tensor):
        raise MassmoverError(
            f"Labels must be a torch tensor of integers; got {type(labels).__name__}. Use torch.as_tensor(labels)."
        )
    if labels.dtype not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        raise MassmoverError(
            f"Labels must be integers; got {labels.dtype}. Use labels.long() if they are class numbers."
        )
    if labels.shape != (batch,):
        advice = "For one-hot labels use labels.argmax(dim=1)." if labels.ndim == 2 else ""
        raise MassmoverError(
            f"Labels must have shape ({batch},), one for each image; got {tuple(labels.shape)}. {advice}".rstrip()
        )
    labels = labels.detach().long()
    if batch == 0:
        return labels
    low, high = (int(bound) for bound in labels.aminmax())
    if low < 0:
        raise MassmoverError(f"Labels must be class numbers from 0; the smallest is {low}.")
    if classes is not None and high >= classes:
        raise MassmoverError(
            f"Labels must be below {classes}, the number of classes of the model; the largest is {high}. "
            "Count classes from 0, and check that model and data belong together."
        )
    return labels


@overload
def check_radius(radius: float, *, batch: int | None = None) -> float: ...
@overload
def check_radius(radius: PerImage, *, batch: int | None = None) -> PerImage: ...
def check_radius(radius: float | PerImage, *, batch: int | None = None) -> float | PerImage:
    """Return the radius once it is a finite number of pixels >= 0, or one such number for each image."""
    if isinstance(radius, bool) or not isinstance(radius, (numbers.Real, Tensor)):
        raise MassmoverError(f"The radius must be a number or a tensor of shape (B,); got {type(radius).__name__}.")
    if not isinstance(radius, Tensor):
        if not (math.isfinite(radius) and radius >= 0):
            raise MassmoverError(f"The radius must be finite and >= 0; got {radius}.")
        return float(radius)
    if radius.dtype == torch.bool or radius.is_complex():
        raise MassmoverError(f"The radius must hold real numbers; got {radius.dtype}.")
    if radius.ndim > 1 or (radius.ndim == 1 and batch is not None and len(radius) != batch):
        needed = "(B,)" if batch is None else f"({batch},)"
        raise MassmoverError(
            f"A radius for each image must have shape {needed}; got {tuple(radius.shape)}. "
            "Use a plain number for one radius for all."
        )
    radius = radius.detach()
    wrong = radius[~(torch.isfinite(radius) & (radius >= 0))]
    if wrong.numel():
        raise MassmoverError(
            f"Every radius must be finite and >= 0; {wrong.numel()} are not, such as {wrong[0].item()}."
        )
    return radius if radius.is_floating_point() else radius.float()


def check_coherence(scatter: float | None, width: float | None) -> tuple[float | None, int | None]:
    """Return scatter and width once they say how far mass may stray from a smooth field; infinity becomes None."""
    for name, value in (("scatter", scatter), ("width", width)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value)):
            raise MassmoverError(f"{name} is {value!r}: it must be a number, or None")
    if scatter is not None and scatter < 0:
        raise MassmoverError(f"scatter is {scatter}: it must be 0 pixels or more, or None to let mass scatter")
    if width is not None and not (width == math.inf or (width >= 1 and float(width).is_integer())):
        raise MassmoverError(f"width is {width}: it must be a whole number of pixels, or None for one vector")
    if width is not None and scatter is None:
        raise MassmoverError(f"width is {width} and scatter is None: say how far mass may stray with scatter=0.05")
    free = scatter is None or scatter == math.inf
    return None if free else float(scatter or 0.0), None if free or width in (None, math.inf) else int(width or 1)


def check_mask(mask: Tensor, images: Images) -> Images:
    """Return a mask as booleans of the images' shape, once it says of every pixel whether its mass may move."""
    if not isinstance(mask, Tensor):
        raise MassmoverError(
            f"The mask must be a torch tensor, True where mass may move; got {type(mask).__name__}. "
            "Use torch.as_tensor(mask)."
        )
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise MassmoverError(
            "The mask must hold True where mass may move and False where a pixel is frozen (or 1 and 0); it holds "
            f"other numbers, from {mask.min().item():g} to {mask.max().item():g}. Use mask > 0.5."
        )
    try:
        if mask.ndim not in (2, 3, 4):
            raise RuntimeError
        return mask.detach().bool().to(images.device).expand(images.shape)
    except RuntimeError:
        rows = tuple(images.shape[-2:])
        raise MassmoverError(
            f"The mask has shape {tuple(mask.shape)} and the images {tuple(images.shape)}: give {rows} for all images, "
            f"or one an image, ({len(images)}, 1, {rows[0]}, {rows[1]})."
        ) from None


def check_low_pass(deviation: object) -> None:
    """Raise unless a filter's standard deviation is a number of pixels, or 0 for none."""
    if isinstance(deviation, bool) or not isinstance(deviation, (int, float)) or not 0 <= deviation < math.inf:
        raise MassmoverError(f"low_pass is {deviation!r}: give 0 pixels or more, such as 1.0")


def check_settings(value: object, *, whole: Mapping[str, int], positive: Sequence[str] = ()) -> None:
    """Raise unless some fields of a value are whole numbers from a least one on, and others positive numbers."""
    kind = type(value).__name__
    for name, least in whole.items():
        given = getattr(value, name)
        if isinstance(given, bool) or not isinstance(given, int) or given < least:
            raise MassmoverError(f"{kind}({name}={given!r}): {name} must be a whole number, {least} or more")
    for name in positive:
        given = getattr(value, name)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
            raise MassmoverError(f"{kind}({name}={given!r}): {name} must be a positive number")
