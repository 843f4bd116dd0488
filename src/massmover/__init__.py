"""Measure and improve how image classifiers stand up to an adversary that moves pixel mass."""

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

# After each of its parallel loops torch's second thread spins for some 5 ms in case there is another one, on the core
# that the kernels want. A tenth of a millisecond is enough. This counts only if torch is not imported yet.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
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

# Where each name is defined. It is imported when first asked for: `massmover --help` does without torch.
_HOMES = {
    **dict.fromkeys(("METHODS", "AttackResult", "Ensemble", "FrankWolfe", "PlanAscent", "SinkhornAttack"), "attacks"),
    **dict.fromkeys(("SmallestResult", "attack", "smallest_radius"), "attacks"),
    **dict.fromkeys(("Balls", "WassersteinBall"), "ball"),
    **dict.fromkeys(("CertifiedResult", "certified_radius"), "certificates"),
    **dict.fromkeys(("Verdicts", "verify"), "evaluation.verify"),
    **dict.fromkeys(("distance_bounds", "exact_distance"), "transport.exact"),
    **dict.fromkeys(("Certificate", "Plan", "certify"), "transport.plan"),
    **dict.fromkeys(("Repaired", "repair"), "transport.repair"),
    "MassmoverError": "types",
}


def __getattr__(name: str) -> Any:
    """A public name, or a part of the package, imported when first asked for."""
    if name in _HOMES:
        found = getattr(importlib.import_module(f"massmover.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("_") and importlib.util.find_spec(f"massmover.{name}") is not None:
        return importlib.import_module(f"massmover.{name}")
    raise AttributeError(f"module 'massmover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
