"""What needs no network answers without importing one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from commandline import environment, fresh

import massmover
from massmover import METHODS, names
from massmover.backend import BACKENDS
from massmover.cli import app, options
from massmover.models import ARCHITECTURES, BUNDLED
from massmover.training import RECIPES, TEACHERS
from massmover.training.recipe import ATTACKS

HEAVY = ("torch", "numba", "numpy", "scipy", "ot", "matplotlib", "jinja2", "rich.progress")
ASKED = (
    f"HEAVY = {HEAVY}"
    + """
import io, json, sys, contextlib
from massmover.__main__ import main
sys.argv = ["massmover", *sys.argv[1:]]
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    else:
        code = 0
print(json.dumps([code, [name for name in HEAVY if name in sys.modules], said.getvalue()]))
"""
)
COMMANDS = ("data", "train", "evaluate", "verify", "report", "demo", "natural", "reproduce", "selftest")
CASES: dict[str, tuple[int, str]] = {
    "--help": (0, "evaluate"),
    "--version": (0, massmover.__version__),
    **{f"{name} --help": (0, "Usage") for name in COMMANDS},
    "nonsense": (2, "nonsense"),
    "evaluate --count abc --radius 0.1 --out X": (2, "--count"),
    "evaluate --attack nonsense --radius 0.1 --out X": (2, "--attack"),
    "evaluate --window 4 --radius 0.1 --out X": (2, "--window"),
    "evaluate --out X": (2, "--radius is missing"),
    "evaluate --radius 0.1": (2, "--out"),
    "evaluate --power 0 --radius 0.1 --out X": (2, "--power"),
    "evaluate --backend abacus --radius 0.1 --out X": (2, "--backend"),
    "train --model nonsense --out X": (2, "--model"),
    "train --recipe nonsense --out X": (2, "--recipe"),
    "train --threads 0 --out X": (2, "--threads"),
    "reproduce nonsense": (2, "nonsense"),
    "verify nowhere.npz": (2, "nowhere.npz"),
    "report nowhere": (2, "nowhere"),
    "natural --distances -1 --out X": (2, "--distances"),
    "natural --translate many --out X": (2, "--translate"),
    "selftest --count 0": (2, "--count"),
    "demo --count 0": (2, "--count"),
}


@pytest.mark.parametrize("words", CASES)
def test_help_and_refusals_import_nothing_heavy(words: str, tmp_path: Path) -> None:
    asked = [sys.executable, "-c", ASKED, *words.split()]
    done = subprocess.run(asked, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    code, heavy, said = json.loads(done.stdout)
    expected, word = CASES[words]
    assert code == expected and word in said, said
    assert not heavy
    assert not list(tmp_path.iterdir())


def test_the_version_is_the_package_s(tmp_path: Path) -> None:
    done = fresh("--version", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.strip() == f"massmover {massmover.__version__}"


def test_names_are_those_of_what_they_name() -> None:
    assert tuple(METHODS) == tuple(names.ATTACKS)
    assert names.ADVERSARIES == ATTACKS
    assert tuple(ARCHITECTURES) == names.ARCHITECTURES
    assert tuple(BUNDLED) == names.BUNDLED
    assert set(RECIPES) == set(names.RECIPES)
    assert tuple(TEACHERS) == names.TEACHERS
    assert options.BACKENDS == BACKENDS


def test_the_front_door_shows_all_it_has_and_no_more() -> None:
    assert set(massmover.__all__) <= set(dir(massmover))
    assert set(massmover._HOMES) == set(massmover.__all__)
    assert all(getattr(massmover, name).__name__ == name for name in massmover.__all__ if name != "METHODS")
    assert massmover.attacks.attack is massmover.attack
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = massmover.nonsense


@pytest.mark.parametrize("name", ["evaluate", "certify", "verify", "natural"])
def test_the_words_of_a_page_of_help_flow(name: str) -> None:
    """A line of the source that ends in the middle of a paragraph ends no line of the page."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    paragraphs = command.help.split("\n\n")
    assert len(paragraphs) > 1 and not any("\n" in paragraph.strip() for paragraph in paragraphs)


def test_the_help_of_model_names_every_bundled_one(tmp_path: Path) -> None:
    text = " ".join(fresh("evaluate", "--help", cwd=tmp_path).stdout.split())
    assert all(bundled in text for bundled in names.BUNDLED)
