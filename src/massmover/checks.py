"""Checks of what the caller gave, with errors that say what was given, what is needed and what to do.

Also the two ways every attack touches a classifier: `inference_mode_of`, which leaves the
model as it was found, and `logits_of`, which refuses an answer that cannot be one.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from typing import overload

import torch
from torch import Tensor, nn

from massmover.types import Classifier, Images, Labels, Logits, MassmoverError, PerImage

ROUND_OFF = 1e-6  # how far outside [0, 1] a pixel may be by arithmetic alone


def check_images(images: Tensor) -> Images:
    """Return the images, detached, once they are a float batch with pixels in [0, 1].

    A pixel outside by no more than round-off (1e-6) is clamped in a new tensor; the caller's
    tensor is never written to.  An empty batch is allowed, an image without pixels is not.
    """
    if not isinstance(images, Tensor):
        raise MassmoverError(
            f"Images must be a torch tensor; got {type(images).__name__}. Convert arrays with torch.from_numpy."
        )
    check_image_shape(images)
    if images.dtype == torch.uint8:
        raise MassmoverError("Images must be floats in [0, 1]; got uint8. Use images.float() / 255.")
    if images.dtype not in (torch.float32, torch.float64):
        raise MassmoverError(f"Images must be float32 or float64; got {images.dtype}. Use images.float().")
    detached = images.detach()
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


@contextmanager
def inference_mode_of(model: Classifier) -> Iterator[None]:
    """Put a model into eval mode with frozen parameters, and give it back as it was.

    Every submodule gets its own training flag back and every parameter its own
    `requires_grad`, also after an exception; `.grad` is never touched.  Gradients with
    respect to the images still flow.  A callable that is no `nn.Module` is left alone.
    """
    if not isinstance(model, nn.Module):
        yield
        return
    training = [(module, module.training) for module in model.modules()]
    differentiable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        # Flags, not model.eval(): a model may override train() with side effects that cannot be undone.
        for module, _ in training:
            module.training = False
        for parameter, _ in differentiable:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, flag in differentiable:
            parameter.requires_grad_(flag)


def logits_of(model: Classifier, images: Images) -> Logits:
    """Return the model's scores for the images, once they are finite and one row for each image.

    An answer with a `.logits` attribute, as some libraries give, is opened.
    """
    answer: object = model(images)
    logits = getattr(answer, "logits", answer)
    if not isinstance(logits, Tensor):
        raise MassmoverError(
            f"The model must return a tensor of shape (B, classes), or an object with .logits; "
            f"got {type(logits).__name__}. Wrap the model in a function that returns its logits."
        )
    if logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 1:
        raise MassmoverError(
            f"The model must return shape ({len(images)}, classes) for {len(images)} images; "
            f"got {tuple(logits.shape)}. Flatten or pool any axes left over inside the model."
        )
    if not logits.is_floating_point():
        raise MassmoverError(
            f"The model must return scores before the decision, in floating point; got {logits.dtype}. "
            "Return the logits, not the predicted classes."
        )
    finite = torch.isfinite(logits.detach()).all(dim=1)
    if not bool(finite.all()):
        first = int(torch.nonzero(~finite)[0])
        raise MassmoverError(
            f"The model returned NaN or infinity for {int((~finite).sum())} of {len(images)} images, "
            f"the first is number {first}. Check its weights and its normalisation."
        )
    return logits


def first_logits_of(model: Classifier, images: Images) -> Logits:
    """Return the model's scores for its first images, or say how the two do not fit together.

    Only for the first call: what a model raises on images it was not made for is torch's own
    error, which names neither; a later error is the model's own and passes unchanged.
    """
    try:
        return logits_of(model, images)
    except MassmoverError:
        raise
    except Exception as problem:  # whatever the model raises
        raise MassmoverError(misfit(model, images, problem)) from problem


def misfit(model: Classifier, images: Images, problem: Exception) -> str:
    """Say which images a model could not take, what its weights are, and what to change."""
    sizes = ", ".join(str(side) for side in images.shape[1:])
    given = f"The model cannot take images of shape (B, {sizes}), {images.dtype} on {images.device}"
    reason = f"{type(problem).__name__}: {cause(problem)}"
    advice = "Give images of the size the model was made for, or wrap the model in a function that converts them."
    weights = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    floating = {name: weight for name, weight in weights.items() if weight.is_floating_point()}
    if not floating:
        return f"{given} ({reason}). {advice}"
    # The filters of the first convolution say how many channels the model takes; other models show their first weights.
    name, weight = next((pair for pair in floating.items() if pair[1].ndim == 4), next(iter(floating.items())))
    if weight.dtype != images.dtype:
        advice = f"Convert the images with images.to({weight.dtype}), or the model with model.to({images.dtype})."
    elif weight.device != images.device:
        advice = f"Move the images with images.to({str(weight.device)!r}), or the model to {str(images.device)!r}."
    elif weight.ndim == 4 and weight.shape[1] != images.shape[1]:
        advice = (
            f"Give images with {weight.shape[1]} channel{'' if weight.shape[1] == 1 else 's'}, not {images.shape[1]}."
        )
    return (
        f"{given}: its weights {name} are {tuple(weight.shape)}, {weight.dtype} on {weight.device} ({reason}). {advice}"
    )


def cause(problem: Exception) -> str:
    """Return the line of an error that says what went wrong; TorchScript puts its traceback first."""
    lines = [line for line in str(problem).splitlines() if line.strip()] or ["no reason given"]
    return lines[-1 if lines[0].startswith("The following operation failed in the TorchScript") else 0].strip()
