"""Attacks: one visible loop per file, one call for all of them."""

from __future__ import annotations

from massmover.attacks.api import METHODS, attack
from massmover.attacks.result import AttackResult
from massmover.attacks.smallest import SmallestResult, smallest_radius

__all__ = ["METHODS", "AttackResult", "SmallestResult", "attack", "smallest_radius"]
