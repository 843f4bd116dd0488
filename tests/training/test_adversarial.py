from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from bars import bars

from massmover import PlanAscent, WassersteinBall, attack, exact_distance
from massmover.attacks.ascent import Position
from massmover.attacks.base import Problem
from massmover.data import load
from massmover.models import lenet, load_model
from massmover.training import RECIPES, Adversary, Mover, Recipe, train
from massmover.training.lesson import Lesson, loss_of, moved_loss
from massmover.training.recipe import ATTACKS, AttackName
from massmover.training.state import Epoch
from massmover.types import MassmoverError

QUICK = Recipe(epochs=2, batch_size=32, shift=0, averaging=0.9, clean_share=0.3, adversary=Adversary(steps=2))


def test_every_radius_is_within_the_upper_end_which_grows() -> None:
    adversary = Adversary(radius=2.0, growth=0.5, spread=2.0)
    assert [adversary.upper_end(share) for share in (0, 0.25, 0.5, 1.0)] == [0, 1, 2, 2]
    radii = adversary.radii(10_000, share=0.25, draws=torch.Generator().manual_seed(0))
    assert radii.min() >= 0 and 0.99 < radii.max() <= 1
    assert radii.mean() == pytest.approx(1 / 3, abs=0.01)  # the mean of u ** 2


def test_projected_attacks_draw_one_radius_a_batch() -> None:
    radii = Adversary(attack="sinkhorn").radii(5, share=1.0, draws=torch.Generator().manual_seed(0))
    assert radii.shape == (5,) and (radii == radii[0]).all()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ATTACKS)
def test_moved_images_are_harder_and_near_their_balls(name: AttackName) -> None:
    images, labels = bars(6)
    pixels = images.float() / 255
    torch.manual_seed(0)
    model = lenet().eval()
    before = [parameter.clone() for parameter in model.parameters()]
    radii = torch.full((6,), 0.3, dtype=torch.float64)
    moved = Mover(Adversary(attack=name, steps=3))(model, pixels, labels, radii=radii)
    assert moved.shape == pixels.shape and not moved.requires_grad
    assert moved.min() >= 0 and moved.max() <= 1
    loss = torch.nn.functional.cross_entropy
    with torch.no_grad():
        assert loss(model(moved), labels) > loss(model(pixels), labels)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    if name != "wong":  # its examples are known to leave the ball
        assert (exact_distance(pixels, moved) <= 0.3 * 1.15).all()  # lenient: 10 %, and the clamped rest


@pytest.mark.usefixtures("backend")
def test_a_mover_goes_on_where_it_left_an_image() -> None:
    some = load("mnist-sample").subset(0, 16)
    images, labels, model = some.images_as_float(), some.labels, load_model("mnist-standard")
    radii, numbers = torch.full((16,), 0.3, dtype=torch.float64), torch.arange(16) + 4
    mover, calls = Mover(Adversary(steps=2), remember=20), []
    for _ in range(4):
        moved = mover(model, images, labels, radii=radii, numbers=numbers)
        with torch.no_grad():
            calls.append(float(torch.nn.functional.cross_entropy(model(moved), labels)))
        assert (exact_distance(images, moved) <= 0.3 * (1 + 1e-4)).all()
    assert calls[-1] > 1.1 * calls[0]


@pytest.mark.usefixtures("backend")
def test_a_remembering_mover_needs_one_gradient_a_step() -> None:
    some = load("mnist-sample").subset(0, 8)
    images, labels, model = some.images_as_float(), some.labels, load_model("mnist-standard")
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    mover = Mover(Adversary(steps=1), remember=8)
    radii, losses = torch.full((8,), 0.3, dtype=torch.float64), []
    for _ in range(8):
        calls.clear()
        moved = mover(model, images, labels, radii=radii, numbers=torch.arange(8))
        assert len(calls) == 1
        with torch.no_grad():
            losses.append(float(torch.nn.functional.cross_entropy(model(moved), labels)))
    assert losses[-1] > 2 * losses[0]  # one step finds something, and eight in a row more


