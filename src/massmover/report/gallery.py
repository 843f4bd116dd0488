"""Which examples the page shows, and what it says about each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from massmover.evaluation.store import Record
from massmover.report import flow, pictures
from massmover.report.runs import Run

CARDS = 60
LARGEST_ICON = 96  # pixels a side of images that are shown larger than they are


class Card(NamedTuple):
    """One example, ready to be shown."""

    run: str
    anchor: str  # to link to
    image: int  # its number in the data set
    label: int
    name: str  # of its class
    before: str  # answers, by name
    after: str
    radius: float  # all four in pixels; times `scale` they are radius x pixels
    cost: float
    distance: float | None
    proved: float | None  # no plan within this radius changes the answer; None where nobody asked
    scale: float
    share: float  # of the budget, by exact distance
    first: bool  # at the smallest radius that broke the image
    original: str
    adversarial: str
    difference: str
    plan: Markup
    detail: pictures.Detail | None  # what part of the image the plan is drawn for; None for the whole
    field: Markup  # where pixels' mass goes on average
    factor: int  # by which its arrows are longer
    moves: str  # that the page lets fly
    sides: tuple[int, int]  # rows and columns
    channels: int

    @property
    def large(self) -> bool:
        """Whether the image is a photograph rather than an icon, to be shown as large as it is."""
        return max(self.sides) > LARGEST_ICON


def cards(runs: Sequence[Run], *, limit: int = CARDS) -> list[Card]:
    """Examples to show: every class gets its turn, smaller radii first, clean mistakes left out."""
    found: list[Card] = []
    for place, run in enumerate(runs):
        number = place + 1 if len(runs) > 1 else None
        verdicts = run.verdicts(run.goals[-1])  # what is saved has reached its target
        for record, row in turns(run)[: max(1, limit // len(runs))]:
            first = verdicts[record.index].radius == record.radius
            found.append(_card(run, record, row, number=number, first=first))
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


def anchor(run: Run, record: Record, *, number: int | None) -> str:
    """The address of an example within the page; `number` tells runs apart where there are several."""
    place = f"image-{record.index}-radius-{record.radius_pixels:.4g}"
    return place if number is None else f"run-{number}-{place}"


def _card(run: Run, record: Record, row: int, *, number: int | None, first: bool) -> Card:
    assert run.examples is not None
    original, adversarial, moves = (run.examples[name][row] for name in ("original", "adversarial", "moves"))
    spent = record.cost if record.distance is None else record.distance
    rows, columns = original.shape[1:]
    part = pictures.detail(moves, height=rows, width=columns)
    proof = None if run.proofs is None else run.proofs[row]
    everything = flow.all_moves(proof, moves, shape=original.shape)
    field = flow.field_of(original, everything)
    return Card(
        run=run.name,
        anchor=anchor(run, record, number=number),
        image=record.index,
        label=record.label,
        name=run.class_name(record.label),
        before=run.class_name(record.prediction_before),
        after=run.class_name(int(run.examples["prediction"][row])),
        radius=record.radius,
        cost=record.cost,
        distance=record.distance,
        proved=record.certified,
        scale=run.scale,
        share=min(1.0, spent / record.radius) if record.radius > 0 else 0.0,
        first=first,
        original=pictures.picture(original),
        adversarial=pictures.picture(adversarial),
        difference=pictures.difference(original, adversarial),
        plan=pictures.arrows(original, moves, title=f"Where the mass of image {record.index} went"),
        detail=part if part.side < max(rows, columns) else None,
        field=flow.drawn(adversarial, field, title=f"Which way the mass of image {record.index} moved"),
        factor=flow.factor_of(field),
        moves=flow.packed(everything, shape=original.shape),
        sides=(rows, columns),
        channels=len(original),
    )
