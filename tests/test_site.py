"""The documentation site: it builds without a warning or a network, and links the program prints lead somewhere."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import massmover
from massmover import adapters, certificates, data, models, natural, training

ROOT = Path(__file__).parents[1]
BUILD = """
import socket, sys

def refuse(*args, **kwargs):
    raise SystemExit("the documentation asked for the network")

socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--site-dir", sys.argv[1]])
"""
REFERENCE = {
    "massmover": massmover,
    "certificates": certificates,
    "training": training,
    "data-and-models": data,
    "natural": natural,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))


def test_readers_fetch_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="([^"]+)"|<link[^>]*\bhref="([^"]+)"', text)
        assert loaded
        assert not [link for pair in loaded for link in pair if re.match(r"(https?:)?//", link)], page


def test_the_links_that_the_program_prints_have_an_anchor(site: Path) -> None:
    sanity = (ROOT / "src/massmover/evaluation/sanity.py").read_text(encoding="utf-8")
    names = re.findall(r"^## (.+)$", (ROOT / "docs/checks.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) == 8
    assert all(f'"{name}"' in sanity for name in names)
    assert {name.replace(" ", "-") for name in names} <= anchors(site / "checks.html")


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    wanted = {page: [(module.__name__, name) for name in module.__all__] for page, module in REFERENCE.items()}
    wanted["data-and-models"] += [("massmover.models", name) for name in models.__all__]
    for page, names in wanted.items():
        missing = {f"{module}.{name}" for module, name in names} - anchors(site / "reference" / f"{page}.html")
        assert not missing, f"add to docs/reference/{page}.md: {missing}"


def test_every_adapter_is_in_the_reference(site: Path) -> None:
    folder = Path(str(adapters.__file__)).parent
    named = anchors(site / "reference/adapters.html")
    for module in ("foolbox", "art", "torchattacks", "autoattack"):
        classes = re.findall(r"^class (\w+)", (folder / f"{module}.py").read_text(encoding="utf-8"), re.MULTILINE)
        assert {f"massmover.adapters.{module}.{name}" for name in classes} <= named
    assert "massmover.adapters.robustbench.model_cards" in named


def test_the_standings_are_those_of_the_records(site: Path) -> None:
    for archive in (ROOT / "docs/standings/runs").rglob("*.tar.xz"):
        model, data = archive.name.removesuffix(".tar.xz"), archive.parent.name
        with tarfile.open(archive) as run:
            summary, manifest = (
                json.load(run.extractfile(name) or io.BytesIO()) for name in ("summary.json", "manifest.json")
            )
            lines = (run.extractfile("records.jsonl") or io.BytesIO()).read().decode().splitlines()
        page = (site / "standings" / f"{data}.html").read_text(encoding="utf-8")
        row = page.partition(f'<a href="{data}/{model}/report.html">{model}</a>')[2].partition("</tr>")[0]
        shown = [float(value) for value in re.findall(r'<td data-value="([^"]+)">', row)]
        records = [json.loads(line) for line in lines]
        images = {line["index"] for line in records}
        for place, radius in enumerate(manifest["settings"]["radii"], start=1):
            broken = {line["index"] for line in records if line["success"] and line["radius"] <= radius * (1 + 1e-9)}
            assert shown[place] == pytest.approx(1 - len(broken) / len(images)), (model, radius)
        assert shown[0] == pytest.approx(summary["clean_accuracy"])
        assert (site / "standings" / data / model / "report.html").is_file()
        assert " /" not in manifest["command"], f"{archive} names a folder of the machine that made it"


def test_comments_of_fields_stand_in_the_reference(site: Path) -> None:
    text = (site / "reference/massmover.html").read_text(encoding="utf-8")
    assert "Gradient steps spent on the image." in text


def test_the_pictures_are_those_the_script_draws(tmp_path: Path) -> None:
    """Nearly the same, that is: fonts differ between versions of matplotlib, and last digits between processors."""
    kept = ROOT / "docs/pictures"
    runpy.run_path(str(kept / "make.py"))["main"](tmp_path)
    names = sorted(path.name for path in kept.glob("*.png"))
    assert names == sorted(path.name for path in tmp_path.glob("*.png"))
    for name in names:
        before, after = Image.open(kept / name).convert("L"), Image.open(tmp_path / name).convert("L")
        assert abs(before.width - after.width) < 20
        assert abs(before.height - after.height) < 20
        change = np.asarray(before, dtype=float) - np.asarray(after.resize(before.size), dtype=float)
        assert abs(change).mean() < 3, f"draw it again: python docs/pictures/make.py ({name})"  # of 255
