from __future__ import annotations

from pathlib import Path

import pytest

from massmover.data import cache_folder


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.delenv("MASSMOVER_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_the_option_wins_over_all(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("MASSMOVER_DATA", "/environment")
    assert cache_folder("/option") == Path("/option")
    assert cache_folder(Path("/option")) == Path("/option")


def test_the_variable_wins_over_the_cache_of_the_desktop(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("XDG_CACHE_HOME", "/desktop")
    clean.setenv("MASSMOVER_DATA", "/environment")
    assert cache_folder() == Path("/environment")


@pytest.mark.parametrize("empty", ["MASSMOVER_DATA", "XDG_CACHE_HOME"])
def test_empty_variables_count_as_unset(clean: pytest.MonkeyPatch, tmp_path: Path, empty: str) -> None:
    clean.setenv(empty, "")
    assert cache_folder() == tmp_path / ".cache" / "massmover"


def test_the_cache_of_the_desktop_is_respected_when_absolute(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean.setenv("XDG_CACHE_HOME", "/desktop")
    assert cache_folder() == Path("/desktop/massmover")
    clean.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "massmover"


def test_a_tilde_is_the_home_folder(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean.setenv("MASSMOVER_DATA", "~/sets")
    assert cache_folder() == tmp_path / "sets"
    assert cache_folder("~/others") == tmp_path / "others"
