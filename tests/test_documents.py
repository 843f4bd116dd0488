"""What the documents say can be done: every Python block runs as it stands, every command line is understood.

The blocks of a section run in one name space, after those that stand before the first section of the page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from finished import finished_run
from massmover.cli import app

ROOT = Path(__file__).parents[1]
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(massmover [^`]+)`", re.DOTALL)
COMMANDS = typer.main.get_command(app)


def read(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


def python_blocks(text: str) -> list[str]:
    return [code for language, code in FENCED.findall(text) if language == "python"]


def sections() -> list[Any]:
    """The code of every section that holds any, and of pages where all of it stands before the first section."""
    found = []
    for page in PAGES:
        preamble, *rest = re.split(r"^## ", read(page), flags=re.MULTILINE)
        first = python_blocks(preamble)
        own = {section.partition("\n")[0]: python_blocks(section) for section in rest}
        with_code = {heading: blocks for heading, blocks in own.items() if blocks}
        if first and not with_code:
            found.append(pytest.param(first, id=page))
        found += [pytest.param([*first, *blocks], id=f"{page}: {heading}") for heading, blocks in with_code.items()]
    return found


def command_lines() -> list[Any]:
    """Every call of massmover in a block that is not Python, without comments."""
    found = []
    for page in PAGES:
        blocks = [block for language, block in FENCED.findall(read(page)) if language != "python"]
        lines = "".join(blocks).replace("\\\n", " ").splitlines()
        calls = [re.sub(r"^torchrun .*-m massmover ", "massmover ", line) for line in lines]
        found += [pytest.param(line, id=f"{page}: {line}") for line in calls if line.startswith("massmover ")]
    return found


def mentions() -> Iterator[tuple[str, str]]:
    """Every call of massmover within a sentence; such a call may be cut short."""
    for page in PAGES:
        for call in INLINE.findall(FENCED.sub("", read(page))):
            yield page, " ".join(call.split())


def understood(line: str) -> None:
    """Parse a command line as the program does, without running it."""
    _, *words = shlex.split(line, comments=True)
    command = COMMANDS
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
    command.make_context(command.name, words)


def options_of(call: str) -> tuple[set[str], set[str]]:
    """The options that a call names, and those that its command has."""
    _, *words = call.split()
    command = COMMANDS
    while hasattr(command, "commands") and words:
        command = command.commands[words.pop(0)]
    known = {"--help"}.union(*(parameter.opts for parameter in command.params))
    return {word for word in words if word.startswith("--")}, known


def test_no_block_is_overlooked() -> None:
    for page in PAGES:
        text = read(page)
        assert text.count("```") == 2 * len(FENCED.findall(text)), page
        assert {language for language, _ in FENCED.findall(text)} <= {"", "python"}, page
        run = "".join("".join(section.values[0]) for section in sections() if str(section.id).startswith(page))
        assert all(block in run for block in python_blocks(text)), page
    assert len(PAGES) > 10
    assert len(command_lines()) > 20


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


@pytest.mark.parametrize("line", command_lines())
def test_the_command_lines_are_understood(line: str) -> None:
    understood(line)


def test_the_options_named_in_sentences_exist() -> None:
    for page, call in mentions():
        named, known = options_of(call)
        assert named <= known, f"{page}: {call}"


@pytest.mark.parametrize("line", ["massmover evaluate --radii 0.1 --out DIR", "massmover judge DIR", "massmover train"])
def test_a_wrong_command_line_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"[Nn]o such option|judge|[Mm]issing"):
        understood(line)
