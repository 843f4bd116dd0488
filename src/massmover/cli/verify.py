"""`massmover verify`: judge anybody's adversarial examples."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from massmover.cli import options
from massmover.cli.screen import console, refuses_clearly
from massmover.evaluation.subject import naming
from massmover.evaluation.verify import Verdicts
from massmover.evaluation.verify import verify as judge
from massmover.types import MassmoverError

SHOWN = 20  # violations listed one by one


@refuses_clearly
def verify(
    file: Annotated[Path, typer.Argument(help="A .npz file with arrays original and adversarial.", metavar="FILE.npz")],
    radius: Annotated[
        float | None,
        typer.Option(help="The radius claimed; the array radius of the file without it.", show_default=False),
    ] = None,
    radius_pixels: Annotated[
        float | None, typer.Option(help="The same in radius x pixels.", show_default=False)
    ] = None,
    normalisation: Annotated[
        str, typer.Option(help="Divide costs by the mass of the image or of each channel.")
    ] = "image",
    ground: Annotated[str, typer.Option(help="Distance of pixels: euclidean, manhattan or chebyshev.")] = "euclidean",
    power: Annotated[float, typer.Option(help="Power of the pixel distance.")] = 1.0,
    tolerance: Annotated[float, typer.Option(help="Relative for distance and mass, absolute for pixels.")] = 1e-6,
) -> None:
    """Measure every image of a file by exact optimal transport, its mass and its pixel range.

    Images are (N, C, H, W) in [0, 1], or 8-bit. Exit code 1 if any image is outside its ball.
    """
    arrays = _arrays(file)
    claimed = _claimed(arrays, file=file, radius=radius, radius_pixels=radius_pixels)
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise MassmoverError(f"--tolerance is {tolerance}: give a number such as 1e-6")
    with naming(str(file)):
        verdicts = judge(
            arrays["original"],
            arrays["adversarial"],
            claimed,
            ground=options.ground(ground),
            normalisation=options.normalisation(normalisation),
            power=options.power(power),
            tolerance=tolerance,
        )
    _print(verdicts, numbers_per_image=int(np.prod(arrays["original"].shape[1:])))
    if verdicts.violations:
        raise typer.Exit(1)


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    if not file.is_file():
        raise MassmoverError(f"{file} is no file: give a .npz file with arrays original and adversarial")
    try:
        with np.load(file, allow_pickle=False) as archive:
            missing = [name for name in ("original", "adversarial") if name not in archive.files]
            if missing:
                raise MassmoverError(
                    f"{file} has no array {' and '.join(missing)}: "
                    "save it with numpy.savez(path, original=..., adversarial=...)"
                )
            arrays = {name: archive[name] for name in ("original", "adversarial", "radius") if name in archive.files}
    except (OSError, EOFError, ValueError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as problem:
        if isinstance(problem, MassmoverError):
            raise
        raise MassmoverError(f"{file} cannot be read as a .npz file: save it again with numpy.savez") from None
    for name in ("original", "adversarial"):
        arrays[name] = _pixels(arrays[name], name=name, file=file)
    return arrays


def _pixels(array: NDArray[Any], *, name: str, file: Path) -> NDArray[Any]:
    if array.dtype.kind not in "fu" or (array.dtype.kind == "u" and array.dtype != np.uint8):
        raise MassmoverError(f"{file}: {name} is {array.dtype}; give floating point in [0, 1] or uint8")
    if array.ndim != 4 or array.size == 0:
        raise MassmoverError(
            f"{file}: {name} has shape {array.shape}; give (images, channels, rows, columns), not empty"
        )
    if array.dtype == np.uint8:
        return array.astype(np.float64) / 255
    if name == "original" and not (array.min() >= -1e-6 and array.max() <= 1 + 1e-6):
        raise MassmoverError(
            f"{file}: original has pixels from {array.min():g} to {array.max():g}; rescale them to [0, 1]"
        )
    return array


def _claimed(
    arrays: dict[str, NDArray[Any]], *, file: Path, radius: float | None, radius_pixels: float | None
) -> float | NDArray[Any]:
    """The radius to hold the images against: the options before the file's own claim."""
    if radius is not None and radius_pixels is not None:
        raise MassmoverError("give --radius or --radius-pixels, not both")
    if radius_pixels is not None:
        return options.one_radius(radius_pixels, option="--radius-pixels") / float(
            np.prod(arrays["original"].shape[1:])
        )
    if radius is not None:
        return options.one_radius(radius, option="--radius")
    if "radius" not in arrays:
        raise MassmoverError(f"{file} claims no radius: give one with --radius or --radius-pixels")
    return arrays["radius"].astype(np.float64)


def _print(verdicts: Verdicts, *, numbers_per_image: int) -> None:
    outside = [row for row in range(len(verdicts)) if not bool(verdicts.inside[row])]
    if outside:
        table = Table(title="outside the ball")
        for heading in ("row", "distance", "radius", "why"):
            table.add_column(heading, justify="left" if heading == "why" else "right")
        for row in outside[:SHOWN]:
            cells = (str(row), f"{verdicts.distance[row]:.6g}", f"{verdicts.radius[row]:.6g}")
            table.add_row(*cells, verdicts.reason(row))
        console.print(table)
        if len(outside) > SHOWN:
            console.print(f"and {len(outside) - SHOWN} more")
    largest = float(verdicts.distance.max())
    console.print(
        f"{len(verdicts)} images, {len(outside)} outside; largest distance {largest:.6g} "
        f"(x pixels {largest * numbers_per_image:.5g}), tolerance {verdicts.tolerance:g}"
    )
