"""The site's standings: pages made from the records of runs, when the site is built or by hand.

    python docs/standings/build.py FOLDER

Each archive `runs/DATA/MODEL.tar.xz` holds what `massmover evaluate` wrote about one model. A run is kept by

    tar -cJf docs/standings/runs/DATA/MODEL.tar.xz -C RUN manifest.json records.jsonl summary.json
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from massmover.report.page import write_page
from massmover.report.standings import write_standings

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

RUNS = Path(__file__).parent / "runs"
ENDING = ".tar.xz"


def build(place: Path) -> list[Path]:
    """Write a page of standings for each data set, and the report of each run that it leads to; say which."""
    pages = []
    for data in sorted(path for path in RUNS.iterdir() if path.is_dir()):
        folders = []
        for archive in sorted(data.glob("*" + ENDING)):
            folders.append(place / data.name / archive.name.removesuffix(ENDING))
            folders[-1].mkdir(parents=True)
            with tarfile.open(archive) as run:
                run.extractall(folders[-1], filter="data")
            pages.append(write_page([folders[-1]], folders[-1] / "report.html"))
        pages.append(write_standings(folders, place / f"{data.name}.html"))
    return pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    from mkdocs.structure.files import File

    with tempfile.TemporaryDirectory() as place:
        for page in build(Path(place)):
            address = "standings/" + page.relative_to(place).as_posix()
            files.append(File.generated(config, address, content=page.read_text(encoding="utf-8")))
    return files


if __name__ == "__main__":
    build(Path(sys.argv[1]))
