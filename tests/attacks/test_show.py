"""Results in a notebook: short text, a table, a figure with the arrows of the plan, a data frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import massmover
from linear import Linear
from massmover import AttackResult, SmallestResult
from massmover.types import MassmoverError

RADIUS = 0.5


def bright_pixels(*, channels: int = 1) -> tuple[Linear, torch.Tensor]:
    """Images of one bright pixel each, and a classifier that wants their mass to the right; the last one stands far."""
    images = torch.zeros(3, channels, 5, 6)
    for number, column in enumerate((3, 2, 0)):
        images[number, :, 2, column] = 0.9
    slope = torch.arange(6.0).expand(channels, 5, 6).clone()
    return Linear(slope, -3.0 * channels), images


@pytest.fixture(scope="module")
def attacked() -> AttackResult:
    model, images = bright_pixels()
    return massmover.attack(model, images, torch.zeros(3, dtype=torch.long), radius=RADIUS, method="ascent")


@pytest.fixture(scope="module")
def smallest() -> SmallestResult:
    model, images = bright_pixels()
    return massmover.smallest_radius(
        model, images, torch.zeros(3, dtype=torch.long), ball=massmover.WassersteinBall(RADIUS)
    )


def test_text(attacked: AttackResult, smallest: SmallestResult) -> None:
    assert repr(attacked) == "AttackResult(3 images, 1 fooled, 3 proven inside radius 0.5)"
    assert repr(smallest).startswith("SmallestResult(3 images, 1 broken, median radius 0.3")
    nothing = massmover.attack(*bright_pixels(), torch.zeros(3, dtype=torch.long), radius=0.0, method="ascent")
    assert "0 fooled" in repr(nothing) and "-" in nothing._repr_html_()


def test_table(attacked: AttackResult, smallest: SmallestResult) -> None:
    for result, name in ((attacked, "fooled"), (smallest, "broken")):
        table = result._repr_html_()
        assert table.startswith("<table>") and table.endswith("</table>")
        assert f"{name}</th><td>1</td>" in table


@pytest.mark.parametrize("channels", [1, 3])
def test_the_figure_shows_the_images_and_the_arrows_of_the_plan(channels: int) -> None:
    model, images = bright_pixels(channels=channels)
    result = massmover.attack(model, images, torch.zeros(3, dtype=torch.long), radius=RADIUS, method="ascent")
    figure = result.show(rows=[0, 2])
    panels = np.array(figure.axes).reshape(2, 4)
    assert [axes.get_title() for axes in panels[0]] == ["original", "adversarial", "difference", "plan"]
    for row, image in enumerate((0, 2)):
        for column, expected in enumerate((images[image], result.images[image])):
            drawn = np.asarray(panels[row, column].images[0].get_array())
            wanted = expected.permute(1, 2, 0) if channels == 3 else expected[0]
            np.testing.assert_allclose(drawn, wanted.numpy(), atol=1e-6)
    arrows = panels[0, 3].collections[0]
    assert set(zip(arrows.X.tolist(), arrows.Y.tolist(), strict=True)) == {(3.0, 2.0)}  # all mass leaves that pixel
    heaviest = int(result.plan.flows[0, :, 1:].amax(dim=(0, 2, 3)).argmax()) + 1
    dy, dx = result.plan.window.offsets[heaviest]
    assert (arrows.V[0], arrows.U[0]) == (dy, dx)
    assert panels[0, 0].get_ylabel().startswith("fooled")
    assert panels[1, 0].get_ylabel() == f"stands\n{result.cost[2]:.3g} of 0.5"


def test_a_notebook_is_given_a_png(smallest: SmallestResult) -> None:
    figure = smallest.show()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert [axes.get_ylabel() for axes in figure.axes[4::4]] == ["stands", "stands"]


def test_successes_are_shown_first(attacked: AttackResult) -> None:
    assert [axes.get_ylabel().split()[0] for axes in attacked.show(1).axes[::4]] == ["fooled"]
    assert len(attacked.show(100).axes) == 3 * 4


@pytest.mark.parametrize(("rows", "message"), [([3], "no image 3 to show.*0 to 2"), ([], "empty"), (0, "empty")])
def test_images_that_are_not_there(attacked: AttackResult, rows: int | list[int], message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        attacked.show(rows)


def test_data_frames(attacked: AttackResult, smallest: SmallestResult) -> None:
    pytest.importorskip("pandas")
    frame = attacked.to_dataframe()
    assert list(frame.columns) == ["success", "radius", "cost", "steps", "trusted"]
    assert frame.index.name == "image"
    assert frame["success"].tolist() == [True, False, False]
    assert frame["cost"].tolist() == attacked.cost.tolist()
    frame = smallest.to_dataframe()
    assert list(frame.columns) == ["success", "radius", "lower", "steps"]
    assert frame["radius"].tolist() == smallest.radius.tolist()
