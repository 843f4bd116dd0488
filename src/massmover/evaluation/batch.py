"""One batch at every radius: attack, classify again, judge by exact transport, and only then count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from massmover.attacks import attack, smallest_radius
from massmover.attacks.api import method_of
from massmover.attacks.losses import margin_of
from massmover.attacks.show import largest_moves
from massmover.certificates import certified_radius
from massmover.compiling import working_seconds
from massmover.evaluation.eight_bit import LEVELS, survivor
from massmover.evaluation.proof import Moves, Verdict, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.evaluation.settings import Settings
from massmover.evaluation.store import Example, Record, numpy_image
from massmover.evaluation.subject import Subject, ball_for
from massmover.evaluation.verify import Verdicts, verify
from massmover.transport.plan import Plan
from massmover.types import Images, Labels, Logits, MassmoverError, PerImage, Stage

LARGEST = 1e9  # stands for an infinite certified radius, which JSON cannot hold
SAMPLED = 10  # every tenth image that fell is attacked again at larger radii


class Found(NamedTuple):
    """What an attack returned, in the words of this module."""

    images: Images
    claimed: PerImage  # bool: the attack says it won
    radius: PerImage
    steps: PerImage
    plan: Plan
    cost: PerImage
    trusted: PerImage
    mass_drift: PerImage
    seconds: float  # per image


class Batch(NamedTuple):
    """Images under attack."""

    numbers: Sequence[int]
    images: Images
    labels: Labels
    targets: Labels | None
    scores: Logits  # of the originals
    free: Images | None  # bool: where mass may move; None for everywhere

    @property
    def before(self) -> Labels:
        """Predictions on the originals."""
        return self.scores.argmax(dim=1)

    def select(self, rows: Sequence[int]) -> Batch:
        """Some of the images."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.images.device)
        targets = None if self.targets is None else self.targets[index]
        numbers, free = [self.numbers[row] for row in rows], None if self.free is None else self.free[index]
        return Batch(numbers, self.images[index], self.labels[index], targets, self.scores[index], free)


Hear = Callable[[float | None, Stage], None]  # where the attack at a radius is


def evaluate_batch(
    subject: Subject, settings: Settings, numbers: range, *, hear: Hear = lambda radius, stage: None
) -> tuple[list[Record], list[Example]]:
    """Records of a batch at every radius, and its successes as examples; in halves where memory does not hold it."""
    try:
        return _evaluated(subject, settings, numbers, hear)
    except (MemoryError, RuntimeError) as problem:
        if not _out_of_memory(problem):
            raise
        if len(numbers) == 1:
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise MassmoverError(
                f"image {numbers[0]} alone does not fit memory ({reason}): try a smaller --window"
            ) from None
    # Here, not above: while the exception is held, so is all that did not fit.
    middle = len(numbers) // 2
    first, second = (
        evaluate_batch(subject, settings, half, hear=hear) for half in (numbers[:middle], numbers[middle:])
    )
    return first[0] + second[0], first[1] + second[1]


def _out_of_memory(problem: Exception) -> bool:
    words = ("can't allocate memory", "bad_alloc")  # what torch says of the CPU's
    return isinstance(problem, (MemoryError, torch.cuda.OutOfMemoryError)) or any(w in str(problem) for w in words)


def _evaluated(subject: Subject, settings: Settings, numbers: range, hear: Hear) -> tuple[list[Record], list[Example]]:
    images, labels = subject.pixels(numbers), subject.labels(numbers)
    targets = _targets(subject, settings, numbers) if settings.targeted else None
    batch = Batch(numbers, images, labels, targets, scores=subject.logits(images), free=subject.free(numbers))
    records, examples = _attacked_everywhere(subject, settings, batch, hear)
    if settings.certify:
        found = certified_radius(subject.model, images, labels, ball=ball_for(settings, 0.0)).radius.clamp_max(LARGEST)
        radius = dict(zip(numbers, found.tolist(), strict=True))
        records = [replace(record, certified=radius[record.index]) for record in records]
    return records, _worth_saving(examples, settings)


