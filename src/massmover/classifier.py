"""How this package touches a classifier: it borrows it, asks it for scores, and averages one that answers by chance."""

from __future__ import annotations

import hashlib
import math
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from massmover.types import Classifier, Images, Logits, MassmoverError


class Loan(NamedTuple):
    """A model while it is borrowed: what it was like, and by how many it is borrowed just now."""

    training: list[tuple[nn.Module, bool]]
    differentiable: list[tuple[nn.Parameter, bool]]
    borrowers: int


_loans: WeakKeyDictionary[nn.Module, Loan] = WeakKeyDictionary()
_counter = threading.Lock()  # of `_loans`
_generators = threading.RLock()  # those of the process, while they are seeded for a draw

# What torch says where weights and images are of different number types.
OTHER_TYPE = re.compile(r"same dtype|scalar type|Input type .* should be the same")

DECIDING = 10  # times as many draws decide as make a gradient


@contextmanager
def borrowed(model: Classifier) -> Iterator[None]:
    """Put a model into eval mode with frozen parameters, and give it back as it was.

    Every submodule gets its own training flag back and every parameter its own
    `requires_grad`, also after an exception; `.grad` is never touched.  Gradients with
    respect to the images still flow.  A callable that is no `nn.Module` is left alone.
    Threads may borrow one model at the same time: the first takes note of what it was like,
    and the last gives it back.

    A `Drawn` model keeps its modes, for these say what is random in it; only layers with running statistics are put
    into eval mode, since they would change with every call.
    """
    lent = model.model if isinstance(model, Drawn) else model
    if not isinstance(lent, nn.Module):
        yield
        return
    _lend(lent, keep_modes=isinstance(model, Drawn))
    try:
        yield
    finally:
        _give_back(lent)


def _lend(model: nn.Module, *, keep_modes: bool) -> None:
    """Freeze a model for one more borrower."""
    with _counter:
        loan = _loans.get(model)
        if loan is not None:
            _loans[model] = loan._replace(borrowers=loan.borrowers + 1)
            return
        training = [(module, module.training) for module in model.modules()]
        differentiable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        _loans[model] = Loan(training, differentiable, borrowers=1)
        # Flags, not model.eval(): a model may override train() with side effects that cannot be undone.
        for module, _ in training:
            module.training = module.training and keep_modes and not hasattr(module, "running_mean")
        for parameter, _ in differentiable:
            parameter.requires_grad_(False)


def _give_back(model: nn.Module) -> None:
    """Make a model what it was once its last borrower is done."""
    with _counter:
        loan = _loans[model]
        if loan.borrowers > 1:
            _loans[model] = loan._replace(borrowers=loan.borrowers - 1)
            return
        del _loans[model]
        for module, flag in loan.training:
            module.training = flag
        for parameter, flag in loan.differentiable:
            parameter.requires_grad_(flag)


def logits_of(model: Classifier, images: Images) -> Logits:
    """Return the model's scores for the images, once they are finite and one row for each image.

    An answer with a `.logits` attribute, as some libraries give, is opened.
    """
    logits = scores_of(model, images)
    check_finite(logits)
    return logits


def scores_of(model: Classifier, images: Images) -> Logits:
    """`logits_of` without a look at the numbers, which would wait for the device.

    The model keeps its own dtype: images are converted to it, and half-precision scores to float32. It is given a copy,
    so that a model that writes into its input writes into that.
    """
    answer: object = model(images.to(dtype_of(model, images), copy=True))
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
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def check_finite(logits: Logits) -> None:
    """Raise where a score is not a number."""
    finite = torch.isfinite(logits.detach()).all(dim=1)
    if not bool(finite.all()):
        first = int(torch.nonzero(~finite)[0])
        raise MassmoverError(
            f"The model returned NaN or infinity for {int((~finite).sum())} of {len(logits)} images, "
            f"the first is number {first}. Check its weights and its normalisation."
        )


