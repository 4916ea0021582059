"""Interpolations of the federation's model and a site's own: Manoel et al. 2022, eq. 3."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np

from fedlingua.backbones.parts import Part
from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import Tensors, TensorSet

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The alphas that a site chooses among, for all tensors together and for each part."""


def interpolated_by_part(federated: Tensors, personal: Tensors, alphas: Mapping[Part, float], trained: TensorSet) -> Tensors:
    """Interpolate with one alpha per part; shared tensors use the mean of the parts' alphas."""
    check_alike(federated, personal)
    shared = fmean(alphas.values())
    names = [(spec.name, alphas.get(spec.part, shared)) for spec in trained.specs]
    return {name: mixed(federated[name], personal[name], alpha) for name, alpha in names}


def mixed(federated: Numbers, personal: Numbers, alpha: float) -> Numbers:
    if alpha in (0, 1):  # 0 x theta_i would turn a -0.0 of theta into 0.0
        return (personal if alpha else federated).copy()
    own, others = np.float32(alpha), np.float32(1 - alpha)
    between: Numbers = own * personal + others * federated
    return between


Alphas = dict[Part, float]


def search_alphas(parts: Sequence[Part], loss: Callable[[Alphas], float], ends: tuple[float, float]) -> tuple[Alphas, Alphas]:
    """Search GRID for the alphas with the lowest dev loss: (one alpha for all parts, one for each part).

    This is a coordinate search: all parts together first; then, if a mixture beats both models, each part in turn with the others fixed.
    Along a line the dev loss has a single minimum, so only the neighbours of the best alpha so far are measured.

    Args:
        parts: The parts that have tensors.
        loss: Returns the dev loss at the given alphas, in nats per token; NaN is never the lowest.
        ends: The losses at alpha 0 and at alpha 1, which are already known; both are finite.
    """
    middle = GRID[len(GRID) // 2]
    known = {GRID[0]: ends[0], middle: loss(dict.fromkeys(parts, middle)), GRID[-1]: ends[1]}
    one, least = _downhill(known, lambda alpha: loss(dict.fromkeys(parts, alpha)))
    alphas: Alphas = dict.fromkeys(parts, one)
    for part in parts if len(parts) > 1 and one not in (0, 1) else ():

        def loss_at(alpha: float, part: Part = part) -> float:
            return loss({**alphas, part: alpha})

        alphas[part], least = _downhill({one: least}, loss_at)
    return dict.fromkeys(parts, one), alphas


def _downhill(losses: dict[float, float], loss: Callable[[float], float]) -> tuple[float, float]:
    """Descend from the lowest of these losses to a local minimum and return its (alpha, loss); on a tie the earlier alpha counts."""
    while True:
        best = min(losses, key=losses.__getitem__)  # the first is a number, below which no NaN is
        place = GRID.index(best)
        unknown = [alpha for alpha in GRID[max(place - 1, 0) : place + 2] if alpha not in losses]
        if not unknown:
            return best, losses[best]
        losses = losses | {alpha: loss(alpha) for alpha in unknown}


def check_alike(federated: Tensors, personal: Tensors) -> None:
    """Raise ExchangeError, naming the first such tensor, if a tensor is missing from one of two models or differs in shape."""
    for name in sorted(set(federated) ^ set(personal)):
        where = "the federation's" if name in federated else "the site's own"
        raise ExchangeError(f"tensor {name!r} is in {where} model alone; wanted two models of one backbone and one tensor set")
    for name, array in federated.items():
        if array.shape != personal[name].shape:
            raise ExchangeError(
                f"tensor {name!r} has shape {array.shape} in the federation's model and {personal[name].shape} in the site's own; wanted "
                "two models of one backbone and one tensor set"
            )