def _attacked_everywhere(
    subject: Subject, settings: Settings, batch: Batch, hear: Hear
) -> tuple[list[Record], list[Example]]:
    """Records and examples of a batch at every radius, or at each image's smallest."""
    if settings.smallest:
        return _judged(subject, settings, batch, _smallest(subject, settings, batch, hear), earlier={})
    numbers = batch.numbers
    records: list[Record] = []
    examples: list[Example] = []
    earlier: dict[int, Example] = {}  # each image's example at the largest radius that broke it so far
    for radius in settings.radii:
        # What fell within a smaller radius has fallen here; a sample is attacked again, to see if the attack finds it.
        carried = [n for n in numbers if n in earlier and n % SAMPLED]
        rest = batch.select([row for row, n in enumerate(numbers) if n not in earlier or n % SAMPLED == 0])
        fresh = [_carried(earlier[n], radius, scale=subject.numbers_per_image) for n in carried]
        here = [example.record for example in fresh]
        if rest.numbers:
            attacked = _attacked(subject, settings, rest, radius, hear)
            tried, won = _judged(subject, settings, rest, attacked, earlier=earlier)
            here, fresh = here + tried, fresh + won
        records.extend(sorted(here, key=lambda record: record.index))
        examples.extend(fresh)
        earlier |= {example.record.index: example for example in fresh}
    return records, examples


def _worth_saving(examples: list[Example], settings: Settings) -> list[Example]:
    """The successes at a radius above 0 (at 0 nothing moved), and with --eight-bit only those that outlive 8 bits."""
    return [
        example
        for example in examples
        if example.record.radius > 0 and (example.record.eight_bit or not settings.eight_bit)
    ]


def _attacked(subject: Subject, settings: Settings, batch: Batch, radius: float, hear: Hear) -> Found:
    started = working_seconds()
    result = attack(
        subject.model,
        batch.images,
        batch.labels,
        ball=ball_for(settings, radius),
        method=method_of(settings.attack, steps=settings.steps, restarts=settings.restarts),
        targets=batch.targets,
        mask=batch.free,
        draws=settings.draws,
        seed=settings.seed,
        backend=settings.backend,
        watch=partial(hear, radius),
    )
    return Found(
        images=result.images,
        claimed=result.success,
        radius=torch.full_like(result.radius, radius),
        steps=result.steps,
        plan=result.plan,
        cost=result.cost,
        trusted=result.trusted,
        mass_drift=result.certificate.mass_drift,
        seconds=(working_seconds() - started) / len(batch.numbers),
    )


def _smallest(subject: Subject, settings: Settings, batch: Batch, hear: Hear) -> Found:
    started, ball = working_seconds(), ball_for(settings, settings.radii[-1])
    result = smallest_radius(
        subject.model,
        batch.images,
        batch.labels,
        ball=ball,
        method=method_of(settings.attack, steps=settings.steps, restarts=settings.restarts),
        targets=batch.targets,
        mask=batch.free,
        draws=settings.draws,
        seed=settings.seed,
        backend=settings.backend,
        watch=partial(hear, None),
    )
    radius = torch.where(result.success, result.radius, settings.radii[-1])
    return Found(
        images=result.images,
        claimed=result.success,
        radius=radius,
        steps=result.steps,
        plan=result.plan,
        cost=result.certificate.total,
        trusted=result.certificate.holds(radius, dtype=result.images.dtype, coherence=ball.coherence),
        mass_drift=result.certificate.mass_drift,
        seconds=(working_seconds() - started) / len(batch.numbers),
    )


