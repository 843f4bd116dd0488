"""The loop of an evaluation: batch after batch, each kept on disk before the next begins."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from massmover.evaluation.batch import evaluate_batch
from massmover.evaluation.sanity import probe, review
from massmover.evaluation.settings import Settings
from massmover.evaluation.store import (
    Record,
    RunFolder,
    append_records,
    arrays_of,
    check_new,
    check_resumable,
    check_room,
    chosen_examples,
    merge_examples,
    merge_records,
    room_for,
    write_part,
)
from massmover.evaluation.subject import Subject, file_checksum, weights_checksum
from massmover.evaluation.summary import summarise
from massmover.ranks import Ranks
from massmover.types import MassmoverError


class Progress(NamedTuple):
    """How far a run has come."""

    done: int  # images, of this process
    total: int
    accuracy: float  # at the largest radius, over the images done


Watcher = Callable[[Progress], None]


def run(
    subject: Subject,
    settings: Settings,
    *,
    out: Path,
    resume: bool = False,
    command: Sequence[str] = (),
    ranks: Ranks | None = None,
    watch: Watcher = lambda progress: None,
) -> dict[str, Any]:
    """Evaluate, keep everything in a folder, and return the summary.

    Killed at any moment, the same call with `resume` continues with the first batch that was not finished. Batches are
    the same whatever the number of processes, so that the records are too.
    """
    ranks = ranks or Ranks()
    batches = batches_of(settings)
    per_image = 1 if settings.smallest else len(settings.radii)
    kept = ranks.once(lambda: _open(subject, settings, batches, out=out, resume=resume, command=command))
    folder = RunFolder(out)
    done = {record.index for record in kept}
    mine = [batch for batch in batches if batch.start not in done][ranks.rank :: ranks.size]
    target = folder.records if ranks.size == 1 else folder.rank_records(ranks.rank)
    seen = list(kept) if ranks.first else []
    total = len(done) + sum(map(len, mine)) if ranks.first else sum(map(len, mine))
    watch(_progress(seen, settings, total))
    try:
        for batch in mine:
            found, pictures = evaluate_batch(subject, settings, batch)
            keep = chosen_examples(pictures, limit=settings.save_examples)
            if keep:
                write_part(folder, batch, arrays_of(keep, shape=keep[0].original.shape))
            append_records(target, found)
            seen.extend(found)
            watch(_progress(seen, settings, total))
    except OSError as problem:
        raise MassmoverError(
            f"--out {out} could not be written to ({problem.strerror}); what was done is kept: "
            "free some space and run the same command with --resume"
        ) from problem
    ranks.wait()
    return ranks.once(lambda: _close(subject, settings, batches, folder, per_image=per_image))


def batches_of(settings: Settings) -> list[range]:
    """The images in batches, by their numbers in the data set."""
    stop = settings.start + settings.count
    return [
        range(first, min(first + settings.batch_size, stop))
        for first in range(settings.start, stop, settings.batch_size)
    ]


def manifest_of(subject: Subject, settings: Settings, *, command: Sequence[str]) -> dict[str, Any]:
    """Where every number of the run comes from."""
    return {
        "format": 1,
        "settings": settings.as_json(),
        "data": {
            "name": subject.images.name,
            "checksum": subject.images.checksum(),
            "images": len(subject.images),
            "shape": list(subject.images.images.shape[1:]),
            "classes": subject.images.classes,
        },
        "weights": {"checksum": weights_checksum(subject.model), "file_checksum": file_checksum(settings.weights)},
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("massmover", "torch", "numpy", "POT")},
        },
        "command": shlex.join(command) if command else None,
        "platform": f"{platform.system()} {platform.machine()}, {sys.byteorder} endian",
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _open(
    subject: Subject, settings: Settings, batches: list[range], *, out: Path, resume: bool, command: Sequence[str]
) -> list[Record]:
    """Prepare the folder, or continue one; the records that are already there."""
    if settings.eight_bit and not subject.eight_bit():
        raise MassmoverError(f"--eight-bit needs 8-bit images, and {subject.images.name} holds others: leave it out")
    manifest = manifest_of(subject, settings, command=command)
    folder = check_resumable(out, manifest) if resume else check_new(out)
    lines = settings.count * len(settings.radii)
    saved = lines if settings.save_examples is None else min(lines, settings.save_examples * len(batches))
    check_room(out, bytes_needed=room_for(lines=lines, examples=saved, numbers_per_image=subject.numbers_per_image))
    if not folder.manifest.exists():
        folder.write_json(folder.manifest, manifest)
    folder.parts.mkdir(exist_ok=True)
    return merge_records(folder, batches=batches, per_image=1 if settings.smallest else len(settings.radii))


def _close(
    subject: Subject, settings: Settings, batches: list[range], folder: RunFolder, *, per_image: int
) -> dict[str, Any]:
    """Merge what all processes found into the final files."""
    found = merge_records(folder, batches=batches, per_image=per_image)
    if len(found) != settings.count * per_image:
        raise MassmoverError(f"--out {folder.path} lacks records of some images: run the same command with --resume")
    summary = summarise(found, settings, numbers_per_image=subject.numbers_per_image)
    verdicts = [*probe(subject, settings), *review(found, settings)]
    summary["checks"] = [check.as_json() for check in verdicts]
    if settings.save_examples != 0:
        shape = tuple(subject.images.images.shape[1:])
        summary["examples"] = merge_examples(folder, found, limit=settings.save_examples, shape=shape)
    folder.write_json(folder.summary, summary)
    for part in folder.parts.glob("*"):
        part.unlink()
    folder.parts.rmdir()
    return summary


def _progress(seen: Sequence[Record], settings: Settings, total: int) -> Progress:
    last = seen if settings.smallest else [record for record in seen if record.radius == settings.radii[-1]]
    right = sum(not (record.success or record.clean_mistake) for record in last)
    return Progress(done=len(last), total=total, accuracy=right / len(last) if last else 0.0)
