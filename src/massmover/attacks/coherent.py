"""Coherent ascent: climb the loss with displacement fields, whose mass moves together.

In a ball that bounds the scatter of plans (`WassersteinBall(scatter=..., width=...)`) an image is reached by a field:
a smooth part, which only the radius bounds, and a rest that may stray from it by the scatter. Both climb the loss at
once. Whole shifts and other simple fields are tried first, by forward passes alone: from where an image is, the loss
may have to fall before it rises. docs/coherent.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.attacks.base import AttackResult, Found, Problem, run
from massmover.attacks.losses import LossName, check_loss, check_margins
from massmover.backend import default_block
from massmover.classifier import borrowed
from massmover.inputs import check_low_pass, check_settings
from massmover.transport.coherence import SmoothFields
from massmover.transport.field import Bounds, Carried, Led, carried, slope
from massmover.types import Classifier, MassmoverError, PerImage

FIRST_STEP, LAST_STEP = 0.3, 0.02  # of the smooth part, in pixels, times the radius or at most LONGEST pixels
FIRST_STRAY, LAST_STRAY = 0.5, 0.1  # of the rest, times the scatter
LONGEST = 1.0
BACKWARD = 0.85  # the most that a field which scatters too much is taken back in a step
LEEWAY = 1.001  # what the search takes for inside; the proof takes a little less of the field
BARELY = 1e-4  # pixels of scatter that float32 cannot tell from none
MOST_LOOKS = 100  # simple fields that are tried; drawn at random where there are more


class Heading(NamedTuple):
    """Where the ascent of each image is; fields are (B, 2, N)."""

    smooth: Tensor
    stray: Tensor
    smooth_speed: Tensor
    stray_speed: Tensor
    avoided: Tensor  # (B, C, N): by how much full pixels are avoided
    room: PerImage  # share of the scatter that the rest may use: mass that avoids full pixels uses some too
    kept: PerImage  # share of the smooth part that the next step keeps

    def select(self, index: Tensor) -> Heading:
        """The positions of some of the images."""
        return Heading(*(field[index] for field in self))


class Furthest(NamedTuple):
    """The best field found for each image, what it makes, and by how much it wins."""

    smooth: Tensor
    stray: Tensor
    avoided: Tensor
    images: Tensor
    margin: PerImage
    steps: PerImage

    def select(self, index: Tensor) -> Furthest:
        """What was found for some of the images."""
        return Furthest(*(value[index] for value in self))

    def put(self, index: Tensor, part: Furthest) -> None:
        """Write what was found for some of the images."""
        for whole, own in zip(self, part, strict=True):
            whole[index] = own.to(whole)


@dataclass(frozen=True)
class CoherentAscent:
    """Ascent on displacement fields: what `ascent` and `auto` do in a ball with a scatter."""

    steps: int = 100
    loss: LossName = "cross-entropy"
    momentum: float = 0.5
    confidence: float = 0.0  # an image is done once its margin is above this; with infinity it climbs to the end
    starts: int = 2  # ascents of an image that still stands: from the fields that the first look ranks highest
    look: int = MOST_LOOKS  # simple fields that are tried first, beside no move at all
    low_pass: float = 0.0  # pixels: standard deviation of a Gaussian that takes high frequencies out of gradients

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        check_loss(self.loss)
        check_settings(self, whole={"steps": 1, "starts": 1, "look": 0})
        check_low_pass(self.low_pass)
        if not 0 <= self.momentum < 1:
            raise MassmoverError(f"momentum is {self.momentum}: use 0 <= momentum < 1")

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball."""
        return run(self, model, problem, seed=seed)

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        """Look at simple fields, then climb from the best of them while an image stands."""
        with borrowed(model):
            wrong = problem.fooled(model, problem.images)
            best = _unmoved(problem)
            best.margin[wrong] = torch.inf
            fields = fields_of(problem)
            starts = self._ranked(model, problem, best, seed=seed)
            for number, start in enumerate(starts):
                enough = max(self.confidence, problem.climbing_lead)
                standing = torch.nonzero((best.margin <= enough) & ~wrong).flatten()
                if not len(standing):
                    break
                part = problem.select(standing)
                part = part.called(f"coherent ascent, start {number}") if number else part
                found = self.climb(model, part, fields.select(standing), start=start[standing])
                better = found.margin > best.margin[standing]
                steps = best.steps[standing] + found.steps
                best.put(standing[better], found.select(better))
                best.steps[standing] = steps
        return Found(moves=Led(*best[:3]).moves, images=best.images, steps=best.steps, resting=wrong)

    def climb(self, model: Classifier, problem: Problem, fields: SmoothFields, *, start: Tensor) -> Furthest:
        """One ascent from given fields; finished images leave the batch."""
        best, found, part = _unmoved(problem), _unmoved(problem), problem
        active, here = torch.arange(len(problem), device=start.device), _standing_at(start, problem)
        enough, block = max(self.confidence, problem.climbing_lead), default_block(problem.balls.backend)
        seen = start.new_zeros(())
        for step in range(self.steps):
            if step % block == 0:
                standing = torch.nonzero(found.margin <= enough).flatten()
                if len(standing) < len(active):
                    best.put(active, found)
                    active, part, fields = active[standing], part.select(standing), fields.select(standing)
                    here, found = here.select(standing), found.select(standing)
                part.tell("coherent ascent", step=step, steps=self.steps, standing=len(active))
                if not len(active):
                    break
            # forward
            move = carried(here.smooth + here.stray, here.smooth, part.balls, avoided=here.avoided)
            share = move.share.view(-1, 1, 1)
            here = here._replace(smooth=share * here.smooth, stray=share * here.stray, avoided=move.avoided)
            field = here.smooth + here.stray
            margin, gradient = part.slope(model, move.images, loss=self.loss, low_pass=self.low_pass)
            # track
            seen = seen + margin.sum()
            climbing = found.margin <= enough
            better = climbing & (margin > found.margin) & fits(move, part)
            now = Furthest(*here[:2], move.avoided, move.images, margin.to(found.margin), found.steps + climbing)
            found = Furthest(*map(partial(_choose, better), now, found))._replace(steps=now.steps)
            # step
            rise = slope(gradient, field, move.avoided, part.balls)
            here = self._stepped(step, part, fields, roomy(here, move, part), rise)
        best.put(active, found)
        check_margins(seen)
        return best

    def _stepped(self, step: int, problem: Problem, fields: SmoothFields, here: Heading, rise: Tensor) -> Heading:
        """The next position: the smooth part up the smooth part of the slope, the rest up its rest."""
        progress, coherence = step / max(self.steps - 1, 1), problem.balls.coherence
        assert coherence is not None
        smooth = fields.fit(rise)
        speeds = [
            self.momentum * old + (1 - self.momentum) * new / fields.size(new).clamp_min(1e-30).view(-1, 1, 1)
            for old, new in ((here.smooth_speed, smooth), (here.stray_speed, rise - smooth))
        ]
        length = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** progress * problem.balls.budget.clamp_max(LONGEST)
        share = FIRST_STRAY * (LAST_STRAY / FIRST_STRAY) ** progress
        stray = here.stray + share * coherence.scatter * speeds[1]
        longest = here.room * coherence.scatter / fields.size(stray).clamp_min(1e-30)
        return here._replace(
            smooth=here.kept.view(-1, 1, 1) * here.smooth + length.to(smooth).view(-1, 1, 1) * speeds[0],
            stray=stray * longest.clamp_max(1).view(-1, 1, 1),
            smooth_speed=speeds[0],
            stray_speed=speeds[1],
        )

    def _ranked(self, model: Classifier, problem: Problem, best: Furthest, *, seed: int) -> list[Tensor]:
        """The fields to climb from, the most promising first; what already wins is kept in `best`."""
        count, seen, tried = len(problem), [], candidates(problem, most=self.look, seed=seed)
        for field in tried:
            whole = field.expand(count, -1, -1)
            move = carried(whole, whole, problem.balls)
            _, margin = problem.look(model, move.images)
            margin = torch.where(fits(move, problem), margin, -torch.inf).to(best.margin)
            better = margin > best.margin
            led = move.share.view(-1, 1, 1) * whole
            now = Furthest(led, torch.zeros_like(led), move.avoided, move.images, margin, best.steps)
            best.put(better, now.select(better))
            seen.append(margin)
        order = torch.stack(seen).argsort(dim=0, descending=True, stable=True)
        stacked = torch.stack(tried).to(problem.images.device)  # in float32, as all of the search
        return [stacked[order[rank]] for rank in range(min(self.starts, len(tried)))]