def _judged(
    subject: Subject, settings: Settings, batch: Batch, found: Found, *, earlier: dict[int, Example]
) -> tuple[list[Record], list[Example]]:
    """Count what the classifier really gets wrong, whose proof holds, and which exact transport does not refuse."""
    scores = subject.logits(found.images)
    after = scores.argmax(dim=1)
    reached = _fooled(after, batch.labels, batch.targets) & found.claimed
    # an answer that is neither the label nor the target counts against accuracy, and so it needs a proof as well
    wrong = reached if batch.targets is None else reached | (after != batch.labels)
    claims = torch.nonzero(wrong.cpu()).flatten().tolist()
    proofs = {row: proving_moves(found.plan, batch.images, row) for row in claims}
    evidence = _evidence(subject, settings, batch, found, proofs)
    records = [
        _record(
            batch, found, row, prediction=int(after[row]), evidence=evidence.get(row), scale=subject.numbers_per_image
        )
        for row in range(len(batch.numbers))
    ]
    margins = _margins(batch.scores, batch), _margins(scores, batch)
    records = [
        replace(record, margin_before=before, margin=now) for record, before, now in zip(records, *margins, strict=True)
    ]
    records = [
        record if hit else replace(record, success=False) for record, hit in zip(records, reached.tolist(), strict=True)
    ]
    won = [row for row, record in enumerate(records) if record.success]
    rounded, survive = _eight_bit(subject, settings, batch, found, won)
    examples: list[Example] = []
    for position, row in enumerate(won):
        records[row] = replace(records[row], eight_bit=survive[position])
        pictures = numpy_image(batch.images[row]), numpy_image(rounded[position])
        proof = None if settings.eight_bit else proofs[row]  # the 8-bit image is another one than the plan's
        examples.append(Example(records[row], *pictures, largest_moves(found.plan, row), proof))
    for row, record in enumerate(records):
        if not record.success and record.index in earlier:
            scale = subject.numbers_per_image
            carried = _carried(earlier[record.index], record.radius, scale=scale, tried=record)
            records[row] = carried.record
            examples.append(carried)
    return records, examples


def _fooled(predictions: Labels, labels: Labels, targets: Labels | None) -> Tensor:
    return predictions != labels if targets is None else predictions == targets


def _margins(scores: Logits, batch: Batch) -> list[float]:
    """How far scores are from success: the label's lead over the best other class, or what the target lacks."""
    lacking: list[float] = (-margin_of(scores, batch.labels, targets=batch.targets)).tolist()
    return lacking


def _verdicts(settings: Settings, originals: Images, images: Images, radius: PerImage, free: Images | None) -> Verdicts:
    return verify(
        originals,
        images,
        radius,
        ground=settings.ground,
        power=settings.power,
        normalisation=settings.normalisation,
        mask=free,
    )


class Evidence(NamedTuple):
    """What speaks for a claimed success: its proof, checked, and where exact transport finds it, if measured."""

    proof: Verdict
    inside: bool | None
    distance: float | None
    violation: str | None  # why it does not count


def _evidence(
    subject: Subject, settings: Settings, batch: Batch, found: Found, proofs: Mapping[int, Moves]
) -> dict[int, Evidence]:
    """Check the proof of every claimed success, and measure all of them where that is cheap, else a sample."""
    size = subject.numbers_per_image
    measured = [row for row in proofs if settings.measures(batch.numbers[row], numbers_per_image=size)]
    free = None if batch.free is None else batch.free[measured]
    verdicts = _verdicts(settings, batch.images[measured], found.images[measured], found.radius.cpu()[measured], free)
    place = {row: position for position, row in enumerate(measured)}
    evidence = {}
    for row, moves in proofs.items():
        pictures = numpy_image(batch.images[row]), numpy_image(found.images[row])
        open_ = None if batch.free is None else batch.free[row].cpu().numpy()
        proof = check(*pictures, moves, settings.claim(float(found.radius[row])), free=open_)
        reasons = [] if proof.proved else [f"proof: {proof.reason}"]
        inside = distance = None
        if row in place:
            inside, distance = bool(verdicts.inside[place[row]]), float(verdicts.distance[place[row]])
            reasons += [] if inside else [verdicts.reason(place[row])]
        evidence[row] = Evidence(proof, inside, distance, "; ".join(reasons) or None)
    return evidence


