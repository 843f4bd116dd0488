"""Classifiers: small networks, loading and saving their weights, and normalising inside the model."""

from massmover.models.architectures import ARCHITECTURES, lenet, mlp, resnet8, resnet18, resnet20
from massmover.models.certified import CertifiedNetwork, PotentialNetwork, load_certified
from massmover.models.files import ExportedModel
from massmover.models.loading import BUNDLED, load_model
from massmover.models.weights import load_weights, save_weights
from massmover.models.wrapping import FunctionModel, Normalised

__all__ = [
    "ARCHITECTURES",
    "BUNDLED",
    "CertifiedNetwork",
    "ExportedModel",
    "FunctionModel",
    "Normalised",
    "PotentialNetwork",
    "lenet",
    "load_certified",
    "load_model",
    "load_weights",
    "mlp",
    "resnet8",
    "resnet18",
    "resnet20",
    "save_weights",
]
