"""Every Python block of these documents runs as it stands.

The blocks of a section run in one name space, after those that stand before the first section of the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from finished import finished_run

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("adapters.md", "models.md")
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> list[Any]:
    """Page, heading and code of every section that holds any."""
    found = []
    for page in PAGES:
        preamble, *rest = re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        for section in rest:
            heading, blocks = section.partition("\n")[0], FENCED.findall(section)
            if blocks:
                found.append(pytest.param([*FENCED.findall(preamble), *blocks], id=f"{page}: {heading}"))
    return found


def test_no_block_is_overlooked() -> None:
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        assert text.count("```python") == len(FENCED.findall(text)) > 1
    assert len(sections()) == sum(len(re.findall(r"^## ", (DOCS / page).read_text(), re.MULTILINE)) for page in PAGES)


# Foolbox imports scipy.ndimage.filters, which warns.
@pytest.mark.filterwarnings("ignore:.*scipy.ndimage.*:DeprecationWarning")
@pytest.mark.parametrize("blocks", sections())
def test_the_blocks_run(blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if '"DIR"' in "".join(blocks):
        finished_run(tmp_path / "DIR", count=4, radii=(0.1,))
    names: dict[str, Any] = {"__name__": "document"}
    for block in blocks:
        try:
            exec(compile(block, "document", "exec"), names)
        except ImportError as error:
            pytest.skip(f"a library is missing: {error}")
