"""Data sets: labelled images by name, from files, or from PyTorch datasets."""

from __future__ import annotations

from massmover.data.datasets import NAMES, load
from massmover.data.fetching import fetch
from massmover.data.imageset import DataError, ImageSet
from massmover.data.sources import cache_folder
from massmover.data.torchdata import from_dataset

__all__ = ["NAMES", "DataError", "ImageSet", "cache_folder", "fetch", "from_dataset", "load"]
