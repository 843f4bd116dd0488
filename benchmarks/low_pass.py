"""What low-pass gradients leave of a classifier: accuracy under plan ascent and the projected attack, by filter.

    python -m benchmarks.low_pass [WEIGHTS]

The bundled standard classifier, or a LeNet with weights of one's own, on the first MNIST test digits. Not part of
`make bench`: it measures strength, not time.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from massmover import PlanAscent, SinkhornAttack, WassersteinBall, attack, verify
from massmover.data import load
from massmover.models import load_model

COUNT = 200
DEVIATIONS = (0.0, 1.0, 2.0)
RADII = (20, 100)  # times the number of pixels


def main() -> None:
    """Print accuracy by attack, radius and filter."""
    weights = sys.argv[1:]
    model = load_model("lenet", weights=weights[0]) if weights else load_model("mnist-standard")
    digits = load("mnist", split="test").subset(0, COUNT)
    images, labels = digits.images_as_float(), digits.labels
    for method in (PlanAscent(steps=50), SinkhornAttack(steps=20)):
        for radius in RADII:
            left, ball = [], WassersteinBall.from_pixels(radius, images)
            for deviation in DEVIATIONS:
                found = attack(model, images, labels, ball=ball, method=replace(method, low_pass=deviation))
                assert verify(images, found.images, ball.radius, settle=True).violations == 0
                left.append(f"{deviation} px {100 * float((~found.success).double().mean()):.1f} %")
            print(f"{type(method).__name__} at {radius}: left with a filter of " + ", ".join(left), flush=True)


if __name__ == "__main__":
    main()
