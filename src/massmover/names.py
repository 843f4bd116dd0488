"""What can be chosen by name. Imports nothing, so that the command line can say it before torch is there."""

from __future__ import annotations

# Every attack by its name, and where it is made: a module of massmover.attacks and what in it to call.
ATTACKS = {
    "auto": "ensemble:Ensemble",
    "ascent": "ascent:PlanAscent",
    "frank-wolfe": "frank_wolfe:FrankWolfe",
    "sinkhorn": "pgd:SinkhornAttack",
    "wong": "pgd:wong",
}
COHERENT = ("auto", "ascent")  # those that can bound how much mass scatters
ADVERSARIES = ("ascent", "frank-wolfe", "sinkhorn", "wong")  # of adversarial training
ARCHITECTURES = ("lenet", "mlp", "resnet8", "resnet20", "resnet18")
BUNDLED = (
    "mnist-standard",
    "mnist-robust",
    "mnist-robust-97",
    "mnist-robust-95",
    "cifar10-robust",
    "mnist-certified",
    "mnist-certified-far",
)
RECIPES = (
    "standard",
    "paper",
    "robust",
    "taught",
    "robust-colour",
    "coherent",
    "certified",
    "certified-far",
    "certified-colour",
)
TEACHERS = ("near", "far", "free")  # of the recipe taught, and the folders in which they are trained
