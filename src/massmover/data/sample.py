"""The small sample of MNIST that ships with the package, and how it is made.

python -c "from massmover.data import sample; sample.make()"
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from massmover.data.datasets import BUNDLED, load

COUNT = 1000

CARD = """\
# mnist-sample

The first {count:,} images of the MNIST test set, in the original order, unchanged: handwritten digits,
{height} x {width} pixels, one byte a pixel, white on black.

| | |
|---|---|
| file | `mnist-sample.npz`: `images` uint8 {shape}, `labels` int64 ({count},), `classes` 10 |
| images of each digit 0 to 9 | {histogram} |
| sha256 of the content | `{checksum}` (`massmover.data.load("mnist-sample").checksum()`) |

**Made** by `python -c "from massmover.data import sample; sample.make()"` from the MNIST files that
`massmover.data.fetch("mnist")` gets and verifies.

**Origin.** The MNIST database of handwritten digits by Yann LeCun, Corinna Cortes and Christopher J.C. Burges,
made from NIST Special Databases 1 and 3. Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning
applied to document recognition", Proceedings of the IEEE 86(11), 1998.

**Terms.** Commonly stated as Creative Commons Attribution-ShareAlike 3.0 (CC BY-SA 3.0), which then covers this
sample too; the licence of the program does not apply to it.

**Use.** For demonstrations and tests. A share measured on {count:,} images has a standard error of up to
{error:.1f} points; report results on the whole test set.
"""


def make(*, folder: str | Path | None = None, destination: Path = BUNDLED, count: int = COUNT) -> str:
    """Write the sample and its data card from the full MNIST, and give the content's checksum."""
    chosen = load("mnist", split="test", folder=folder).subset(0, count)
    buffer = io.BytesIO()
    # Told the classes, a shorter sample need not show every digit.
    np.savez_compressed(buffer, images=chosen.images.numpy(), labels=chosen.labels.numpy(), classes=chosen.classes)
    (destination / "mnist-sample.npz").write_bytes(buffer.getvalue())
    shape = tuple(chosen.images.shape)
    card = CARD.format(
        count=count,
        height=shape[2],
        width=shape[3],
        shape=shape,
        histogram=", ".join(str(number) for number in np.bincount(chosen.labels.numpy(), minlength=10)),
        checksum=chosen.checksum(),
        error=50 / count**0.5,
    )
    (destination / "mnist-sample.md").write_text(card, encoding="utf-8")
    return chosen.checksum()
