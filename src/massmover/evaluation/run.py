"""The loop of an evaluation: batch after batch, each kept on disk before the next begins."""

from __future__ import annotations

import platform
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from massmover.backend import backend_for
from massmover.evaluation.batch import evaluate_batch
from massmover.evaluation.sanity import Check, probe, review
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
    read_json,
    room_for,
    write_part,
)
from massmover.evaluation.subject import (
    Subject,
    ball_for,
    file_checksum,
    score_fingerprint,
    training_time,
    weights_checksum,
)
from massmover.evaluation.summary import summarise
from massmover.evaluation.watcher import Progress, Watcher
from massmover.ranks import Ranks
from massmover.types import MassmoverError, StoppedError


class Destination(NamedTuple):
    """Where a run is kept, whether it goes on there, and the command that asked for it."""

    out: Path
    resume: bool = False
    command: Sequence[str] = ()


def run(
    subject: Subject,
    settings: Settings,
    destination: Destination,
    *,
    ranks: Ranks | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Evaluate, keep everything in a folder, and return the summary.

    Killed at any moment, the same call with `resume` continues with the first batch that was not finished. Batches are
    the same whatever the number of processes, so that the records are too. The model is tried on a few images first, so
    that a broken one is known in seconds.
    """
    ranks, watcher = ranks or Ranks(), watcher or Watcher()
    batches, folder = batches_of(settings), RunFolder(destination.out)
    with _nothing_left_behind(folder, ranks):
        kept = ranks.once(lambda: _open(subject, settings, destination))
        with _stopping(folder):
            probes = ranks.once(lambda: probe(subject, settings))
        watcher.probed(probes)
        done = {record.index for record in kept}
        mine = [batch for batch in batches if batch.start not in done][ranks.rank :: ranks.size]
        target = folder.records if ranks.size == 1 else folder.rank_records(ranks.rank)
        seen = list(kept) if ranks.first else []
        total = len(done) + sum(map(len, mine)) if ranks.first else sum(map(len, mine))
        watcher.progressed(_progress(seen, settings, total))
        with _stopping(folder):
            for batch in mine:
                found, pictures = evaluate_batch(subject, settings, batch, hear=partial(watcher.searching, batch))
                keep = chosen_examples(pictures, limit=settings.save_examples)
                if keep:
                    write_part(folder, batch, arrays_of(keep, settings, shape=keep[0].original.shape))
                append_records(target, found)
                seen.extend(found)
                watcher.progressed(_progress(seen, settings, total))
        ranks.wait()
        return ranks.once(lambda: _close(subject, settings, folder, probes))


@contextmanager
def _stopping(folder: RunFolder) -> Iterator[None]:
    """Tell a full disk, and whatever the model raises hours after it was tried, from what was asked wrongly."""
    try:
        yield
    except OSError as problem:
        raise _full(folder, problem) from problem
    except MassmoverError:
        raise
    except Exception as problem:  # whatever the model raises
        raise StoppedError(f"the run stopped: {_told(problem)}") from problem


def _full(folder: RunFolder, problem: OSError) -> StoppedError:
    return StoppedError(f"--out {folder.path} could not be written to ({problem.strerror}): free some space")


def _told(problem: Exception) -> str:
    """What was raised, and where."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(problem).__name__}: {(str(problem).splitlines() or ['no message'])[0]}{place}"


def batches_of(settings: Settings) -> list[range]:
    """The images in batches, by their numbers in the data set."""
    numbers, size = settings.numbers, settings.batch_size
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


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
        "class_names": list(class_names_of(subject)),
        "weights": {
            "checksum": weights_checksum(subject.model),
            "file_checksum": file_checksum(settings.weights),
            "scores": score_fingerprint(subject),
            "parameters": sum(value.numel() for value in subject.model.state_dict().values()),
            "trained": training_time(settings),
        },
        "mask": file_checksum(settings.mask),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("massmover", "torch", "numpy", "POT")},
        },
        "backend": backend_for(subject.images.images[:0].to(subject.device), wanted=settings.backend),
        "command": shlex.join(command) if command else None,
        "platform": f"{platform.system()} {platform.machine()}, {sys.byteorder} endian",
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def class_names_of(subject: Subject) -> tuple[str, ...]:
    """What the classes are called, by the model's own table (Hugging Face's `config.id2label`) or by the data set."""
    table = getattr(getattr(subject.model, "config", None), "id2label", None)
    if isinstance(table, dict) and all(isinstance(name, str) for name in table.values()):
        by_number = {int(number): name for number, name in table.items() if str(number).isdecimal()}
        return tuple(by_number.get(number, str(number)) for number in range(max(by_number, default=-1) + 1))
    return subject.images.class_names


