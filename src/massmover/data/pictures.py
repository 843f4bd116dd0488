"""Single picture files, decoded by Pillow, which is imported only when one is read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from massmover.data.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")


def channels(picture: Image, *, source: str) -> int:
    """Count the channels a picture is kept with: 1 for grey, 3 for colour."""
    if picture.mode in GREY_MODES:
        return 1
    if picture.mode in COLOUR_MODES:
        return 3
    raise DataError(f"{source} has pixels of kind {picture.mode!r}; save it with 8 bits a channel, grey or RGB.")


def pixels(picture: Image, *, channels: int) -> npt.NDArray[np.uint8]:
    """Decode a picture to its bytes, channels first."""  # (C, H, W)
    decoded = np.asarray(picture.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    # Pillow lends its memory for reading only, so copy.
    return np.array(decoded.reshape(*decoded.shape[:2], channels).transpose(2, 0, 1), order="C")


@contextmanager
def opened(path: Path) -> Iterator[Image]:
    """Open a picture file; whatever is wrong with it becomes a `DataError` that names it."""
    image_module = _pillow()
    try:
        with warnings.catch_warnings():
            # Pillow only warns about pictures of absurd size; there is no good use for one here.
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            with image_module.open(path) as picture:
                yield picture
    except DataError:
        raise
    except (
        OSError,
        SyntaxError,  # what Pillow raises for some broken PNG files
        ValueError,
        image_module.DecompressionBombError,
        image_module.DecompressionBombWarning,
    ) as error:
        raise DataError(f"{path} cannot be read as a picture ({error}); replace or remove it.") from error


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Reading pictures needs Pillow: pip install 'massmover[data]'.") from error
    return Image
