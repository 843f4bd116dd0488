"""Data sets by name or by path."""

from __future__ import annotations

from pathlib import Path

from massmover.data import cifar, folders, idx, npz
from massmover.data.imageset import DataError, ImageSet
from massmover.data.sources import FASHION_REMEDY, SOURCES, cache_folder

NAMES = ("mnist", "fashion-mnist", "cifar10", "mnist-sample")
SPLITS = ("train", "test")
BUNDLED = Path(__file__).parent.parent / "bundled"
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")


def load(name_or_path: str | Path, *, split: str = "test", folder: str | Path | None = None) -> ImageSet:
    """Load a data set into memory.

    A name (one of `NAMES`) is looked up in the cache folder; when `folder` is given, the
    official files may also lie in that folder itself.  A path leads to an .npz file, a
    folder with official IDX or CIFAR-10 files, or a folder of pictures with a sub-folder
    for each class.  A `Path` is never taken as a name.  An .npz file and a folder that is
    not divided into train and test have no splits: `split` does not matter to them.
    """
    if split not in SPLITS:
        raise DataError(f"split is {split!r}; need 'train' or 'test'.")
    if isinstance(name_or_path, str) and name_or_path in NAMES:
        return _named(name_or_path, split=split, given=folder)
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return _folder(path, split=split)
    if path.is_file() and path.suffix.lower() == ".npz":
        return npz.read(path, name=path.stem)
    problem = "is no .npz file and no folder" if path.exists() else "does not exist"
    raise DataError(
        f"{str(name_or_path)!r} is none of the data sets {', '.join(NAMES)}, and as a path it {problem}. "
        "Give one of those names, an .npz file, or a folder of pictures."
    )


def _named(name: str, *, split: str, given: str | Path | None) -> ImageSet:
    if name == "mnist-sample":
        if split != "test":
            raise DataError("mnist-sample holds test images only; load 'mnist' for the training images.")
        return npz.read(BUNDLED / "mnist-sample.npz", name=name)
    place = cache_folder(given) / name
    present, read = (cifar.present, cifar.read) if name == "cifar10" else (idx.present, idx.read)
    for candidate in (place, *_elsewhere(name, given)):
        if present(candidate, split):
            return read(candidate, split=split, name=f"{name}-{split}")
    if name == "fashion-mnist":
        raise DataError(f"{name} ({split}) was not found: {FASHION_REMEDY.format(place=place)}.")
    raise DataError(
        f"{name} ({split}) is not in {place}. Fetch it with massmover.data.fetch({name!r}), "
        f"or put {SOURCES[name].official} there."
    )


def _elsewhere(name: str, given: str | Path | None) -> list[Path]:
    places = [Path(given).expanduser()] if given else []
    return [*places, DEBIAN_FASHION] if name == "fashion-mnist" else places


def _folder(path: Path, *, split: str) -> ImageSet:
    name = path.resolve().name
    for present, read in ((idx.present, idx.read), (cifar.present, cifar.read)):
        if present(path, split):
            return read(path, split=split, name=f"{name}-{split}")
    return folders.read(path, split=split, name=name)
