"""The pictures of the documentation, from the bundled digits: `python docs/pictures/make.py [FOLDER]`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import massmover
from massmover.attacks.ascent import PlanAscent
from massmover.data import load
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import CertifiedNetwork, load_model
from massmover.report.flow import all_moves, field_of
from massmover.reproduce.coherent import Outcome
from massmover.reproduce.figures import draw_coherent
from massmover.transport.plan import Plan

DIGITS = (0, 1, 2, 4)  # of the bundled sample: a seven, a two, a one, a four
RADII_PIXELS = (10, 50, 200, 500, 784)  # radius x 784; the last is a radius of 1
ORANGE = "#d9480f"
STUDY = Path(__file__).with_name("coherent-study.json")  # the coherent.json of `massmover reproduce coherent`
PRINTED = ", printed"


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, draw in (
        ("moves", moves),
        ("plan", plan),
        ("radii", radii),
        ("potential", potential),
        ("coherent", coherent),
    ):
        figure = draw()
        figure.savefig(folder / f"{name}.png", dpi=100, bbox_inches="tight", metadata={"Software": None})
    coherent_study(folder / "coherent-study.png")


def coherent_study(path: Path) -> None:
    """What `massmover reproduce coherent` found, as it was found: all its networks under everything."""
    found = json.loads(STUDY.read_text(encoding="utf-8"))
    networks = dict[str, dict[str, float]]()
    for condition, percents in found["percent_right"].items():
        for name, percent in percents.items():
            if percent is not None:
                networks.setdefault(name, {})[condition] = percent
    printed = {name.removesuffix(PRINTED): networks.pop(name) for name in list(networks) if name.endswith(PRINTED)}
    ours = [Outcome(name, {}, test=row, attacked={}, unproved=0, seconds=0.0) for name, row in networks.items()]
    draw_coherent(ours, printed, path, title=f"{found['count']} {found['data']} images, no augmentation")


def moves() -> Figure:
    """Two moves on an image of three rows and five columns: before, the plan, after."""
    before = torch.zeros(1, 1, 3, 5, dtype=torch.float64)
    before[0, 0, 1, 1:4] = torch.tensor([1.0, 0.6, 0.4], dtype=torch.float64)
    ball = massmover.WassersteinBall(1.0)
    window = ball.moves(before)
    sent = {((1, 1), (1, 2)): 0.3, ((1, 3), (0, 4)): 0.2}  # from, to: mass
    flows = torch.zeros(1, 1, len(window.offsets), 3, 5, dtype=torch.float64)
    flows[:, :, 0] = before
    for (start, end), mass in sent.items():
        step = window.offsets.index((end[0] - start[0], end[1] - start[1]))
        flows[(0, 0, 0, *start)] -= mass
        flows[(0, 0, step, *start)] += mass
    moved = Plan(window=window, flows=flows)
    cost = float(moved.cost(ball.weights(before)))
    assert math.isclose(cost, (0.3 * 1 + 0.2 * math.sqrt(2)) / 2)  # what the page says
    assert math.isclose(cost, float(massmover.exact_distance(before, moved.images())[0]))
    figure = Figure(figsize=(8, 2))
    panels = figure.subplots(1, 3)
    for axes, image, title in zip(
        panels, (before, before, moved.images()), ("before", "the plan", "after"), strict=True
    ):
        show(axes, image[0, 0])
        axes.set_title(title, fontsize=10)
    for axes, image in ((panels[0], before), (panels[2], moved.images())):
        for row, column in torch.nonzero(image[0, 0] > 0).tolist():
            value = float(image[0, 0, row, column])
            colour = "black" if value > 0.5 else "white"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=9, color=colour)
    for (start, end), mass in sent.items():
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
        panels[1].annotate("", xy=end[::-1], xytext=start[::-1], arrowprops=arrow)
        middle = ((start[1] + end[1]) / 2, (start[0] + end[0]) / 2 + 0.95 * (start[0] == end[0]))
        offset = middle if start[0] == end[0] else (middle[0] - 1.25, middle[1] - 0.4)
        panels[1].text(*offset, f"{mass} over {math.dist(start, end):.3g}", color="white", fontsize=9, ha="center")
    return figure


def plan() -> Figure:
    """A four that the bundled classifier takes for a nine, with the largest moves that lead there."""
    model, images, labels = victim()
    result = massmover.attack(model, images, labels, radius=0.15, method="ascent")
    figure: Figure = result.show([DIGITS.index(4)])
    figure.set_size_inches(10, 2.6)
    return figure


def radii() -> Figure:
    """Digits pushed as far as each radius allows; below each, what the bundled classifier makes of it."""
    model, images, labels = victim()
    climb = PlanAscent(confidence=math.inf)  # goes on when the classifier is wrong, so that the budget is spent
    columns = [("original", images)]
    for pixels in RADII_PIXELS:
        ball = massmover.WassersteinBall.from_pixels(pixels, images)
        title = f"{ball.radius:.3g}\n(x 784: {pixels})"
        columns.append((title, massmover.attack(model, images, labels, ball=ball, method=climb).images))
    figure = Figure(figsize=(1.35 * len(columns), 1.6 * len(images)))
    grid = figure.subplots(len(images), len(columns))
    with torch.no_grad():
        for column, (title, shown) in enumerate(columns):
            grid[0, column].set_title(title, fontsize=9)
            for row, (image, answer) in enumerate(zip(shown, model(shown).argmax(dim=1).tolist(), strict=True)):
                show(grid[row, column], image[0])
                right = answer == int(labels[row])
                grid[row, column].set_xlabel(f"“{answer}”", fontsize=9, color="black" if right else ORANGE)
    return figure


def potential() -> Figure:
    """The landscape of the duel that decides about a four, the digit on it with its ways downhill, and a cut."""
    model, digits = load_model("mnist-certified"), load("mnist-sample")
    assert isinstance(model, CertifiedNetwork)
    image = digits.images_as_float()[4:5].requires_grad_()
    scores = model(image)
    label = int(scores.argmax())
    (slope,) = torch.autograd.grad(scores[0, label], image)
    # The gradient of a score is the potential of its active member, less its mean, over the mass.
    height = (slope * image.detach().sum())[0, 0]
    height = height - height.mean()
    rises = torch.stack([height.diff(dim=axis).abs().max() for axis in (0, 1)])
    assert float(rises.max()) <= 1 + 1e-5  # what the page says
    figure = Figure(figsize=(10, 3.1), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    shown = left.imshow(height.numpy(), cmap="terrain")
    left.contour(height.numpy(), levels=range(-12, 13), colors="black", linewidths=0.5)
    left.set(title="a potential, a line each pixel of height", xticks=[], yticks=[])
    figure.colorbar(shown, ax=left, shrink=0.8)
    show(middle, image.detach()[0, 0])
    middle.set_title("the digit, and which way is down", fontsize=10)
    down = torch.gradient(-height)
    rows, columns = torch.nonzero(image.detach()[0, 0] > 0.3, as_tuple=True)
    middle.quiver(columns, rows, down[1][rows, columns], down[0][rows, columns], color=ORANGE, angles="xy", scale=16)
    row = 14
    right.plot(height[row].numpy(), "o-", markersize=3, label=f"row {row}")
    top = float(height[row].max())
    peak = int(height[row].argmax())
    right.plot([peak, 27], [top, top - (27 - peak)], "--", color="grey", label="slope 1")
    right.plot([peak, 0], [top, top - peak], "--", color="grey")
    right.set(title="a cut through it", ylim=(float(height.min()) - 1, top + 1))
    right.legend(fontsize=8)
    left.title.set_fontsize(10)
    right.title.set_fontsize(10)
    return figure


THREATS = {
    "may scatter": massmover.WassersteinBall(1.0),
    "bends over 14 pixels": massmover.WassersteinBall(1.0, window=9, scatter=0.05, width=14),
    "one vector": massmover.WassersteinBall(4.0, window=9, scatter=0.05),
}
ARROWS: dict[str, Any] = {"cmap": "hsv", "clim": (-math.pi, math.pi), "edgecolor": "black", "linewidth": 0.4}
ARROWS |= {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.012}  # as long as mass moves


def coherent() -> Figure:
    """The same digits under attacks whose mass scatters, bends together, moves by one vector; arrows say where."""
    model, images, labels = victim()
    figure = Figure(figsize=(2.1 * (1 + len(THREATS)), 2.15 * len(images)), layout="constrained")
    grid = figure.subplots(len(images), 1 + len(THREATS))
    for row, image in enumerate(images):
        show(grid[row, 0], image[0])
    grid[0, 0].set_title("original", fontsize=10)
    for column, (title, ball) in enumerate(THREATS.items(), start=1):
        found = massmover.attack(model, images, labels, ball=ball, method="ascent")
        grid[0, column].set_title(f"radius {ball.radius:g}: {title}", fontsize=10)
        with torch.no_grad():
            answers = model(found.images).argmax(dim=1).tolist()
        for row, answer in enumerate(answers):
            axes, picture = grid[row, column], images[row].numpy()
            show(axes, found.images[row, 0])
            proof = proving_moves(found.plan, images, row)
            field = field_of(picture, all_moves(proof, np.zeros((0, 6)), shape=picture.shape))
            (down, right), (y, x) = field.step.T, field.place.T
            axes.quiver(
                x,
                y,
                right,
                down,
                np.arctan2(down, right),
                **ARROWS,
            )
            axes.set(xlim=(-0.5, 27.5), ylim=(27.5, -0.5))
            right_answer = answer == int(labels[row])
            axes.set_xlabel(f"“{answer}”", fontsize=9, color="black" if right_answer else ORANGE)
    return figure


def victim() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The bundled classifier and a few digits with their labels."""
    digits = load("mnist-sample")
    chosen = torch.tensor(DIGITS)
    return load_model("mnist-standard"), digits.images_as_float()[chosen], digits.labels[chosen]


def show(axes: Any, image: torch.Tensor) -> None:
    """Draw one channel, black to white, without ticks."""
    axes.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
