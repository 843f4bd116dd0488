"""The error of the data layer."""

from __future__ import annotations

from massmover.types import MassmoverError


class DataError(MassmoverError):
    """A data set cannot be read or fetched; the message names the file and the remedy."""
