"""The rest-of-world adapter under `own-model = "shared-private"`: the received mean without the site's own share."""

from collections.abc import Sequence

import numpy as np

from fedlingua.backbones.parts import PARTS
from fedlingua.backbones.shared_private import rest_name
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet


def rest_of_world(mean: Numbers, own: Numbers, share: float) -> Numbers:
    """Return the mean over the other sites, FedALT's rest of world (Bian et al., AAAI 2026): (mean - share x own) / (1 - share).

    For n sites of equal weight this is (n x mean - own) / (n - 1). It is computed in float64 and rounded once.

    Args:
        mean: The tensor that the site received.
        own: The tensor that the site last sent.
        share: The weight of `own` in the mean; for 0 (not in the mean) and 1 (the only site) the mean itself is returned.
    """
    if share in (0.0, 1.0):
        return mean
    others = (mean.astype(np.float64) - share * own) / (1 - share)
    return others.astype(np.float32)


def rests(received: NamedTensors, own: NamedTensors, chosen: TensorSet, shares: Sequence[float]) -> Tensors:
    """Return the rest-of-world tensors by name. shares: The site's weight in each of PARTS; empty before round 1."""
    of_part = dict(zip(PARTS, shares or (0.0, 0.0, 0.0), strict=True))
    return {
        rest_name(spec.name): rest_of_world(received[spec.name], own[spec.name], of_part[spec.part])
        for spec in chosen.specs
        if rest_name(spec.name)
    }
