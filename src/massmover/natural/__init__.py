"""Translation, rotation, blur, elastic deformation: what they do to a classifier, how far they carry an image."""

from massmover.natural.perturbations import PUBLISHED, Blur, Elastic, Perturbation, Rotation, Translation
from massmover.natural.study import Effect, Study, study

__all__ = ["PUBLISHED", "Blur", "Effect", "Elastic", "Perturbation", "Rotation", "Study", "Translation", "study"]
