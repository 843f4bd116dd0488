"""The folder of a run: records line by line, examples, what may be resumed; all readable after a crash."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from massmover.attacks.show import MOVES
from massmover.evaluation.proof import Moves
from massmover.evaluation.proof_file import proof_arrays, proofs_in
from massmover.evaluation.settings import Settings, differences, same_scores
from massmover.files import replace_file
from massmover.types import Images, MassmoverError


@dataclass(frozen=True)
class Record:
    """What happened to one image at one radius."""

    index: int  # number of the image in its data set
    label: int
    radius: float
    radius_pixels: float
    prediction_before: int
    prediction_after: int
    target: int | None  # the class the attack had to reach; None where any wrong class would do
    success: bool  # the classifier is wrong (says the target) and exact transport finds the image inside the ball
    attack_success: bool | None  # what the attack itself claimed at this radius; None where it was not asked again
    carried_from: float | None  # the smaller radius whose example counts here, because balls are nested
    violation: str | None  # why exact transport refused the example
    cost: float  # certified by the plan
    distance: float | None  # exact transport; measured for every claimed success
    mass_drift: float
    range: tuple[float, float]  # smallest and largest pixel
    steps: int
    seconds: float  # of the attack, per image of its batch
    trusted: bool  # the plan proves the example inside
    eight_bit: bool | None  # the success outlives rounding to 8 bits; None where there is nothing to round
    certified: float | None = None  # no plan within this radius changes the right answer; None where nobody asked
    proved: bool | None = None  # the moves of its plan were checked in exact arithmetic; None where nothing was claimed
    margin_before: float | None = None  # how far the scores of the original are from success; 0 or less is one
    margin: float | None = None  # the same of the image that was found; None in records of earlier versions

    @property
    def clean_mistake(self) -> bool:
        """Whether the classifier was wrong before anything moved."""
        return self.prediction_before != self.label

    @property
    def contradicted(self) -> bool:
        """Whether the image was broken where it was certified: one of the two halves is wrong."""
        if self.certified is None or not self.success or self.clean_mistake:
            return False
        return (self.radius if self.carried_from is None else self.carried_from) < self.certified

    @property
    def misled(self) -> bool:
        """Whether the example found is proven and answered wrongly: the target, or any other wrong class."""
        stray = self.target is not None and self.proved is True and self.prediction_after != self.label
        return self.success or (stray and self.violation is None)

    @property
    def used(self) -> float:
        """The share of the budget that was spent."""
        return self.cost / self.radius if self.radius > 0 else 0.0


NAMES = tuple(field.name for field in fields(Record))


def line_of(record: Record) -> str:
    """One record as a line of JSON; a number that JSON cannot hold becomes null."""
    values = asdict(record)
    for name in ("distance", "margin_before", "margin"):
        values[name] = values[name] if values[name] is None or math.isfinite(values[name]) else None
    return json.dumps(values, allow_nan=False) + "\n"


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Add records to the end of a file and hand them to the disk before returning."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line_of(record) for record in records))
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[Record]:
    """All whole records of a file; a last line that was cut off by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    whole, rest = lines[:-1], lines[-1]  # what follows the last newline was never finished
    del rest
    return [_record(line, path=path, number=number) for number, line in enumerate(whole, start=1)]


def _record(line: bytes, *, path: Path, number: int) -> Record:
    try:
        values: Any = json.loads(line.decode("utf-8"))
        values["range"] = tuple(values["range"])
        record = Record(**values)
        _check_types(record)
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as problem:
        raise MassmoverError(
            f"{path} is damaged: line {number} is no record of this package ({type(problem).__name__}). "
            "Restore the file, or start again with another --out folder."
        ) from problem
    return record


def _check_types(record: Record) -> None:
    whole = (record.index, record.label, record.prediction_before, record.prediction_after, record.steps)
    if not all(isinstance(value, int) for value in whole):
        raise TypeError("a whole number is missing")
    real = (record.radius, record.radius_pixels, record.cost, record.mass_drift, record.seconds, *record.range)
    if not all(isinstance(value, (int, float)) for value in real):
        raise TypeError("a number is missing")