def dtype_of(model: Classifier, images: Images) -> torch.dtype:
    """What a model computes in: the images' dtype if one of its weights has it, else that of its first weights."""
    if not isinstance(model, nn.Module):
        return images.dtype
    first = None
    for weight in model.parameters():
        if weight.dtype == images.dtype:
            return images.dtype
        if first is None and weight.is_floating_point():
            first = weight.dtype
    return first or images.dtype


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
    if OTHER_TYPE.search(str(problem)):
        advice = (
            "It computes in another number type: let it convert its images, as lambda images: model(images.half())."
        )
    weights = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    floating = {name: weight for name, weight in weights.items() if weight.is_floating_point()}
    if not floating:
        return f"{given} ({reason}). {advice}"
    # The filters of the first convolution say how many channels the model takes; other models show their first weights.
    name, weight = next((pair for pair in floating.items() if pair[1].ndim == 4), next(iter(floating.items())))
    if weight.device != images.device:
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


class Drawn(nn.Module):
    """A classifier that answers by chance, made one that does not: its answer is the mean over several draws.

        softmax(scores) = mean over the draws of softmax(model(images))

    So the decision is the class with the largest mean probability, the first of those that tie. Where a gradient is
    asked for, the mean is taken over `draws` draws, and the gradient is that of the mean; where only the answer is,
    over ten times as many. A single draw is taken at its word: then one decides, too. A model without randomness keeps
    its scores to the last bit.

    The generators of torch, NumPy and Python follow from the seed during a call and are then given back as they were.
    Every call sees draws of its own, so that a search cannot learn them; a `judge` decides by the same ones each time,
    which no search has seen.
    """

    model: Classifier

    def __init__(self, model: Classifier, *, draws: int, seed: int, judge: bool = False) -> None:
        """Wrap a module or a function, once the number of draws is one."""
        super().__init__()
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
            raise MassmoverError(f"draws is {draws!r}: give a whole number, 1 or more, or leave it out")
        self.model, self.draws, self.seed, self.judge = model, draws, seed, judge
        self.calls = 0

    def forward(self, images: Images) -> Logits:
        """The scores whose softmax is the mean of the draws'."""
        draws = self.draws if images.requires_grad else deciding(self.draws)
        words = f"judge {self.seed}" if self.judge else f"search {self.seed} {self.calls}"
        self.calls += 1
        digest = hashlib.sha256(words.encode()).digest()
        with seeded(int.from_bytes(digest[:8], "little") >> 1, images.device):
            drawn = torch.stack([scores_of(self.model, images) for _ in range(draws)])  # (draws, B, classes)
        return mean_scores(drawn)


def deciding(draws: int) -> int:
    """How many draws decide where so many make a gradient."""
    return 1 if draws == 1 else DECIDING * draws


def lead(draws: int) -> float:
    """The log odds by which a class must lead in the mean over some draws before chance cannot well explain it.

    Two standard errors. A probability varies most if it is 0 or 1, as for a coin; then a lead of m in mean probability
    has a standard error of at most 1 / sqrt(draws), and log odds are 2 artanh(m). Up to four draws never suffice; a
    single one has nothing to compare with, and none is asked of it.
    """
    if draws == 1:
        return 0.0
    return 2 * math.atanh(2 / math.sqrt(draws)) if draws > 4 else math.inf


def mean_scores(drawn: torch.Tensor) -> Logits:
    """Scores whose softmax is the mean of the softmax of several, from (draws, B, classes).

    They are the first draw's plus the logarithm of mean over first probability, so that equal draws give themselves.
    """
    if len(drawn) == 1:
        return drawn[0]
    ratios = drawn.log_softmax(dim=2)
    ratios = ratios - ratios[0]
    largest = ratios.detach().amax(dim=0)  # keeps exp from overflowing
    return drawn[0] + largest + (ratios - largest).exp().mean(dim=0).log()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let what is drawn from the generators of torch, NumPy and Python follow from a seed, and give them back."""
    on_card = device.type == "cuda"
    with _generators, torch.random.fork_rng(devices=[device] if on_card else []):
        before = random.getstate(), np.random.get_state()
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.default_generator.manual_seed(seed)
            if on_card:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
