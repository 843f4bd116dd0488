"""Attacks: one visible loop per file, one call for all of them."""

from __future__ import annotations

from massmover.attacks.api import METHODS, attack
from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import AttackResult
from massmover.attacks.ensemble import Ensemble
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import SinkhornAttack
from massmover.attacks.smallest import SmallestResult, smallest_radius

__all__ = [
    "METHODS",
    "AttackResult",
    "Ensemble",
    "FrankWolfe",
    "PlanAscent",
    "SinkhornAttack",
    "SmallestResult",
    "attack",
    "smallest_radius",
]
