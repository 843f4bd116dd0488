"""Translation, rotation and blur: what they do to a classifier, and how far they carry an image."""

from massmover.natural.perturbations import PUBLISHED, Blur, Perturbation, Rotation, Translation
from massmover.natural.study import Effect, Study, study

__all__ = ["PUBLISHED", "Blur", "Effect", "Perturbation", "Rotation", "Study", "Translation", "study"]
