"""Which examples the page shows, and what it says about each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from massmover.evaluation.store import Record
from massmover.report import pictures
from massmover.report.loading import Run

CARDS = 60


class Card(NamedTuple):
    """One example, ready to be shown."""

    run: str
    image: int  # its number in the data set
    label: int
    before: int
    after: int
    radius: float  # all three in radius x pixels
    cost: float
    distance: float | None
    share: float  # of the budget, by exact distance
    original: str
    adversarial: str
    difference: str
    plan: Markup


def cards(runs: Sequence[Run], *, limit: int = CARDS) -> list[Card]:
    """Examples to show: every class gets its turn, smaller radii first, clean mistakes left out."""
    found: list[Card] = []
    for run in runs:
        found.extend(_card(run, record, row) for record, row in turns(run)[: max(1, limit // len(runs))])
    return found


def available(runs: Sequence[Run]) -> int:
    """How many examples could be shown."""
    return sum(len(turns(run)) for run in runs)


def turns(run: Run) -> list[tuple[Record, int]]:
    """Saved examples with their rows, dealt out class by class so that the first few show them all."""
    if run.examples is None:
        return []
    known = {(record.index, record.radius): record for record in run.records}
    keys = zip(run.examples["index"].tolist(), run.examples["radius"].tolist(), strict=True)
    pairs = [(known[key], row) for row, key in enumerate(keys) if key in known and not known[key].clean_mistake]
    pairs.sort(key=lambda pair: (pair[0].radius, pair[0].index))
    turn: dict[int, int] = {}
    dealt = []
    for pair in pairs:
        label = pair[0].label
        turn[label] = turn.get(label, -1) + 1
        dealt.append((turn[label], pair))
    return [pair for _, pair in sorted(dealt, key=lambda entry: (entry[0], entry[1][0].label))]


def _card(run: Run, record: Record, row: int) -> Card:
    assert run.examples is not None
    original, adversarial = run.examples["original"][row], run.examples["adversarial"][row]
    spent = record.cost if record.distance is None else record.distance
    title = f"Where the mass of image {record.index} went"
    return Card(
        run=run.name,
        image=record.index,
        label=record.label,
        before=record.prediction_before,
        after=int(run.examples["prediction"][row]),
        radius=record.radius_pixels,
        cost=record.cost * run.scale,
        distance=None if record.distance is None else record.distance * run.scale,
        share=min(1.0, spent / record.radius) if record.radius > 0 else 0.0,
        original=pictures.picture(original),
        adversarial=pictures.picture(adversarial),
        difference=pictures.difference(original, adversarial),
        plan=pictures.arrows(original, run.examples["moves"][row], title=title),
    )
