"""`massmover verify`: judge anybody's adversarial examples."""

from __future__ import annotations

import math
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from massmover.cli import options
from massmover.cli.screen import console, refuses_clearly
from massmover.types import MassmoverError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from massmover.evaluation.proof import Claim, Verdict
    from massmover.evaluation.verify import Verdicts

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
    scatter: Annotated[
        float | None,
        typer.Option(
            help="Pixels that mass may stray from a smooth field; as the file claims without it.", show_default=False
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(help="Pixels over which that field bends; one vector without it.", show_default=False),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Relative for distance and mass, absolute for pixels.")] = 1e-6,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="A .npy file, True where mass may move; the array mask of the file without it.", show_default=False
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Measure all images to the end, also those that are proved or clear before.")
    ] = False,
) -> None:
    """Check the proofs of a file, and measure the images without one by exact optimal transport, mass and pixel range.

    Images are (N, C, H, W) in [0, 1], or 8-bit; docs/proof-format.md describes proofs. How far mass strayed is a
    property of plans: where a bound of it is claimed, every image needs a proof. Exit code 1 if any image is outside
    its ball, or lacks one.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise MassmoverError(f"--tolerance is {tolerance}: give a number such as 1e-6")
    chosen = options.ground(ground), options.power(power), options.normalisation(normalisation)
    together = options.coherence(scatter, width, attack=None)
    arrays = _arrays(file)
    claimed = _claimed(arrays, file=file, radius=radius, radius_pixels=radius_pixels)
    import numpy as np

    from massmover.evaluation.proof import Claim
    from massmover.evaluation.subject import naming, read_mask
    from massmover.evaluation.verify import verify as judge

    metric = Claim(0.0, None, *chosen)
    if scatter is not None:
        free = together["scatter"] is None  # infinity bounds nothing
        metric = replace(metric, scatter=None if free else scatter, width=None if free else width)
    if mask is not None:
        arrays["mask"] = _masks(read_mask(str(mask)).numpy(), arrays, mask)
    with naming(str(file)):
        radii = np.broadcast_to(claimed, len(arrays["original"]))
        proofs, bound = _checked(arrays, radii, metric, given=scatter is not None)
        proved = [proof is not None and proof.proved for proof in proofs]
        rows = [row for row in range(len(proved)) if exact or not proved[row]]
        verdicts = judge(
            arrays["original"][rows],
            arrays["adversarial"][rows],
            radii[rows],
            ground=metric.ground,
            normalisation=metric.normalisation,
            power=metric.power,
            tolerance=tolerance,
            mask=arrays["mask"][rows] if "mask" in arrays else None,
            settle=not exact,
        )
    _print(verdicts, rows, proved=proved, numbers_per_image=math.prod(arrays["original"].shape[1:]))
    loose = [] if bound is None else [row for row in range(len(proved)) if not proved[row]]
    for row in loose[:SHOWN]:
        proof = proofs[row]
        console.print(f"row {row}: no proof of its scatter" + ("" if proof is None else f" ({proof.reason})"))
    if bound is not None:
        console.print(f"scatter at most {bound:g}: proved of {len(proved) - len(loose)}, not of {len(loose)}")
    if verdicts.violations or loose:
        raise typer.Exit(1)


def _checked(
    arrays: dict[str, NDArray[Any]], radii: NDArray[Any], metric: Claim, *, given: bool
) -> tuple[list[Verdict | None], float | None]:
    """What the checker says of each image's proof in the metric that is asked for, and the bound of its scatter.

    A bound of scatter is the file's own unless one is `given`.
    """
    from massmover.evaluation.proof_file import checked_proofs, proofs_in

    proofs = proofs_in(arrays)
    if proofs is None:
        return [None] * len(radii), metric.scatter
    asked = metric if given else proofs.claim
    claim = replace(proofs.claim, scatter=asked.scatter, width=asked.width)
    if replace(claim, window=None) != replace(metric, scatter=asked.scatter, width=asked.width):
        return [None] * len(radii), claim.scatter
    return checked_proofs({**arrays, "radius": radii}, claim=claim), claim.scatter


def _masks(mask: NDArray[Any], arrays: dict[str, NDArray[Any]], file: Path) -> NDArray[Any]:
    """One mask for each image of the file: masks of a whole data set are taken by the images' numbers."""
    import numpy as np

    shape = arrays["original"].shape
    try:
        if mask.ndim == 4 and len(mask) not in (1, shape[0]) and "index" in arrays:
            mask = mask[arrays["index"]]
        return np.broadcast_to(mask.astype(bool), shape)
    except (ValueError, IndexError):
        raise MassmoverError(
            f"--mask {file} has shape {mask.shape} and the images {shape}: give (rows, columns), or one an image"
        ) from None


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    if not file.is_file():
        raise MassmoverError(f"{file} is no file: give a .npz file with arrays original and adversarial")
    import numpy as np  # after the refusal above, which needs none

    try:
        with np.load(file, allow_pickle=False) as archive:
            missing = [name for name in ("original", "adversarial") if name not in archive.files]
            if missing:
                raise MassmoverError(
                    f"{file} has no array {' and '.join(missing)}: "
                    "save it with numpy.savez(path, original=..., adversarial=...)"
                )
            wanted = ("original", "adversarial", "radius", "index", "mask")
            arrays = {name: archive[name] for name in archive.files if name in wanted or name.startswith("proof_")}
    except (OSError, EOFError, ValueError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as problem:
        if isinstance(problem, MassmoverError):
            raise
        raise MassmoverError(f"{file} cannot be read as a .npz file: save it again with numpy.savez") from None
    for name in ("original", "adversarial"):
        arrays[name] = _pixels(arrays[name], name=name, file=file)
    if arrays["original"].shape != arrays["adversarial"].shape:
        shapes = f"original is {arrays['original'].shape} and adversarial {arrays['adversarial'].shape}"
        raise MassmoverError(f"{file}: {shapes}: same shape needed")
    return arrays


def _pixels(array: NDArray[Any], *, name: str, file: Path) -> NDArray[Any]:
    if array.dtype.kind not in "fu" or (array.dtype.kind == "u" and array.dtype != "uint8"):
        raise MassmoverError(f"{file}: {name} is {array.dtype}; give floating point in [0, 1] or uint8")
    if array.ndim != 4 or array.size == 0:
        raise MassmoverError(
            f"{file}: {name} has shape {array.shape}; give (images, channels, rows, columns), not empty"
        )
    if array.dtype == "uint8":
        return array.astype("float64") / 255
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
        numbers = math.prod(arrays["original"].shape[1:])
        return options.one_radius(radius_pixels, option="--radius-pixels") / numbers
    if radius is not None:
        return options.one_radius(radius, option="--radius")
    if "radius" not in arrays:
        raise MassmoverError(f"{file} claims no radius: give one with --radius or --radius-pixels")
    return arrays["radius"].astype("float64")


def _print(verdicts: Verdicts, rows: list[int], *, proved: list[bool], numbers_per_image: int) -> None:
    """What was found of all images: `rows` were measured, the others are proved."""
    outside = [place for place in range(len(verdicts)) if not bool(verdicts.inside[place])]
    if outside:
        table = Table(title="outside the ball")
        for heading in ("row", "distance", "radius", "why"):
            table.add_column(heading, justify="left" if heading == "why" else "right")
        for place in outside[:SHOWN]:
            cells = (str(rows[place]), f"{verdicts.distance[place]:.6g}", f"{verdicts.radius[place]:.6g}")
            table.add_row(*cells, verdicts.reason(place))
        console.print(table)
        if len(outside) > SHOWN:
            console.print(f"and {len(outside) - SHOWN} more")
    line = f"{len(proved)} images, {len(outside)} outside; {sum(proved)} proved, {len(rows)} measured"
    if rows:
        largest = float(verdicts.distance.max())
        most = "" if bool(verdicts.exact.all()) else "at most "
        line += (
            f"; largest distance {most}{largest:.6g} (x pixels {largest * numbers_per_image:.5g}), "
            f"tolerance {verdicts.tolerance:g}"
        )
    console.print(line)