def in_order(records: Sequence[Record]) -> list[Record]:
    """Sorted by image, then radius, each pair once (the last written wins)."""
    latest = {(record.index, record.radius): record for record in records}
    return [latest[key] for key in sorted(latest)]


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Replace a file by these records, whole or not at all."""
    replace_file(path, "".join(line_of(record) for record in records).encode())


BYTES_PER_RECORD = 600
PROBE_BYTES = 1 << 20


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @property
    def manifest(self) -> Path:
        """Every setting resolved, versions, the command, checksums."""
        return self.path / "manifest.json"

    @property
    def records(self) -> Path:
        """One line per image and radius."""
        return self.path / "records.jsonl"

    @property
    def summary(self) -> Path:
        """Accuracy against radius."""
        return self.path / "summary.json"

    @property
    def examples(self) -> Path:
        """Saved successes."""
        return self.path / "examples.npz"

    @property
    def report(self) -> Path:
        """The page to look at."""
        return self.path / "report.html"

    @property
    def parts(self) -> Path:
        """Unmerged pieces of a run under way; gone once it is complete."""
        return self.path / "parts"

    def rank_records(self, rank: int) -> Path:
        """Where one of several processes appends its records."""
        return self.parts / f"records-{rank:04d}.jsonl"

    def write_json(self, path: Path, values: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        replace_file(path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or one clear error."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MassmoverError(f"{path} is missing: {path.parent} is no folder of a run") from None
    except (OSError, ValueError) as problem:
        raise MassmoverError(f"{path} is damaged ({problem}): restore it, or start again with another --out") from None
    if not isinstance(values, dict):
        raise MassmoverError(f"{path} is damaged: it holds no JSON object. Start again with another --out folder.")
    return values


def check_new(path: Path) -> RunFolder:
    """Refuse a folder that already holds something, so that nothing is ever overwritten."""
    if path.is_dir() and any(path.iterdir()):
        raise MassmoverError(f"--out {path} is not empty: add --resume to continue that run, or choose another folder")
    return RunFolder(path)


def check_resumable(path: Path, manifest: dict[str, Any]) -> RunFolder:
    """Refuse to continue a run that was made with other settings, and say which."""
    folder = RunFolder(path)
    if not folder.manifest.exists():
        if path.is_dir() and any(entry.name != "parts" for entry in path.iterdir()):
            raise MassmoverError(f"--resume: --out {path} holds files but no manifest.json, so it is no run to resume")
        return folder  # killed before the manifest was written, or never started: start now
    before = read_json(folder.manifest)
    changed = differences(before.get("settings", {}), manifest["settings"])
    for what in ("data", "weights"):
        was, now = (_plain(values.get(what)) for values in (before, manifest))
        if was != now:
            changed.append(f"contents of --{what}: was {was}, is {now}")
    was, now = ((values.get("weights") or {}).get("scores") for values in (before, manifest))
    if was and now and not same_scores(was, now):
        changed.append("the answers of --model on the first images are others: it was changed in between")
    if changed:
        raise MassmoverError(
            f"--resume: {path} was made with other settings. {'; '.join(changed)}. "
            "Give the same settings, or choose another --out folder."
        )
    return folder


def _plain(contents: dict[str, Any] | None) -> dict[str, Any] | None:
    """What must be the same to the letter; scores are compared as numbers."""
    return contents and {name: value for name, value in contents.items() if name != "scores"}


def check_room(path: Path, *, bytes_needed: int) -> None:
    """Fail now rather than after an hour: the folder must take files, and the disk must hold the whole run."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"\0" * min(bytes_needed, PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise MassmoverError(f"--out {path} cannot be written to ({reason}): choose another folder") from None
    free = shutil.disk_usage(path).free
    if free < bytes_needed:
        raise MassmoverError(
            f"--out {path} has {free / 1e6:,.0f} MB free and the run may need {bytes_needed / 1e6:,.0f} MB: "
            "free some space, choose another folder, or save fewer examples with --save-examples"
        )


def room_for(*, lines: int, examples: int, numbers_per_image: int) -> int:
    """Bytes the run may need at most: records twice while they are merged, and examples twice."""
    return 2 * lines * BYTES_PER_RECORD + 2 * examples * numbers_per_image * 8 + (1 << 16)


def merge_records(folder: RunFolder, *, batches: list[range], per_image: int) -> list[Record]:
    """Bring the records of all processes into one file, and drop batches that were cut off half way."""
    found = read_records(folder.records)
    shards = sorted(folder.parts.glob("records-*.jsonl")) if folder.parts.is_dir() else []
    for shard in shards:
        found.extend(read_records(shard))
    lines: dict[int, list[Record]] = {}
    for record in in_order(found):
        lines.setdefault(record.index, []).append(record)
    kept: list[Record] = []
    for batch in batches:
        if all(len(lines.get(index, [])) == per_image for index in batch):
            kept.extend(record for index in batch for record in lines[index])
    write_records(folder.records, kept)
    for shard in shards:
        shard.unlink()
    return kept


