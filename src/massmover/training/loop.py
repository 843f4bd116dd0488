"""Train a classifier, with or without an adversary, in one visible loop.

The caller's tensors are not changed and nothing is printed. With a `folder` the run leaves a checkpoint and a history
there after every epoch; pass `progress` to hear how far it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from massmover.compiling import working_seconds
from massmover.ranks import Ranks
from massmover.training.adversary import Memory, Mover
from massmover.training.batches import (
    as_floats,
    check_training_data,
    checksum_of,
    mass_tells,
    random_mirror,
    random_shift,
    scores,
)
from massmover.training.lesson import Lesson, check_teacher, forgiven, loss_of, told_by
from massmover.training.margins import Margins, margin_loss, potential_network
from massmover.training.recipe import Recipe
from massmover.training.state import Epoch, Run
from massmover.types import Classifier, Labels, MassmoverError

PROBED = 16  # images that a teacher answers to: a run goes on with the same one or not at all


def one_cycle(share: float, *, peak: float, warm_up: float) -> float:
    """Return the learning rate after a share of the run: a cosine up from peak/25, then one down to almost nothing."""
    low_start, low_end = peak / 25, peak / 10_000
    if share < warm_up:
        return low_start + (peak - low_start) * (1 - math.cos(math.pi * share / warm_up)) / 2
    return low_end + (peak - low_end) * (1 + math.cos(math.pi * (share - warm_up) / (1 - warm_up))) / 2


Progress: TypeAlias = Callable[[int, int, int, float], None]  # (epoch, step, steps, loss); steps of the whole run


class Trained(NamedTuple):
    """A trained model in eval mode, and how it came about."""

    model: nn.Module
    recipe: Recipe
    seed: int
    history: tuple[Epoch, ...]

    @property
    def losses(self) -> tuple[float, ...]:
        """Mean training loss of each epoch."""
        return tuple(line.loss for line in self.history)

    @property
    def seconds(self) -> float:
        """How long it took, all parts of a resumed run together."""
        return sum(line.seconds for line in self.history)


def train(
    architecture: Callable[[], nn.Module],
    images: Tensor,  # (N, C, H, W), uint8, or floats in [0, 1]
    labels: Labels,  # (N,)
    *,
    recipe: Recipe | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    teacher: Classifier | None = None,
    folder: Path | None = None,
    ranks: Ranks | None = None,
    progress: Progress | None = None,
    ended: Callable[[Epoch], None] | None = None,
) -> Trained:
    """Train a fresh network on labelled images, or go on where a run in the folder stopped.

    The seed decides the initial weights, the order, the shifts and the radii. On a CPU the same seed gives the same
    weights bit for bit, for one version of PyTorch and one number of threads, whether or not the run was interrupted
    between. The global random state is left as it was. A recipe that is taught needs a teacher; it is asked, and learns
    nothing. With several ranks each takes a part of every batch; the draws are those of one process, so the losses are
    too, to float accuracy.
    """
    recipe, ranks, device = recipe or Recipe(), ranks or Ranks(), torch.device(device)
    labels = check_training_data(images, labels)
    check_teacher(recipe, teacher)
    count = len(images) - int(recipe.held_out * len(images))
    steps = recipe.epochs * math.ceil(count / recipe.batch_size)
    reach = torch.ones(count)  # by which each image's radius is multiplied
    if recipe.farther > 1:
        reach[mass_tells(images[:count].cpu(), labels[:count].cpu())] = recipe.farther
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        remember = count if recipe.adversary is not None and recipe.adversary.remember else 0
        mover = Mover(recipe.adversary, remember=remember)
        run = Run.start(architecture, recipe, mover, seed=seed, data=checksum_of(images, labels), device=device)
        if teacher is not None:
            run.teacher = told_by(teacher, as_floats(images[:PROBED].to(device))).cpu()
        if folder is not None:
            run.resume(folder)
        potentials = None if recipe.margin is None else potential_network(run.model)
        learner = run.model if potentials is None else Margins(potentials)
        network = DistributedDataParallel(learner) if ranks.size > 1 else learner
        step = len(run.history) * (steps // recipe.epochs)
        for epoch in range(len(run.history), recipe.epochs):
            started, total = working_seconds(), 0.0
            for chosen in torch.split(torch.randperm(count, generator=run.draws), recipe.batch_size):
                # schedule
                share, step = step / steps, step + 1
                place = f"at step {step} of {steps} (epoch {epoch + 1})"
                rate = one_cycle(share, peak=recipe.peak_rate, warm_up=recipe.warm_up)
                for group in run.optimiser.param_groups:
                    group["lr"] = rate
                if recipe.margin is not None and potentials is not None:
                    potentials.softness = recipe.margin.softness(share)
                # batch: drawn whole on every rank, then each takes its part
                batch = random_shift(images[chosen.to(images.device)], largest=recipe.shift, draws=run.draws)
                batch, mirrored = random_mirror(batch, draws=run.draws) if recipe.mirror else (batch, None)
                mine = slice(ranks.rank, None, ranks.size)
                clean = as_floats(batch[mine].to(device))
                truth = labels[chosen.to(labels.device)][mine].to(device)
                # attack
                moved = None
                if recipe.adversary is not None:
                    radii = recipe.adversary.radii(len(chosen), share=share, draws=run.draws)
                    radii = (radii * reach[chosen])[mine].to(device)
                    with explained(place, epoch=epoch):
                        moved = mover(
                            run.model,
                            clean,
                            truth,
                            radii=radii,
                            numbers=chosen[mine] if remember else None,
                            mirrored=None if mirrored is None else mirrored[mine],
                        )
                    moved.requires_grad_(bool(remember))
                # learn
                if recipe.margin is None:
                    told = None if teacher is None or moved is None else told_by(teacher, moved.detach())
                    loss = loss_of(recipe, network, Lesson(clean, moved, truth, told), share=share)
                else:
                    wanted = recipe.margin.radii(len(chosen), draws=run.draws) * reach[chosen]
                    won = network(clean, truth)
                    surprise = margin_loss(won, radii=wanted[mine].to(device), temperature=recipe.margin.temperature)
                    loss = forgiven(surprise, exponent=recipe.exponent(share))
                loss = loss * (ranks.size / len(chosen))
                run.optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)  # typed, unlike loss.backward()
                value = _mean_over(ranks, loss.detach())
                if not math.isfinite(value):
                    with explained(place, epoch=epoch):
                        raise MassmoverError(f"The training loss became {value}: lower peak_rate, {recipe.peak_rate}.")
                run.optimiser.step()
                if moved is not None and moved.grad is not None and len(moved):  # a rank may have no image of a batch
                    mover.go_on(moved.grad)
                if mover.memory is not None and ranks.size > 1:
                    _share(mover.memory, chosen, mine)
                if potentials is not None:
                    potentials.project_()
                run.average.update(run.model)
                total += value * len(chosen)
                if progress is not None:
                    progress(epoch, step, steps, value)
            # judge and keep
            radius = 0.0 if recipe.margin is None else recipe.margin.radius
            radius = radius if recipe.adversary is None else recipe.adversary.upper_end(step / steps)
            held_out = scores(run, images[count:], labels[count:], device=device)
            line = Epoch(epoch + 1, total / count, rate, radius, working_seconds() - started, *held_out)
            run.end_epoch(line)
            if folder is not None and ranks.first:
                run.save(folder)
            ranks.wait()
            if ended is not None:
                ended(line)
    run.model.load_state_dict(run.best)
    return Trained(run.model.eval(), recipe, seed, tuple(run.history))


def _share(memory: Memory, chosen: Tensor, mine: slice) -> None:
    """Tell the other ranks what this one found for its part of a batch: next time another may have these images."""
    for field in memory:
        found = torch.zeros_like(field[chosen], dtype=torch.float32)
        found[mine] = field[chosen[mine]].float()
        dist.all_reduce(found, op=dist.ReduceOp.SUM)
        field[chosen] = found.to(field)


def _mean_over(ranks: Ranks, loss: Tensor) -> float:
    """The loss of the whole batch."""
    if ranks.size > 1:
        dist.all_reduce(loss, op=dist.ReduceOp.SUM)
        loss = loss / ranks.size
    return float(loss)


@contextmanager
def explained(place: str, *, epoch: int) -> Iterator[None]:
    """Say where a run stopped, and that what it had is safe: weights that are no numbers are never saved."""
    try:
        yield
    except MassmoverError as problem:
        kept = f"the checkpoint of epoch {epoch} is intact" if epoch else "no epoch was finished"
        raise MassmoverError(f"{problem} Training stopped {place}; {kept}.") from None
