"""A free network and networks of potentials that answer together: their scores, added up.

What an adversary teaches a free network is partly a defence against that adversary; a network of potentials owes its
margins to nobody, but reads fewer images. Trained apart and added up, each makes up for what the other lacks; how much
the potentials count moves the sum along the trade-off between clean accuracy and large radii (docs/training.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from massmover.models.architectures import ARCHITECTURES
from massmover.models.certified import UNIT, CertifiedNetwork, check_fit, duel_scores
from massmover.models.weights import differences, fill, read_weights
from massmover.types import Images, Logits, MassmoverError, Normalisation

FREE = "free"  # the part that no constant bounds


class Duels(nn.Module):
    """The scores of a frozen network of potentials in the images' own number type: quick, and without a proof."""

    potentials: Tensor  # (pairs, groups, members, C, H, W), whole numbers of UNIT
    biases: Tensor  # (pairs, groups, members)
    mass_in: Tensor  # (units, C + 1)
    mass_out: Tensor  # (pairs, units)
    per_channel: Tensor  # bool
    lean: Tensor  # how much a pixel of score counts

    def __init__(self, state: Mapping[str, Tensor], *, lean: float) -> None:
        """Take the tensors of a `CertifiedNetwork` as its `state_dict` has them."""
        super().__init__()
        for name in ("potentials", "per_channel"):
            self.register_buffer(name, state[name].contiguous().clone())
        for name in ("biases", "mass_in", "mass_out"):
            self.register_buffer(name, state[name].float())
        self.register_buffer("lean", torch.tensor(float(lean)))
        self.normalisation: Normalisation = "channel" if bool(state["per_channel"]) else "image"

    def forward(self, images: Images) -> Logits:
        """Score the images, times `lean`."""
        scores = duel_scores(
            images,
            self.potentials.to(images.dtype) * UNIT,
            self.biases.to(images.dtype),
            self.mass_in.to(images.dtype),
            self.mass_out.to(images.dtype),
            normalisation=self.normalisation,
        )
        return self.lean.to(images.dtype) * scores


class Blend(nn.Module):
    """The sum of a free network's scores and of those of networks of potentials."""

    def __init__(self, free: nn.Module, duels: Mapping[str, Duels]) -> None:
        """Take the parts as they are: nothing of a blend is trained together."""
        super().__init__()
        self.free = free
        self.duels = nn.ModuleDict({name: duels[name] for name in sorted(duels)})  # a file knows no other order

    def forward(self, images: Images) -> Logits:
        """Score the images."""
        scores: Logits = self.free(images)
        for part in self.duels.values():
            scores = scores + part(images)
        return scores


def blended(free: nn.Module, certified: Mapping[str, CertifiedNetwork], *, lean: float) -> Blend:
    """Networks that were trained apart as one; a pixel of margin of each network of potentials counts `lean`."""
    return Blend(free, {name: Duels(network.state_dict(), lean=lean) for name, network in certified.items()}).eval()


def load_blend(path: str | os.PathLike[str]) -> Blend:
    """Read a blend from a safetensors file, which says by its tensors what the parts are."""
    tensors, origin = read_weights(Path(path)).tensors, str(path)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        part, _, field = rest.partition(".")
        place, key = (FREE, rest) if kind == FREE else (part, field)
        parts.setdefault(place, {})[key] = value
    free = parts.pop(FREE, {})
    if not free or not parts or not all(name.startswith(("free.", "duels.")) for name in tensors):
        raise MassmoverError(f"{origin} does not hold a blend. Train one with the recipe blended.")
    return Blend(_free_network(free, origin=origin), {name: _duels(part, origin) for name, part in parts.items()})


def _duels(part: dict[str, Tensor], origin: str) -> Duels:
    lean = part.pop("lean", None)
    check_fit(part, origin=origin)
    if lean is None or lean.shape != () or part["potentials"].dtype != torch.int16:
        raise MassmoverError(f"{origin} does not hold a blend: a part lacks its weight, or is not in whole numbers.")
    if not bool(torch.isfinite(lean)):
        raise MassmoverError(f"{origin} holds NaN or infinity. Take the original file.")
    return Duels(part, lean=float(lean))


def _free_network(state: Mapping[str, Tensor], *, origin: str) -> nn.Module:
    """The architecture that has just these tensors, filled with them."""
    for build in ARCHITECTURES.values():
        network = build()
        if not differences(state, network.state_dict()):
            fill(network, state, origin=origin)
            return network
    raise MassmoverError(f"{origin} holds a part of none of the architectures {', '.join(ARCHITECTURES)}.")
