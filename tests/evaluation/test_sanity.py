from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from making import broken, record, settings
from torch import Tensor, nn

from massmover.data import load
from massmover.evaluation import sanity
from massmover.evaluation.subject import Subject
from massmover.models import FunctionModel, load_model
from massmover.types import Classifier

DOCUMENT = Path(__file__).parents[2] / "docs" / "checks.md"


def subject_of(model: Classifier) -> Subject:
    network = model if isinstance(model, nn.Module) else FunctionModel(model)
    return Subject(model=network, images=load("mnist-sample").subset(0, 4), start=0, device=torch.device("cpu"))


def failed(model: Classifier) -> set[str]:
    found = sanity.probe(subject_of(model), settings())
    return {check.name for check in found if not check.passed}


def standard() -> nn.Module:
    return load_model("mnist-standard")


@pytest.mark.usefixtures("backend")
def test_a_sound_model_passes_every_probe() -> None:
    assert failed(standard()) == set()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_confident_model_in_half_precision_has_gradients(dtype: torch.dtype) -> None:
    subject = subject_of(standard().to(dtype))
    assert sanity._gradients(subject, subject.pixels(range(4)), subject.labels(range(4))).passed


def test_a_model_of_one_class_has_none() -> None:
    subject = subject_of(lambda images: images.sum(dim=(1, 2, 3))[:, None])
    assert not sanity._gradients(subject, subject.pixels(range(4)), torch.zeros(4).long()).passed


def softmaxed() -> Classifier:
    model = standard()
    return lambda images: model(images).softmax(dim=1)


def random_model() -> Classifier:
    model, generator = standard(), torch.Generator().manual_seed(0)
    return lambda images: model(images) + torch.randn(1, 10, generator=generator)


def blocked() -> Classifier:
    model = standard()
    return lambda images: model(images.detach()) + 0 * images.sum()


def detached() -> Classifier:
    model = standard()
    return lambda images: model(images.detach())


def constant_gradient() -> Classifier:
    def model(images: Tensor) -> Tensor:
        mass = images.sum(dim=(1, 2, 3))
        return torch.stack([mass, *(mass * 0 for _ in range(9))], dim=1)

    return model


def training_mode() -> Classifier:
    hidden = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, 10)).train()
    return lambda images: hidden(images)  # a function hides its modules, so no eval() reaches them


CASES = [
    (softmaxed, "logits"),
    (random_model, "steady answers"),
    (blocked, "gradients"),
    (constant_gradient, "gradients"),
    (training_mode, "evaluation mode"),
]


@pytest.mark.parametrize(("build", "name"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_model_is_named(build: Callable[[], Classifier], name: str) -> None:
    assert name in failed(build())


def test_a_model_without_gradient_is_named() -> None:
    subject = subject_of(detached())
    images, labels = subject.pixels(range(4)), subject.labels(range(4))
    assert not sanity._gradients(subject, images, labels).passed


@pytest.mark.usefixtures("backend")
def test_an_attack_that_changes_answers_at_radius_zero_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(standard())
    images, labels = subject.pixels(range(4)), subject.labels(range(4))
    sound = sanity._radius_zero(subject, settings(), images, labels)
    assert sound.passed and sound.seen.startswith("4 of 4 right before, 4 after")
    monkeypatch.setattr(sanity, "attack", lambda *args, **kwargs: SimpleNamespace(images=images.roll(1, dims=0)))
    assert not sanity._radius_zero(subject, settings(), images, labels).passed


def review(records: list[object], **changes: object) -> set[str]:
    found = sanity.review(records, settings(**changes))  # type: ignore[arg-type]
    return {check.name for check in found if not check.passed}


def test_accuracy_that_rises_with_radius_is_named_from_the_raw_outcomes() -> None:
    carried = broken(0, 0.2, carried_from=0.1, attack_success=False)
    assert review([broken(0, 0.1), carried]) == {"accuracy falls with radius"}
    assert review([record(0, 0.1), broken(0, 0.2)]) == set()


def test_a_budget_left_unspent_while_accuracy_is_high_is_named() -> None:
    idle = [record(index, 0.1, cost=0.01) for index in range(3)]
    assert review(list(idle), radii=(0.1,)) == {"budget used"}
    assert review([record(index, 0.1, cost=0.09) for index in range(3)], radii=(0.1,)) == set()
    won = [broken(index, 0.1, cost=0.01) for index in range(3)]
    assert review(list(won), radii=(0.1,)) == set()


def test_successes_undone_by_rounding_are_named() -> None:
    assert review([broken(0, 0.1, eight_bit=False)], radii=(0.1,)) == {"outlives 8 bits"}
    assert review([broken(0, 0.1, eight_bit=True)], radii=(0.1,)) == set()


def test_at_the_smallest_radius_rounding_may_undo_a_success() -> None:
    """Such an example has only just crossed the boundary: no reason for distrust."""
    found = sanity.review([broken(0, 0.1, eight_bit=False)], settings(radii=(0.1,), smallest=True))
    check = next(check for check in found if check.name == "outlives 8 bits")
    assert check.passed and "1 of 1 successes are undone" in check.seen


def test_every_check_has_its_paragraph() -> None:
    found = [*sanity.probe(subject_of(standard()), settings()), *sanity.review([], settings())]
    headings = {line.removeprefix("## ") for line in DOCUMENT.read_text().splitlines() if line.startswith("## ")}
    assert {check.name for check in found} == headings
    assert all(str(check.as_json()["read"]).startswith("docs/checks.md#") for check in found)