def _record(batch: Batch, found: Found, row: int, *, prediction: int, evidence: Evidence | None, scale: int) -> Record:
    """One record; without evidence nothing was claimed."""
    image, radius = found.images[row], float(found.radius[row])
    return Record(
        index=batch.numbers[row],
        label=int(batch.labels[row]),
        radius=radius,
        radius_pixels=radius * scale,
        prediction_before=int(batch.before[row]),
        prediction_after=prediction,
        target=None if batch.targets is None else int(batch.targets[row]),
        success=evidence is not None and evidence.violation is None,
        attack_success=bool(found.claimed[row]),
        carried_from=None,
        violation=None if evidence is None else evidence.violation,
        cost=float(found.cost[row]),
        distance=None if evidence is None else evidence.distance,
        mass_drift=float(found.mass_drift[row]),
        range=(float(image.min()), float(image.max())),
        steps=int(found.steps[row]),
        seconds=found.seconds,
        trusted=bool(found.trusted[row]),
        eight_bit=None,
        proved=None if evidence is None else evidence.proof.proved,
    )


def _eight_bit(
    subject: Subject, settings: Settings, batch: Batch, found: Found, won: Sequence[int]
) -> tuple[Images, list[bool]]:
    """The images to save for the successes, and which of them outlive 8 bits.

    Without --eight-bit this asks only whether plain rounding undoes the success, and saves the image as it is.
    """
    rows = torch.tensor(won, dtype=torch.int64, device=batch.images.device)
    originals, images, labels = batch.images[rows], found.images[rows], batch.labels[rows]
    targets = None if batch.targets is None else batch.targets[rows]
    if not len(won):
        return images, []
    if not settings.eight_bit:
        plain = subject.predictions((images * LEVELS).round() / LEVELS)
        return images, [bool(value) for value in _fooled(plain, labels, targets)]

    saved, survive = images.clone(), []
    for position, row in enumerate(won):
        label, aim = labels[position], None if targets is None else targets[position]
        image = survivor(
            originals[position],
            images[position],
            fools=partial(_fools, subject, label=label, aim=aim),
            inside=partial(
                _inside,
                settings,
                original=originals[position],
                radius=float(found.radius[row]),
                free=None if batch.free is None else batch.free[row],
            ),
        )
        survive.append(image is not None)
        if image is not None:
            saved[position] = image
    return saved, survive


def _fools(subject: Subject, images: Images, *, label: Tensor, aim: Tensor | None) -> Tensor:
    return _fooled(subject.predictions(images), label, aim)


def _inside(settings: Settings, images: Images, *, original: Tensor, radius: float, free: Tensor | None) -> Tensor:
    return _verdicts(settings, original.expand_as(images), images, torch.full((len(images),), radius), free).inside


def _carried(earlier: Example, radius: float, *, scale: int, tried: Record | None = None) -> Example:
    """A success at a smaller radius is one here too, since the smaller ball lies inside the larger.

    `tried` is what an attack at this radius did, where there was one.
    """
    before = earlier.record
    record = replace(
        before,
        radius=radius,
        radius_pixels=radius * scale,
        carried_from=before.radius if before.carried_from is None else before.carried_from,
        violation=None if tried is None else tried.violation,
        attack_success=None if tried is None else tried.attack_success,
        steps=0 if tried is None else tried.steps,
        seconds=0.0 if tried is None else tried.seconds,
    )
    return earlier._replace(record=record)


def _targets(subject: Subject, settings: Settings, numbers: range) -> Labels:
    """A wrong class for every image, drawn from the seed and the image's number, whatever the batch."""
    classes = subject.logits(subject.pixels(numbers[:1])).shape[1]
    if classes < 2:
        raise MassmoverError("--targeted needs a model with two classes or more")
    labels = subject.labels(numbers)
    steps = [int(np.random.default_rng([settings.seed, number]).integers(1, classes)) for number in numbers]
    return (labels + torch.tensor(steps, device=labels.device)) % classes