def _open(subject: Subject, settings: Settings, destination: Destination) -> list[Record]:
    """Prepare the folder, or continue one; the records that are already there."""
    if settings.eight_bit and not subject.eight_bit():
        raise MassmoverError(f"--eight-bit needs 8-bit images, and {subject.images.name} holds others: leave it out")
    ball_for(settings, settings.radii[-1]).around(subject.pixels(settings.numbers[:1]), backend=settings.backend)
    out, batches = destination.out, batches_of(settings)
    manifest = manifest_of(subject, settings, command=destination.command)
    if destination.resume:
        folder = check_resumable(out, _as_before(RunFolder(out), subject, manifest))
    else:
        folder = check_new(out)
    lines = len(settings.numbers) * len(settings.radii)
    saved = lines if settings.save_examples is None else min(lines, settings.save_examples * len(batches))
    check_room(out, bytes_needed=room_for(lines=lines, examples=saved, numbers_per_image=subject.numbers_per_image))
    if not folder.manifest.exists() or read_json(folder.manifest)["settings"] != manifest["settings"]:
        folder.write_json(folder.manifest, manifest)
    folder.parts.mkdir(exist_ok=True)
    return merge_records(folder, batches=batches, per_image=settings.records_per_image)


def _as_before(folder: RunFolder, subject: Subject, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a run as it would be with as few images as it was begun with: a run may grow."""
    if not folder.manifest.exists():
        return manifest
    before = read_json(folder.manifest)
    count = (before.get("settings") or {}).get("count")
    if not isinstance(count, int) or not 0 < count < len(subject.images):
        return manifest
    begun = subject.images.subset(0, count)
    name = (before.get("data") or {}).get("name")  # says which part of the data set it is, and so differs
    data = {**manifest["data"], "name": name, "checksum": begun.checksum(), "images": count}
    return {**manifest, "settings": {**manifest["settings"], "count": count}, "data": data}


@contextmanager
def _nothing_left_behind(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Where a new run fails before it kept anything, remove its folder: the mended command then finds none."""
    new = ranks.first and not folder.manifest.exists()
    try:
        yield
    except Exception:  # raised again below
        if new and folder.manifest.exists():
            _take_back(folder)
        raise


def _take_back(folder: RunFolder) -> None:
    """Remove the files of a run that has kept nothing."""
    if any(path.stat().st_size for path in (folder.records, *folder.parts.glob("*")) if path.exists()):
        return
    for path in (folder.records, *folder.parts.glob("*"), folder.manifest):
        path.unlink(missing_ok=True)
    for place in (folder.parts, folder.path):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _close(subject: Subject, settings: Settings, folder: RunFolder, probes: Sequence[Check]) -> dict[str, Any]:
    """Merge what all processes found into the final files."""
    try:
        return _closed(subject, settings, folder, probes)
    except OSError as problem:
        raise _full(folder, problem) from problem


def _closed(subject: Subject, settings: Settings, folder: RunFolder, probes: Sequence[Check]) -> dict[str, Any]:
    per_image = settings.records_per_image
    found = merge_records(folder, batches=batches_of(settings), per_image=per_image)
    if len(found) != len(settings.numbers) * per_image:
        raise MassmoverError(f"--out {folder.path} lacks records of some images: run the same command with --resume")
    summary = summarise(found, settings, numbers_per_image=subject.numbers_per_image)
    summary["checks"] = [check.as_json() for check in (*probes, *review(found, settings))]
    if settings.save_examples != 0:
        shape = tuple(subject.images.images.shape[1:])
        summary["examples"] = merge_examples(folder, found, settings, shape=shape)
    folder.write_json(folder.summary, summary)
    for part in folder.parts.glob("*"):
        part.unlink()
    folder.parts.rmdir()
    return summary


def _progress(seen: Sequence[Record], settings: Settings, total: int) -> Progress:
    last = seen if settings.smallest else [record for record in seen if record.radius == settings.radii[-1]]
    right = sum(not (record.misled or record.clean_mistake) for record in last)
    return Progress(done=len(last), total=total, accuracy=right / len(last) if last else 0.0)
