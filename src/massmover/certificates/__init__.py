"""Certificates: how far a classifier cannot be broken. Knows no attack."""

from massmover.certificates.lipschitz import steepness
from massmover.certificates.radius import CertifiedResult, certified_radius
from massmover.certificates.smoothing import FlowSmoothing, smoothed_radius
from massmover.certificates.transform import PixelMetric, lower_transform, projected, upper_transform

__all__ = [
    "CertifiedResult",
    "FlowSmoothing",
    "PixelMetric",
    "certified_radius",
    "lower_transform",
    "projected",
    "smoothed_radius",
    "steepness",
    "upper_transform",
]
