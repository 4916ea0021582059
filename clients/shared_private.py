"""What a site of `own-model = "shared-private"` makes of the mean that it receives: the rest of the world's adapter, without its own."""

from collections.abc import Sequence

import numpy as np

from fedlingua.backbones.parts import PARTS
from fedlingua.backbones.shared_private import rest_name
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet


def rest_of_world(mean: Numbers, own: Numbers, share: float) -> Numbers:
    """(mean - share x own) / (1 - share), which of n sites that count the same is (n x mean - own) / (n - 1): the mean of the others,
    FedALT's rest of the world (Bian et al., AAAI 2026). In float64, rounded once.

    Args:
        mean: what the site received.
        own: what it has sent last.
        share: what that counts in the mean; 0 where it is not in it, 1 of a site that is alone: there it is the mean itself.
    """
    if share in (0.0, 1.0):
        return mean
    others = (mean.astype(np.float64) - share * own) / (1 - share)
    return others.astype(np.float32)


def rests(received: NamedTensors, own: NamedTensors, chosen: TensorSet, shares: Sequence[float]) -> Tensors:
    """The tensors that stand beside the site's own, by their names. shares: of each part, in the order of PARTS; none before round 1."""
    of_part = dict(zip(PARTS, shares or (0.0, 0.0, 0.0), strict=True))
    return {
        rest_name(spec.name): rest_of_world(received[spec.name], own[spec.name], of_part[spec.part])
        for spec in chosen.specs
        if rest_name(spec.name)
    }