def fields_of(problem: Problem) -> SmoothFields:
    """The smooth fields over the images of a problem, for the search."""
    assert problem.balls.coherence is not None
    return SmoothFields.over(problem.images.float(), width=problem.balls.coherence.width)


def roomy(here: Heading, move: Carried, problem: Problem) -> Heading:
    """The position with as much room for the rest as full pixels leave: mass that avoids them strays too.

    Where they leave none, the smooth part is taken back a little.
    """
    assert problem.balls.coherence is not None
    used = (problem.balls.coherence.scatter + BARELY) / move.scatter.clamp_min(1e-30)
    return here._replace(room=(here.room * used.clamp(0.8, 1.05)).clamp(0, 1), kept=used.clamp(BACKWARD, 1))


def fits(move: Carried, problem: Problem) -> Tensor:
    """Where a move is inside its ball, as far as a search can tell."""
    coherence = problem.balls.coherence
    assert coherence is not None
    cheap = move.cost <= problem.balls.budget * LEEWAY + 1e-6
    return cheap & (move.scatter <= coherence.scatter * LEEWAY + BARELY)


def candidates(problem: Problem, *, most: int, seed: int = 0) -> list[Tensor]:
    """Simple fields to look at first, (2, N) each: no move, whole shifts; with a width turns, shears and stretches."""
    balls, window = problem.balls, problem.balls.window
    assert balls.coherence is not None
    radius = float(balls.budget.amax()) if len(balls) else 0.0
    like = Bounds.of(balls, dtype=torch.float32).least  # (2, N)
    found = [
        torch.tensor(move, dtype=like.dtype, device=like.device).view(2, 1).expand_as(like)
        for move in window.offsets
        if window.cost(*move) <= max(radius * (1 + 1e-9), window.cost(1, 1))  # of what is too far a share is taken
    ]
    if balls.coherence.width is not None:
        found += bent(*problem.images.shape[-2:], radius=radius, like=like)
    chosen = torch.randperm(len(found) - 1, generator=torch.Generator().manual_seed(seed))[:most] + 1
    return [found[0], *(found[place] for place in sorted(chosen.tolist()))]


