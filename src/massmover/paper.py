"""Every number that Hu, Yang, Swaminathan and Salman print ("Improved Wasserstein Attacks and Defenses", 2020).

Accuracies are percent; radii are radius x n_pixel, where n_pixel is 784 for MNIST and 3072 for CIFAR-10. The tables of
attacks were made on the adversarially trained models of Wong et al. 2019, the running times on a standard MNIST
model and a P100, the step sizes on the paper's own defended models.
"""

from __future__ import annotations

from collections.abc import Mapping

ATTACK_RADII = (5, 10, 20, 50, 100, 200, 500, 1000)
ATTACK: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "mnist": {
        "wong": (100, 100, 100, 100, 94, 91, 83, 71),
        "large step": (100, 96, 96, 94, 88, 69, 12, 0),
        "large step, gradient": (100, 90, 85, 68, 39, 8, 1, 1),
    },
    "cifar10": {
        "wong": (82, 82, 82, 82, 82, 81, 80, 77),
        "large step": (81, 80, 78, 70, 55, 23, 1, 0),
        "large step, gradient": (76, 68, 58, 35, 20, 9, 1, 0),
    },
}

RUNTIME_MINUTES: Mapping[str, int] = {
    "wong": 34,
    "constrained": 78,
    "constrained, warm start": 38,
    "full attack": 38,
}
RUNTIME_MEAN_RADIUS: Mapping[str, float] = {
    "wong": 0.443,
    "constrained": 0.460,
    "constrained, warm start": 0.460,
    "full attack": 0.135,
}

STEP_RADII = (100, 200, 400, 800, 1600)
STEP_SIZES = (0.02, 0.04, 0.06, 0.08)  # above 0.08 the paper's code fails
STEP_SIZE: Mapping[str, Mapping[float, tuple[int, ...]]] = {
    "mnist": {
        0.02: (84, 72, 49, 21, 2),
        0.04: (81, 68, 42, 15, 1),
        0.06: (81, 67, 41, 14, 1),
        0.08: (81, 67, 41, 14, 1),
    },
    "cifar10": {
        0.02: (52, 44, 44, 44, 44),
        0.04: (52, 43, 43, 43, 43),
        0.06: (52, 43, 43, 43, 43),
        0.08: (51, 42, 42, 42, 42),
    },
}
STEP_HOURS: Mapping[str, Mapping[float, float]] = {
    "mnist": {0.02: 1.8, 0.04: 2.1, 0.06: 2.5, 0.08: 3.0},
    "cifar10": {0.02: 3.7, 0.04: 4.6, 0.06: 4.9, 0.08: 5.0},
}

DIMMING_FACTOR = 30
DIMMING_MISCLASSIFIED = 86  # percent of the MNIST test set, on Wong's model
CLAMPING_OVER_MEAN = 50  # percent over budget
CLAMPING_OVER_WORST = 200

# The weights of Wong's MNIST model, as `manifest.json` fingerprints them; those for CIFAR-10 were not to be had.
VICTIMS = frozenset({"f5ee26930fb24937278ee628e6044dbb7f80cd5e3795ead5cea7e62aa1a1edc5"})

# Percent right, a standard model and the paper's own defended one: clean, then three translations, rotations and blurs.
NATURAL_ACCURACY: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "mnist": {
        "standard": (98.9, 97.8, 85.8, 48.3, 98.5, 97.7, 91.9, 98.6, 93.1, 62.4),
        "robust": (92.8, 91.2, 82.3, 49.3, 91.0, 88.7, 79.1, 88.0, 75.1, 58.4),
    },
    "cifar10": {
        "standard": (94.8, 94.5, 94.5, 93.6, 91.6, 86.6, 64.1, 35.1, 17.8, 15.4),
        "robust": (84.4, 84.0, 84.0, 81.7, 82.8, 81.3, 70.6, 69.5, 35.1, 24.7),
    },
}
# Mean distances of the same nine perturbations.
NATURAL_DISTANCE: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "mnist": {
        "l2": (5.2, 8.1, 10.3, 3.7, 5.4, 7.8, 3.2, 5.5, 6.5),
        "wasserstein": (1.0, 2.2, 4.2, 0.5, 0.8, 1.5, 0.3, 1.0, 1.6),
    },
    "cifar10": {
        "l2": (41.0, 61.6, 82.6, 38.4, 54.8, 71.4, 14.8, 25.4, 31.3),
        "wasserstein": (1.0, 2.0, 3.7, 0.8, 1.6, 2.8, 0.8, 1.6, 2.2),
    },
}
