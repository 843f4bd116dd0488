"""Who moves the mass: what is wanted, what the environment says, what there is."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch

from massmover import backend as backends
from massmover.backend import CHOICE, backend_for, installed
from massmover.types import MassmoverError

IMAGES = torch.zeros(1, 1, 2, 2)


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOICE, raising=False)


def test_the_caller_decides_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    assert backend_for(IMAGES) == "numba"
    monkeypatch.setenv(CHOICE, "torch")
    assert backend_for(IMAGES) == "torch"
    assert backend_for(IMAGES, wanted="numba") == "numba"
    monkeypatch.setenv(CHOICE, "")
    assert backend_for(IMAGES) == "numba"


@pytest.mark.parametrize(
    ("wanted", "message"), [("jax", "unknown backend 'jax': use one of numba, torch, triton"), ("Torch", "unknown")]
)
def test_a_backend_that_is_not_there_is_refused(wanted: str, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        backend_for(IMAGES, wanted=wanted)


def test_a_wrong_choice_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "fast")
    with pytest.raises(MassmoverError, match="unknown backend 'fast'"):
        backend_for(IMAGES)


def test_a_backend_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(backends, "installed", lambda library: True)
    with pytest.raises(MassmoverError, match="needs a graphics card"):
        backend_for(IMAGES, wanted="triton")
    with pytest.raises(MassmoverError, match="runs on the CPU"):
        backend_for(IMAGES.to("meta"), wanted="numba")
    monkeypatch.setattr(backends, "installed", lambda library: False)
    with pytest.raises(MassmoverError, match="pip install numba"):
        backend_for(IMAGES, wanted="numba")


def test_without_numba_torch_moves_the_mass_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "installed", lambda library: False)
    backends._plain_torch.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert backend_for(IMAGES) == backend_for(IMAGES) == "torch"
    backends._plain_torch.cache_clear()
    assert [str(warning.message)[:22] for warning in told] == ["Numba is not installed"]


def test_a_blocked_library_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "no_such_library_at_all", None)
    assert not installed("no_such_library_at_all")
    assert installed("torch")