def bent(height: int, width: int, *, radius: float, like: Tensor) -> list[Tensor]:
    """Turns, shears and stretches about the centre, both ways, by which mass halfway to a corner moves half and all."""
    y, x = torch.cartesian_prod(torch.arange(height), torch.arange(width)).T.to(like)
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    size = radius / (math.hypot(height, width) / 4)
    kinds = ((x, -y), (y, -x), (x, y), (y, x))
    return [share * size * torch.stack(kind) for kind in kinds for share in (-1.0, -0.5, 0.5, 1.0)]


def _standing_at(start: Tensor, problem: Problem) -> Heading:
    zeros = torch.zeros_like(start)
    avoided = torch.zeros_like(problem.images.float()).flatten(2)
    ones = torch.ones_like(problem.balls.mass.float())
    return Heading(start, zeros, zeros, zeros, avoided, ones, ones)


def _unmoved(problem: Problem) -> Furthest:
    nowhere = torch.zeros_like(problem.images[:, :1].expand(-1, 2, -1, -1), dtype=torch.float32).flatten(2)
    return Furthest(
        smooth=nowhere,
        stray=nowhere.clone(),
        avoided=torch.zeros_like(problem.images, dtype=torch.float32).flatten(2),
        images=problem.images.clone(),
        margin=torch.full_like(problem.balls.mass, -torch.inf),
        steps=torch.zeros_like(problem.labels),
    )


def _choose(chosen: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(chosen.view(-1, *[1] * (new.ndim - 1)), new.to(old), old)
