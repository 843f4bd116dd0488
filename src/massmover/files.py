"""Files that are whole or not there: what a crash leaves is the old file or the new one, never a mixture."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, contents: bytes) -> None:
    """Write a file, whole or not at all."""
    replace_through(path, lambda beside: beside.write_bytes(contents))


def replace_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file beside the path, hand it to the disk, and give it the path's name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    beside = Path(name)
    try:
        write(beside)
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.chmod(0o666 & ~current_umask())  # mkstemp makes private files
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def current_umask() -> int:
    """Which permissions new files do not get. There is no way to ask but to set it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
