"""Importing a library that not everybody has."""

from __future__ import annotations

import importlib
from typing import Any

from massmover.types import MassmoverError


class MissingExtraError(MassmoverError, ImportError):
    """A library is needed that is not installed, or does not import; the message names the extra that brings it."""


def needed(module: str, *, extra: str) -> Any:
    """Import a module of another library, or say which extra of this package brings it."""
    library = module.partition(".")[0]
    try:
        importlib.import_module(library)
        return importlib.import_module(module)
    except Exception as error:  # a library that is installed but broken may raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == library
        found = "is not installed" if absent else f"does not import ({type(error).__name__}: {error})"
        raise MissingExtraError(
            f"massmover.adapters.{extra} needs {library}, which {found}. Run: pip install 'massmover[{extra}]'"
        ) from error
