"""The folder of a run: what lies in it, whether it may be written to, and how it is resumed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from massmover.evaluation import records
from massmover.evaluation.records import Record
from massmover.evaluation.settings import differences
from massmover.types import MassmoverError

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
        records.replace_file(path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())


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
        if before.get(what) != manifest[what]:
            changed.append(f"contents of --{what}: was {before.get(what)}, is {manifest[what]}")
    if changed:
        raise MassmoverError(
            f"--resume: {path} was made with other settings. {'; '.join(changed)}. "
            "Give the same settings, or choose another --out folder."
        )
    return folder


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
    found = records.read(folder.records)
    shards = sorted(folder.parts.glob("records-*.jsonl")) if folder.parts.is_dir() else []
    for shard in shards:
        found.extend(records.read(shard))
    lines: dict[int, list[Record]] = {}
    for record in records.in_order(found):
        lines.setdefault(record.index, []).append(record)
    kept: list[Record] = []
    for batch in batches:
        if all(len(lines.get(index, [])) == per_image for index in batch):
            kept.extend(record for index in batch for record in lines[index])
    records.write(folder.records, kept)
    for shard in shards:
        shard.unlink()
    return kept
