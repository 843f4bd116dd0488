"""Measure and improve how image classifiers stand up to an adversary that moves pixel mass."""

from massmover.attacks import METHODS, AttackResult, SmallestResult, attack, smallest_radius
from massmover.evaluation.verify import Verdicts, verify
from massmover.threat import WassersteinBall
from massmover.transport.exact import distance_bounds, exact_distance
from massmover.transport.plan import Certificate, Plan, certify
from massmover.transport.repair import Repaired, repair
from massmover.types import MassmoverError

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "AttackResult",
    "Certificate",
    "MassmoverError",
    "Plan",
    "Repaired",
    "SmallestResult",
    "Verdicts",
    "WassersteinBall",
    "attack",
    "certify",
    "distance_bounds",
    "exact_distance",
    "repair",
    "smallest_radius",
    "verify",
]
