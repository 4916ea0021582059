"""Aggregation rules and algorithm 1 of Liu et al. 2023, as pure functions of updates."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import Clusters, cluster_of
from fedlingua.exchange.joined import Flat, Joined, Numbers, flat, separate
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.checkpoints import ClusterTensors
from fedlingua.selection.masks import Selection
from fedlingua.settings.config import Settings
from fedlingua.training.sampling import tempered
from strategies.cores import BLOCK, SPAN, in_order


@dataclass(frozen=True)
class Update:
    """A site's tensors after local training, and how many sentences it counts by: those that it trained on or, where these are drawn,
    all that they are drawn from.

    Large tensors may wait in a file until the round is folded: each is read when it is asked for, so a rule that takes one name after
    another needs the memory of one. None may be written to. selection: which of them the site sent; the others stand at what it was given.
    loss: of its training, nats a token.
    """

    site: str
    tensors: Mapping[str, Numbers]
    num_examples: int
    selection: Selection | None = None
    loss: float = 0.0


Rule = Callable[[Sequence[Update]], Tensors]
LEAST_SHARE = 1e-12
"""Of the weight of the site with the lowest loss: no site counts nothing."""


def fed_avg(updates: Sequence[Update]) -> Tensors:
    """Mean weighted by the sites' data sizes: Liu et al. 2023, eq. 2. Summed in the order given, in float32."""
    return weighted_mean(updates, by_size)


def fed_mean(updates: Sequence[Update]) -> Tensors:
    """Plain mean over sites, whatever their sizes: Liu et al. 2023, eq. 3. Summed in the order given, in float32."""
    return weighted_mean(updates, equally)


def by_size(updates: Sequence[Update], temperature: float = 1.0) -> list[float]:
    """The weights of FedAvg; above a temperature of 1 sizes count to the power of 1 / temperature, so that sites count more alike."""
    return tempered([update.num_examples for update in updates], temperature)


def equally(updates: Sequence[Update]) -> list[float]:
    """The weights of FedMean."""
    return [1 / len(updates)] * len(updates)


def by_loss(updates: Sequence[Update], temperature: float) -> list[float]:
    """Softmax of minus the training losses: Dimitriadis et al. 2021 (DGA). temperature: above 0, in nats a token."""
    lowest = min(update.loss for update in updates)
    shares = [max(math.exp((lowest - update.loss) / temperature), LEAST_SHARE) for update in updates]
    return [share / math.fsum(shares) for share in shares]


Weights = Callable[[Sequence[Update]], list[float]]
"""What each of a cluster's updates counts; they add up to 1."""


WEIGHTS: dict[str, Callable[[Settings], Weights]] = {
    "fed-mean": lambda _: equally,
    "fed-avg": lambda settings: partial(by_size, temperature=settings.sampling_temperature),
    "by-loss": lambda settings: partial(by_loss, temperature=settings.loss_temperature),
}
"""One line a mean: `aggregation` -> its weights."""


def weights_of(settings: Settings, on_bound: Callable[[str, float], None] = lambda site, share: None) -> Weights:
    """Those that `aggregation` names, under a rule that is no weighted mean those of FedMean; none of them over `max-site-share`.

    on_bound: called with the site and the share that it would have.
    """
    by = WEIGHTS.get(settings.aggregation, WEIGHTS["fed-mean"])(settings)

    def bounded(updates: Sequence[Update]) -> list[float]:
        shares = by(updates)
        for update, share in zip(updates, shares, strict=True):
            if len(shares) > 2 and share > settings.max_site_share:
                on_bound(update.site, share)
                return [
                    settings.max_site_share if one == share else one / (1 - share) * (1 - settings.max_site_share)
                    for one in shares
                ]
        return shares

    return bounded


def weighted_mean(updates: Sequence[Update], by: Weights) -> Tensors:
    """float32(w) * x added up site after site; the order is the sum's, so it is the same bytes whichever way it is taken."""
    weights = by(updates)
    return folded(updates, lambda arrays: weighted_sum(arrays, weights))


def folded(updates: Sequence[Update], fold: Callable[[Sequence[Flat]], Numbers]) -> Tensors:
    """What `fold` makes of all updates' numbers: part by part where they lie so, else tensor by tensor."""
    joined = [update.tensors for update in updates if isinstance(update.tensors, Joined)]
    if len(joined) == len(updates):
        return separate({part: fold([each.parts[part] for each in joined]) for part in joined[0].parts}, joined[0].chosen)
    names = updates[0].tensors
    return {name: fold([flat(update.tensors, name) for update in updates]).reshape(names[name].shape) for name in names}


def weighted_sum(arrays: Sequence[Flat], weights: Sequence[float]) -> Numbers:
    """Sum of flat arrays times their weights, in the order given, in float32.

    By blocks that stay in a core's cache while all sites are added: what is in memory is read once, what is in files is never whole.
    """
    total = np.empty(len(arrays[0]), np.float32)
    scaled = [np.float32(weight) for weight in weights]

    def add_up(span: int) -> None:
        scratch = np.empty(BLOCK, np.float32)
        for first in range(span, min(span + SPAN, len(total)), BLOCK):
            sums = total[first : first + BLOCK]
            sums.fill(0)
            for array, weight in zip(arrays, scaled, strict=True):
                sums += np.multiply(array[first : first + BLOCK], weight, out=scratch[: len(sums)])

    in_order(add_up, range(0, len(total), SPAN))
    return total


def start_everywhere(initial: Tensors, tensor_set: TensorSet, clusters: Clusters) -> dict[Part, dict[str, Tensors]]:
    """Every cluster begins with the same tensors: algorithm 1, lines 1-3."""
    return {
        part: {name: {spec.name: initial[spec.name] for spec in tensor_set.of_part(part)} for name in clusters[part]}
        for part in PARTS
    }


def inner_cluster_aggregation(
    state: ClusterTensors, updates: Mapping[str, Update], tensor_set: TensorSet, clusters: Clusters, rule: Rule, least: int = 1
) -> dict[Part, dict[str, Tensors]]:
    """Each part of each cluster becomes `rule` over its own sites' updates: algorithm 1, lines 7-14.

    Sites are taken in federation order, whatever the order of their replies. Where fewer than `least` answered, a cluster
    stays as it was.
    """
    new: dict[Part, dict[str, Tensors]] = {}
    for part in PARTS:
        names = [spec.name for spec in tensor_set.of_part(part)]
        new[part] = {}
        for cluster, sites in clusters[part].items():
            members = [
                replace(updates[site], tensors=_of_part(updates[site].tensors, part, names), selection=None)
                for site in sites
                if site in updates
            ]
            new[part][cluster] = rule(members) if len(members) >= least else dict(state[part][cluster])
    return new


def _of_part(tensors: Mapping[str, Numbers], part: Part, names: Sequence[str]) -> Mapping[str, Numbers]:
    return tensors.of_part(part) if isinstance(tensors, Joined) else {name: tensors[name] for name in names}


def tensors_for(site: str, state: ClusterTensors, tensor_set: TensorSet, clusters: Clusters) -> Tensors:
    """What one site gets: its encoder cluster's, its decoder cluster's and the shared tensors, in the set's order."""
    parts = {part: state[part][cluster_of(clusters, part, site)] for part in PARTS if tensor_set.of_part(part)}
    return {spec.name: parts[spec.part][spec.name] for spec in tensor_set.specs}
