"""The classifiers that stand side by side in the paper's comparisons of defences."""

from __future__ import annotations

from dataclasses import replace

from massmover.models import BUNDLED, load_model
from massmover.reproduce.curves import Subject

STANDARD, ROBUST = "mnist-standard", "mnist-robust"
DIGITS = (1, 28, 28)


def lineup(subject: Subject, *, standard: str = STANDARD, robust: str = ROBUST) -> tuple[Subject, ...]:
    """The bundled standard classifier, the one asked for, the bundled robust one; each once, on the same images.

    Bundled classifiers read digits: on other images the one asked for stands alone.
    """
    if tuple(subject.images.shape[1:]) != DIGITS:
        return (subject,)
    others = [
        replace(subject, model=load_model(name), model_name=name)
        for name in (standard, robust)
        if name in BUNDLED and name != subject.model_name
    ]
    first = [other for other in others if other.model_name == standard]
    last = [other for other in others if other.model_name != standard]
    if subject.model_name == robust:
        return (*first, *last, subject)
    return (*first, subject, *last)


def short_name(model: str) -> str:
    """What a classifier is called where there is little room: the file of its weights, if it has one."""
    _, opening, file = model.partition(" (")
    return file.removesuffix(")").removesuffix(".safetensors") if opening else model
