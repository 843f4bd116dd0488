"""The way to the nearest wrong answer: plan ascent whose radius follows the margin.

Instead of attacking one radius after the other, the ascent goes on while the radius changes: down where it has won, up
where it has not, by what the margin says is missing. Potentials, charges and prices are kept from radius to radius. The
idea is that of fast minimum-norm attacks (Pintor et al. 2021). docs/algorithms.md, section 8.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.attacks.ascent import Climbed, PlanAscent, choose, moved_within, unmoved
from massmover.attacks.base import Found, Problem
from massmover.attacks.losses import check_margins
from massmover.transport.potential import Pull
from massmover.types import Classifier, PerImage

BOLD, CAREFUL = 0.5, 0.01  # largest relative change of the radius, at the first step and at the last
CLOSER = 0.995  # times the smallest radius that won: where a search looks next, at most
LATE = 0.5  # of the steps, when an image is left whose search is far behind an earlier one
FAR = 1.1  # times the smallest radius known


class Reached(NamedTuple):
    """The closest wrong answer of each image so far."""

    way: Climbed
    cost: PerImage  # of the way; infinite where there is none
    failed: PerImage  # the largest radius below it that was looked at in vain

    @classmethod
    def nothing(cls, problem: Problem) -> Reached:
        """Before any search."""
        budget = problem.balls.budget
        way = unmoved(problem, start=torch.zeros_like(problem.images))
        return cls(way, cost=torch.full_like(budget, torch.inf), failed=torch.zeros_like(budget))

    def select(self, index: Tensor) -> Reached:
        """What was reached for some of the images."""
        return Reached(self.way.select(index), self.cost[index], self.failed[index])

    def put(self, index: Tensor, part: Reached) -> None:
        """Write what was reached for some of the images."""
        self.way.put(index, part.way)
        self.cost[index], self.failed[index] = part.cost, part.failed

    def found(self, *, floor: float) -> Found:
        """The closest wrong answers as a search returns them."""
        pull = Pull(self.way.potential, price=self.way.price, floor=floor, booked=self.way.booked)
        resting = torch.zeros_like(self.cost, dtype=torch.bool)
        return Found(moves=pull.moves, images=self.way.images, steps=self.way.steps, resting=resting)


def approach(ascent: PlanAscent, model: Classifier, problem: Problem, *, first: PerImage, reached: Reached) -> Reached:
    """Go on from a first radius a search to the nearest wrong answer; the balls' radii are the largest to look at.

    None of the images may be wrong to begin with. Returns the closer one of what was reached before and now.
    """
    # init
    limit, steps = problem.balls.budget, ascent.steps
    clean = problem.look(model, problem.images)[1].to(limit).clamp_max(-1e-9)
    best = reached.select(torch.arange(len(problem), device=limit.device))
    now, part, reach = reached, problem, problem.balls.within_reach()
    radius, won_at = first.minimum(limit), torch.full_like(limit, torch.inf)
    here = ascent.begin(problem.with_budget(radius), torch.zeros_like(problem.images))
    active, seen = torch.arange(len(problem), device=limit.device), problem.balls.mass.new_zeros(())
    for step in range(steps):
        if step == int(LATE * steps):  # images leave once: to look who does waits for the device
            best.put(active, now)
            close = torch.nonzero(~(won_at > FAR * now.cost)).flatten()
            active, part, here, now = active[close], part.select(close), here.select(close), now.select(close)
            clean, radius, won_at, reach = clean[close], radius[close], won_at[close], reach[close]
        if step % 10 == 0:
            part.tell("ascent to the nearest", step=step, steps=steps, standing=len(active))
        if not len(active):
            break
        # forward
        posed = part.with_budget(radius)
        pull = ascent.pull(here)
        move = moved_within(pull, posed)
        margin, gradient = posed.slope(model, move.images, loss=ascent.loss, low_pass=ascent.low_pass)
        # track
        seen = seen + margin.sum()
        won, spent = margin > problem.climbing_lead, move.spent.minimum(radius)
        better, steps_done = won & (spent < now.cost), now.way.steps + 1
        way = Climbed(pull.potential, move.images, move.price, here.booked, margin.to(now.way.margin), steps_done)
        cost = torch.where(better, spent, now.cost)
        failed = torch.where(~won & (radius < cost), now.failed.maximum(radius), now.failed)
        now = Reached(
            Climbed(*map(partial(choose, better), way, now.way))._replace(steps=steps_done),
            cost=cost,
            failed=torch.where(failed < cost, failed, 0.0),
        )
        won_at = torch.where(won, won_at.minimum(spent), won_at)
        # step
        here = ascent.stepped(step, posed, here, move, gradient * reach)
        change = BOLD * (CAREFUL / BOLD) ** (step / max(steps - 1, 1))
        wanted = torch.where(won, spent, radius) * _factor(margin.to(limit), clean=clean, most=1 + change)
        following = wanted.minimum(CLOSER * won_at).minimum(part.balls.budget)
        here = here._replace(booked=here.booked * (following / radius.clamp_min(1e-300)))
        radius = following
    best.put(active, now)
    check_margins(seen)
    return best


def _factor(margin: PerImage, *, clean: PerImage, most: float) -> PerImage:
    """By which factor the radius should change if the margin grew in proportion to it, from the clean one to 0."""
    return (-clean / (margin - clean).clamp_min(1e-12)).clamp(1 / most, most)
