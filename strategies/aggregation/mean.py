"""Aggregation as pure functions: algorithm 1 of Liu et al. 2023, weights, and the mean of a cluster's updates."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import Clusters
from fedlingua.common.cores import BLOCK, SPAN, on_cores
from fedlingua.exchange.joined import Joined, Some, join
from fedlingua.exchange.state import ClusterTensors
from fedlingua.exchange.tensors import NamedTensors, TensorSet
from fedlingua.exchange.updates import Sent, Update
from fedlingua.settings.config import Settings
from fedlingua.training.sampling import tempered

Combine = Callable[[NamedTensors, Sequence[Update]], NamedTensors]
"""(a cluster's tensors of one part, its sites' updates of them) -> its new tensors; without updates the old ones."""


# --- Clusters: algorithm 1 ---------------------------------------------------------------------------------------------------


def start_everywhere(initial: NamedTensors, tensor_set: TensorSet, clusters: Clusters) -> dict[Part, dict[str, NamedTensors]]:
    """Give every cluster the same initial tensors: algorithm 1, lines 1-3."""
    joined = Joined(join(initial, tensor_set), tensor_set)
    return {part: dict.fromkeys(clusters[part], joined.of_part(part)) for part in PARTS}


def inner_cluster_aggregation(
    before: ClusterTensors, updates: Mapping[str, Update], tensor_set: TensorSet, clusters: Clusters, combine: Combine
) -> dict[Part, dict[str, NamedTensors]]:
    """Combine each part of each cluster with the updates of the cluster's own sites: algorithm 1, lines 7-14."""
    new: dict[Part, dict[str, NamedTensors]] = {part: {} for part in PARTS}
    for part, cluster, sites in in_clusters(set(updates), clusters):
        names, members = [spec.name for spec in tensor_set.of_part(part)], []
        for update in (updates[site] for site in sites):
            of = update.tensors.of_part(part) if isinstance(update.tensors, Joined) else {n: update.tensors[n] for n in names}
            members.append(replace(update, tensors=of))
        # A checkpoint holds no cluster without tensors, and a rule of one's own expects some.
        new[part][cluster] = combine(before[part][cluster], members) if names else {}
    return new


def in_clusters(answered: Collection[str], clusters: Clusters) -> Iterator[tuple[Part, str, list[str]]]:
    """Yield (part, cluster, its sites that answered) in federation order, whatever the order of replies."""
    for part in PARTS:
        for cluster, sites in clusters[part].items():
            yield part, cluster, [site for site in sites if site in answered]


# --- Weights -----------------------------------------------------------------------------------------------------------------

Weights = Callable[[Sequence[Update]], list[float]]
"""Updates of a cluster -> their weights, which add up to 1."""
LEAST_SHARE = 1e-12
"""Least weight of a site, relative to that of the site with the lowest loss: no site has weight 0."""


def by_size(updates: Sequence[Update], temperature: float = 1.0) -> list[float]:
    """Return the weights of FedAvg, Liu et al. 2023, eq. 2: sizes to the power of 1 / temperature."""
    return tempered([update.num_examples for update in updates], temperature)


def equally(updates: Sequence[Update]) -> list[float]:
    """Return the weights of FedMean: Liu et al. 2023, eq. 3."""
    return [1 / len(updates)] * len(updates)


def by_loss(updates: Sequence[Update]) -> list[float]:
    """Return the softmax of minus the training losses, Dimitriadis et al. 2021 (DGA), in nats a token."""
    lowest = min(update.loss for update in updates)
    shares = [max(math.exp(lowest - update.loss), LEAST_SHARE) for update in updates]
    return [share / math.fsum(shares) for share in shares]


WEIGHTS: dict[str, Callable[[Settings], Weights]] = {
    "fed-mean": lambda _: equally,
    "fed-avg": lambda settings: partial(by_size, temperature=settings.sampling_temperature),
    "by-loss": lambda settings: by_loss,
}
"""`aggregation` -> its weights; one line for each weighted mean."""


