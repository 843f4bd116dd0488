"""Measure and improve how image classifiers stand up to an adversary that moves pixel mass."""

import os

# After each of its parallel loops torch's second thread spins for some 5 ms in case there is another one, on the core
# that the kernels want. A tenth of a millisecond is enough. This counts only if torch is not imported yet.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from massmover.attacks import (
    METHODS,
    AttackResult,
    Ensemble,
    FrankWolfe,
    PlanAscent,
    SinkhornAttack,
    SmallestResult,
    attack,
    smallest_radius,
)
from massmover.ball import Balls, WassersteinBall
from massmover.certificates import CertifiedResult, certified_radius
from massmover.evaluation.verify import Verdicts, verify
from massmover.transport.exact import distance_bounds, exact_distance
from massmover.transport.plan import Certificate, Plan, certify
from massmover.transport.repair import Repaired, repair
from massmover.types import MassmoverError

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "AttackResult",
    "Balls",
    "Certificate",
    "CertifiedResult",
    "Ensemble",
    "FrankWolfe",
    "MassmoverError",
    "Plan",
    "PlanAscent",
    "Repaired",
    "SinkhornAttack",
    "SmallestResult",
    "Verdicts",
    "WassersteinBall",
    "attack",
    "certified_radius",
    "certify",
    "distance_bounds",
    "exact_distance",
    "repair",
    "smallest_radius",
    "verify",
]