@pytest.mark.usefixtures("backend")
def test_going_on_up_the_gradient_of_the_learning_pass_is_one_more_step() -> None:
    some = load("mnist-sample").subset(0, 8)
    images, labels, model = some.images_as_float(), some.labels, load_model("mnist-standard")
    radii, numbers = torch.full((8,), 0.3, dtype=torch.float64), torch.arange(8)
    twice, once = Mover(Adversary(steps=2), remember=8), Mover(Adversary(steps=1), remember=8)
    twice(model, images, labels, radii=radii, numbers=numbers)
    moved = once(model, images, labels, radii=radii, numbers=numbers).requires_grad_()
    assert once.memory is not None and twice.memory is not None
    before = once.memory.potential.clone()
    loss = 7 * torch.nn.functional.cross_entropy(model(moved), labels)  # any scale will do
    (gradient,) = torch.autograd.grad(loss, moved)
    once.go_on(gradient)
    assert not torch.allclose(once.memory.potential, before, rtol=0.1)
    assert torch.allclose(once.memory.potential, twice.memory.potential, atol=0.05, rtol=0.01)


def test_an_ascent_goes_on_from_half_of_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    some = load("mnist-sample").subset(0, 4)
    images, labels, model = some.images_as_float(), some.labels, load_model("mnist-standard")
    starts, begin = [], PlanAscent.begin

    def listening(self: PlanAscent, problem: Problem, start: torch.Tensor) -> Position:
        starts.append(start.clone())
        return begin(self, problem, start)

    monkeypatch.setattr(PlanAscent, "begin", listening)
    mover, numbers = Mover(Adversary(steps=1), remember=4), torch.arange(4)
    radii = torch.full((4,), 0.3, dtype=torch.float64)
    mover(model, images, labels, radii=radii, numbers=numbers)
    assert mover.memory is not None
    left = mover.memory.potential.float()
    mover(model, images, labels, radii=radii, numbers=numbers)
    assert left.abs().max() > 0.1 and not starts[0].any()
    torch.testing.assert_close(starts[1], left / 2)


def test_going_on_needs_the_gradient_of_the_last_batch() -> None:
    images, labels = bars(4)
    pixels, radii = images.float() / 255, torch.full((4,), 0.3, dtype=torch.float64)
    mover = Mover(Adversary(steps=1), remember=4)
    with pytest.raises(MassmoverError, match="no batch came with numbers"):
        mover.go_on(torch.zeros_like(pixels))
    mover(lenet(), pixels, labels, radii=radii, numbers=torch.arange(4))
    with pytest.raises(
        MassmoverError, match=r"a gradient of \(3, 1, 28, 28\) was given for images of \(4, 1, 28, 28\)"
    ):
        mover.go_on(torch.zeros_like(pixels[:3]))
    mover(lenet(), pixels, labels, radii=radii)  # which remembers nothing
    with pytest.raises(MassmoverError, match="no batch came with numbers"):
        mover.go_on(torch.zeros_like(pixels))


