"""Make standings.html from the records of the runs beside it: python docs/standings/make.py [FILE].

Each archive of `runs` holds what `massmover evaluate` wrote about one model: manifest.json, records.jsonl, summary.json.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from massmover.report.standings import write_standings

HERE = Path(__file__).parent


def make(page: Path) -> Path:
    """Write the page from the archives."""
    with tempfile.TemporaryDirectory() as place:
        folders = []
        for archive in sorted(HERE.glob("runs/*.tar.xz")):
            folders.append(Path(place) / archive.name.removesuffix(".tar.xz"))
            with tarfile.open(archive) as run:
                run.extractall(folders[-1], filter="data")
        return write_standings(folders, page)


if __name__ == "__main__":
    print(make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "standings.html"))