COLUMNS = ("index", "radius", "label", "prediction", "original", "adversarial", "moves")

Arrays = dict[str, NDArray[Any]]


class Example(NamedTuple):
    """One saved success."""

    record: Record
    original: NDArray[np.float32]  # (C, H, W)
    adversarial: NDArray[np.float32]
    moves: NDArray[np.float32]  # (MOVES, 6): channel, from row, from column, to row, to column, mass
    proof: Moves | None = None  # all moves, as a proof; None where the image that is kept is another than the plan's


def preference(record: Record) -> tuple[int, int, float]:
    """Which examples come first: real changes, then carried ones, then clean mistakes."""
    return (2 if record.clean_mistake else 1 if record.carried_from is not None else 0, record.index, record.radius)


def chosen_examples(examples: Sequence[Example], *, limit: int | None) -> list[Example]:
    """The examples to keep: one per image first, at the smallest radius that broke it, then the others."""
    firsts: dict[int, Example] = {}
    for example in sorted(examples, key=lambda example: preference(example.record)):
        firsts.setdefault(example.record.index, example)
    first_keys = {(example.record.index, example.record.radius) for example in firsts.values()}

    def order(example: Example) -> tuple[bool, tuple[int, int, float]]:
        key = (example.record.index, example.record.radius)
        return (example.record.clean_mistake or key not in first_keys, preference(example.record))

    ranked = sorted(examples, key=order)
    return ranked if limit is None else ranked[:limit]


def arrays_of(examples: Sequence[Example], settings: Settings, *, shape: tuple[int, ...]) -> Arrays:
    """Examples as the columns of examples.npz, by image and radius, with their proofs (docs/proof-format.md)."""
    rows = sorted(examples, key=lambda example: (example.record.index, example.record.radius))
    taken = [example.record for example in rows]
    return {
        "index": np.array([record.index for record in taken], dtype=np.int64),
        "radius": np.array([record.radius for record in taken], dtype=np.float64),
        "label": np.array([record.label for record in taken], dtype=np.int64),
        "prediction": np.array([record.prediction_after for record in taken], dtype=np.int64),
        "original": np.array([example.original for example in rows], dtype=np.float32).reshape(-1, *shape),
        "adversarial": np.array([example.adversarial for example in rows], dtype=np.float32).reshape(-1, *shape),
        "moves": np.array([example.moves for example in rows], dtype=np.float32).reshape(-1, MOVES, 6),
        **proof_arrays([example.proof for example in rows], settings.claim()),
    }


def numpy_image(image: Images) -> NDArray[np.float32]:
    """One image as an array."""
    array: NDArray[np.float32] = image.detach().to("cpu", torch.float32).numpy()
    return array


def write_part(folder: RunFolder, batch: range, arrays: Arrays) -> None:
    """Keep a batch's examples until the run is complete."""
    folder.parts.mkdir(exist_ok=True)
    save_arrays(folder.parts / f"examples-{batch.start:08d}.npz", arrays)


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write an .npz file, whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    replace_file(path, buffer.getvalue())


def load_examples(path: Path) -> Arrays:
    """The arrays of a file of examples."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if name.startswith("proof_")} | {
                name: archive[name] for name in COLUMNS
            }
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as problem:
        raise MassmoverError(
            f"{path} is damaged ({type(problem).__name__}): remove it, or start again with another --out folder"
        ) from problem


def merge_examples(folder: RunFolder, records: Sequence[Record], settings: Settings, *, shape: tuple[int, ...]) -> int:
    """Bring all parts into examples.npz and return how many rows it has; doing it twice changes nothing."""
    known = {(record.index, record.radius): record for record in records if record.success}
    found: dict[tuple[int, float], Example] = {}
    earlier = [folder.examples] if folder.examples.exists() else []
    for part in [*earlier, *sorted(folder.parts.glob("examples-*.npz"))]:
        arrays = load_examples(part)
        proofs = proofs_in(arrays)
        for row, key in enumerate(zip(arrays["index"].tolist(), arrays["radius"].tolist(), strict=True)):
            if key in known:
                pictures = arrays["original"][row], arrays["adversarial"][row]
                proof = None if proofs is None else proofs.moves[row]
                found[key] = Example(known[key], *pictures, arrays["moves"][row], proof)
    kept = chosen_examples(list(found.values()), limit=settings.save_examples)
    save_arrays(folder.examples, arrays_of(kept, settings, shape=shape))
    return len(kept)