def test_training_that_remembers_goes_on_with_what_learning_found(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load("mnist-sample").subset(0, 32)
    adversary = Adversary(steps=1, growth=0.0, remember=True)
    recipe = dataclasses.replace(QUICK, epochs=1, batch_size=32, adversary=adversary)
    heard: list[torch.Tensor] = []
    gone_on = Mover.go_on

    def listening(self: Mover, gradient: torch.Tensor) -> None:
        heard.append(gradient.clone())
        gone_on(self, gradient)

    monkeypatch.setattr(Mover, "go_on", listening)
    train(lenet, digits.images, digits.labels, recipe=recipe)
    assert len(heard) == 1 and heard[0].shape == (32, 1, 28, 28) and bool((heard[0].flatten(1).abs().amax(1) > 0).all())
    heard.clear()
    forgetful = dataclasses.replace(recipe, adversary=dataclasses.replace(adversary, remember=False))
    train(lenet, digits.images, digits.labels, recipe=forgetful)
    assert not heard


def test_a_mirrored_image_is_moved_as_the_mirror_of_itself() -> None:
    some = load("mnist-sample").subset(0, 6)
    images, labels, seen = some.images_as_float(), some.labels, load_model("mnist-standard")
    radii, numbers = torch.full((6,), 0.3, dtype=torch.float64), torch.arange(6)

    def mirror_seen(pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = seen(pixels.flip(3))
        return scores

    straight, turned = Mover(Adversary(steps=1), remember=6), Mover(Adversary(steps=1), remember=6)
    everywhere = torch.ones(6, dtype=torch.bool)
    for _ in range(3):
        moved = straight(seen, images, labels, radii=radii, numbers=numbers)
        other = turned(mirror_seen, images.flip(3), labels, radii=radii, numbers=numbers, mirrored=everywhere)
        assert torch.allclose(moved, other.flip(3), atol=1e-4)
        assert straight.memory is not None and turned.memory is not None
        assert torch.allclose(straight.memory.potential, turned.memory.potential, atol=0.05, rtol=0.01)


def test_training_resumes_with_what_the_adversary_remembers(tmp_path: Path) -> None:
    images, labels = bars(48)
    recipe = dataclasses.replace(
        QUICK, epochs=3, mirror=True, held_out=0.25, adversary=Adversary(steps=1, growth=0.0, remember=True)
    )
    whole = train(lenet, images, labels, recipe=recipe)

    class StoppedError(Exception):
        pass

    def stop(line: Epoch) -> None:
        if line.epoch == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(lenet, images, labels, recipe=recipe, folder=tmp_path, ended=stop)
    again = train(lenet, images, labels, recipe=recipe, folder=tmp_path)
    assert again.losses == whole.losses
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_cannot_be_remembered_is_refused() -> None:
    with pytest.raises(MassmoverError, match="no potentials to remember"):
        Adversary(attack="sinkhorn", remember=True)
    with pytest.raises(MassmoverError, match="every image in its place"):
        Recipe(shift=2, adversary=Adversary(remember=True))


def test_a_mover_refuses_what_it_cannot_remember() -> None:
    images, labels = bars(4)
    pixels, radii = images.float() / 255, torch.full((4,), 0.3, dtype=torch.float64)
    with pytest.raises(MassmoverError, match="no potentials to remember"):
        Mover(Adversary(attack="sinkhorn"), remember=4)
    for numbers in (torch.arange(4), torch.arange(3)):
        with pytest.raises(MassmoverError, match="numbers from 0 to 2"):
            Mover(remember=3)(lenet(), pixels, labels, radii=radii, numbers=numbers)


def test_a_patient_ascent_ends_at_a_higher_loss_than_one_that_stops_at_the_first_mistake() -> None:
    some = load("mnist-sample").subset(0, 16)
    images, labels, model = some.images_as_float(), some.labels, load_model("mnist-standard")
    problem = Problem(WassersteinBall(0.4).around(images), labels)
    losses = []
    for confidence in (0.0, math.inf):
        ascent = PlanAscent(steps=20, confidence=confidence)
        found = ascent.search(model, problem).images
        with torch.no_grad():
            losses.append(float(torch.nn.functional.cross_entropy(model(found), labels)))
    assert losses[1] > 1.5 * losses[0]


def test_adversarial_training_makes_a_model_harder_to_fool() -> None:
    digits = load("mnist-sample").subset(0, 500)
    plain = Recipe(epochs=8, batch_size=50, shift=0, averaging=0.9)
    robust = dataclasses.replace(plain, clean_share=0.3, adversary=Adversary(steps=4, radius=1.0, growth=0.2))
    images, labels = digits.images_as_float()[:50], digits.labels[:50]
    broken = []
    for recipe in (plain, robust):
        model = train(lenet, digits.images, digits.labels, recipe=recipe).model
        broken.append(int(attack(model, images, labels, radius=0.3, method="ascent").success.sum()))
    assert broken[1] < 0.85 * broken[0], broken


def test_held_out_images_are_judged() -> None:
    images, labels = bars(64)
    recipe = dataclasses.replace(QUICK, held_out=0.25, epochs=3)
    trained = train(lenet, images, labels, recipe=recipe)
    for line in trained.history:
        assert line.clean is not None and 0 <= line.clean <= 1
        assert list(line.robust) == ["0.125", "0.25", "0.5"]
        assert line.score == pytest.approx(sum(line.robust.values()) / 3) and line.attacked == 16


def test_the_losses_are_what_they_say() -> None:
    torch.manual_seed(0)
    model = lenet().eval()
    clean, moved, labels = torch.rand(3, 1, 28, 28), torch.rand(3, 1, 28, 28), torch.tensor([1, 2, 3])
    entropy = torch.nn.functional.cross_entropy
    plain, hard = (3 * entropy(model(x), labels) for x in (clean, moved))
    alone = loss_of(dataclasses.replace(QUICK, clean_share=0.0), model, Lesson(clean, moved, labels), share=1)
    assert alone.item() == pytest.approx(hard.item(), rel=1e-5)
    mixed = loss_of(dataclasses.replace(QUICK, clean_share=0.25), model, Lesson(clean, moved, labels), share=1)
    assert mixed.item() == pytest.approx((0.25 * plain + 0.75 * hard).item(), rel=1e-5)
    p, q = model(clean).softmax(1), model(moved).softmax(1)
    divergence = (p * (p / q).log()).sum()
    trades = loss_of(dataclasses.replace(QUICK, trades=2.0), model, Lesson(clean, moved, labels), share=1)
    assert trades.item() == pytest.approx((plain + 2 * divergence).item(), rel=1e-4)
    same = loss_of(dataclasses.replace(QUICK, trades=2.0), model, Lesson(clean, clean, labels), share=1)
    assert same.item() == pytest.approx(plain.item(), rel=1e-4)


@pytest.mark.parametrize("clean_share", [0.0, 0.25])
def test_a_forgiving_loss_is_bounded_where_cross_entropy_is_not(clean_share: float) -> None:
    torch.manual_seed(0)
    model = lenet().eval()
    clean, moved, labels = torch.rand(3, 1, 28, 28), torch.rand(3, 1, 28, 28), torch.tensor([1, 2, 3])
    plain = 3 * torch.nn.functional.cross_entropy(model(clean), labels)
    right = model(moved).softmax(1)[torch.arange(3), labels]
    recipe = dataclasses.replace(QUICK, clean_share=clean_share, forgiving=0.7)
    # the exponent grows to 0.7 at 0.6 of the run; at its start the loss is cross-entropy
    for share, exponent in ((0.3, 0.35), (0.6, 0.7), (0.9, 0.7)):
        told = loss_of(recipe, model, Lesson(clean, moved, labels), share=share)
        wanted = clean_share * plain + (1 - clean_share) * ((1 - right**exponent) / exponent).sum()
        assert told.item() == pytest.approx(wanted.item(), rel=1e-5)
    at_first = loss_of(recipe, model, Lesson(clean, moved, labels), share=0)
    never = loss_of(dataclasses.replace(recipe, forgiving=0.0), model, Lesson(clean, moved, labels), share=0)
    assert at_first.item() == never.item()
    hopeless, answer = torch.tensor([[0.0, 500.0]], requires_grad=True), torch.tensor([0])
    lost = moved_loss(recipe, hopeless, answer, share=1)
    (slope,) = torch.autograd.grad(lost, hopeless)
    assert lost.item() == pytest.approx(1 / 0.7)
    assert float(slope.abs().max()) < 1e-6


def test_a_forgiving_run_differs_from_another_and_resumes_to_the_bit(tmp_path: Path) -> None:
    images, labels = bars(64)
    recipe = dataclasses.replace(QUICK, forgiving=0.7, epochs=3)
    whole = train(lenet, images, labels, recipe=recipe).model.state_dict()
    other = train(lenet, images, labels, recipe=dataclasses.replace(recipe, forgiving=0.0)).model.state_dict()
    assert any(not torch.equal(whole[name], other[name]) for name in whole)

    def kill(line: Epoch) -> None:
        if line.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(lenet, images, labels, recipe=recipe, folder=tmp_path, ended=kill)
    resumed = train(lenet, images, labels, recipe=recipe, folder=tmp_path).model.state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_the_paper_recipe_trains() -> None:
    paper = RECIPES["paper"]
    assert paper.adversary is not None
    short = dataclasses.replace(paper, epochs=1, held_out=0, adversary=dataclasses.replace(paper.adversary, steps=5))
    trained = train(lenet, *bars(16), recipe=short)
    assert math.isfinite(trained.losses[0]) and trained.history[0].radius == 10.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attack": "pgd"}, "unknown attack 'pgd'"),
        ({"steps": 0}, "steps >= 1"),
        ({"radius": 0.0}, "radius > 0"),
        ({"radius": math.inf}, "radius > 0"),
        ({"spread": 0.0}, "spread > 0"),
        ({"growth": 1.5}, "growth in"),
        ({"ramp": True}, "needs sinkhorn or wong, not ascent"),
    ],
)
def test_adversaries_that_cannot_attack_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        Adversary(**settings)
