"""Chosen files taken out of a downloaded archive, each verified before it gets its name."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from massmover.data.errors import DataError
from massmover.data.sources import SourceFile

CHUNK = 1 << 20

Progress = Callable[[str, int, int], None]  # what is being done, bytes done, bytes in all


def sha256(path: Path) -> str:
    """Give the checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def matches(path: Path, *, size: int, checksum: str) -> bool:
    """Say whether a file is there, whole and right."""
    return path.is_file() and path.stat().st_size == size and sha256(path) == checksum


def extract(archive: Path, target: Path, *, files: Sequence[SourceFile], progress: Progress) -> None:
    """Write the chosen files of a gzipped tar archive into a folder.

    Only members asked for by their exact path are read, and they get names chosen here,
    so nothing in the archive decides where anything is written.
    """
    wanted = {file.member: file for file in files}
    total, done = sum(file.size for file in files), 0
    try:
        with tarfile.open(archive, "r:gz") as content:
            for member in content:
                file = wanted.get(member.name)
                stream = content.extractfile(member) if file and member.isfile() else None
                if file is None or stream is None:
                    continue
                del wanted[member.name]
                progress(f"extracting {file.name}", done, total)
                _place(stream, target / file.name, file=file)
                done += file.size
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}); delete it and fetch again.") from error
    if wanted:
        raise DataError(f"{archive} lacks {', '.join(sorted(wanted))}; delete it and fetch again.")
    progress("extracting", total, total)


def _place(stream: IO[bytes], path: Path, *, file: SourceFile) -> None:
    """Write a stream under a temporary name, verify it, and only then give it its name."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as output:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
                output.write(chunk)
            output.flush()
            os.fsync(output.fileno())
        if digest.hexdigest() != file.sha256:
            raise mismatch(file.name, wanted=file.sha256, found=digest.hexdigest())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def mismatch(name: str, *, wanted: str, found: str) -> DataError:
    """Make the error for a file that is not the one expected."""
    return DataError(
        f"{name} has sha256 {found}; it should be {wanted}. It was not kept. "
        "Fetch again; if it happens twice, the registry or a proxy on the way gives out another file."
    )