def weights_of(settings: Settings, on_bound: Callable[[str, float], None] = lambda site, share: None) -> Weights:
    """Return the weights that `aggregation` names (FedMean's under norm clipping), none above `robust.max-share`.

    on_bound: Called with a site whose weight is bounded, and the weight that it would have had.
    """
    by = WEIGHTS.get(settings.aggregation, WEIGHTS["fed-mean"])(settings)

    def bounded(updates: Sequence[Update]) -> list[float]:
        shares, most = by(updates), settings.max_site_share
        large = max(shares)
        if len(shares) < 3 or large <= most:
            return shares
        on_bound(updates[shares.index(large)].site, large)
        return [most if share == large else share / (1 - large) * (1 - most) for share in shares]

    return bounded


def shares_of(updates: Mapping[str, Update], clusters: Clusters, by: Weights) -> Iterator[tuple[Part, str, dict[str, float]]]:
    """Yield (part, cluster, site -> its weight there) for clusters in which any site has an update."""
    for part, cluster, sites in in_clusters(updates, clusters):
        if sites:
            yield part, cluster, dict(zip(sites, by([updates[site] for site in sites]), strict=True))


# --- The mean ----------------------------------------------------------------------------------------------------------------


def mean(before: NamedTensors, sent: Sequence[Sent]) -> NamedTensors:
    """Return the mean of what a cluster's sites sent; a number that no site sent stays unchanged, bit for bit.

    If all sites sent everything, this is FedAvg (FedMean under equal weights). Eq. 4 of MetaSend (Chu et al. 2024) sums over all sites
    and does not say what is added for a site that sent nothing. Here it is what the site received, as if it had not changed:
    W_s = W_g + sum over senders k of w_k (W_k - W_g).

    Sums run in the order given, in float32: float32(w) * x, site after site.

    Args:
        before: The cluster's tensors at the beginning of the round.
        sent: What every answering site sent, with weights that add up to 1.
    """
    every = [before, *(site.tensors for site in sent)]
    begun, *given = (each if isinstance(each, Joined | Some) else Some(each, each) for each in every)
    sizes = {name: len(begun.flat(name)) for name in before}
    memory, ends = np.empty(sum(sizes.values()), np.float32), dict(zip(sizes, accumulate(sizes.values()), strict=True))

    def add_up(name: str, span: int) -> None:
        """Compute one core's span of a tensor, in blocks that stay in the core's cache while all sites are added."""
        start = begun.flat(name)
        arrays = [tensors.flat(name) if name in tensors else start for tensors in given]
        # Which of its numbers each site sent; None: all, or none of the tensor.
        masks = [site.masks.get(name) if name in tensors else None for site, tensors in zip(sent, given, strict=True)]
        in_part = all(name in site.masks for site, tensors in zip(sent, given, strict=True) if name in tensors)
        total, last = memory[ends[name] - sizes[name] : ends[name]], min(span + SPAN, sizes[name])
        scratch = np.empty(min(BLOCK, last - span), np.float32)
        for first in range(span, last, BLOCK):
            block = slice(first, min(first + BLOCK, last))
            sums, counted = total[block], [None if mask is None else mask[block] for mask in masks]
            sums.fill(0)
            for site, array, mask in zip(sent, arrays, counted, strict=True):
                numbers = array[block] if mask is None else np.where(mask, array[block], start[block])
                sums += np.multiply(numbers, np.float32(site.weight), out=scratch[: len(sums)])
            if in_part:  # numbers that nobody sent: summing shares of the old value would round it
                there = np.logical_or.reduce([mask for mask in counted if mask is not None], initial=False)
                np.copyto(sums, start[block], where=~there)

    on_cores(lambda task: add_up(*task), [(name, span) for name, size in sizes.items() for span in range(0, size, SPAN)])
    if isinstance(before, Joined) and len(before.parts) < 2:
        return Joined(dict.fromkeys(before.parts, memory), before.chosen)
    return {name: memory[end - sizes[name] : end].reshape(before[name].shape) for name, end in ends.items()}
