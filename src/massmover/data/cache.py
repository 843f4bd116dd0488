"""Where data sets are kept on disk."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(folder: str | Path | None = None) -> Path:
    """Say where data sets are kept; the folder need not exist yet.

    The argument wins, then the environment variable MASSMOVER_DATA, then `massmover`
    in XDG_CACHE_HOME, then ~/.cache/massmover.
    """
    chosen = folder or os.environ.get("MASSMOVER_DATA")
    if chosen:
        return Path(chosen).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (base if base.is_absolute() else Path.home() / ".cache") / "massmover"
