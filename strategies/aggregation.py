"""Aggregation rules and algorithm 1 of Liu et al. 2023, as pure functions of updates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedlingua.checkpoints import ClusterTensors
from fedlingua.clustering import Clusters, cluster_of
from fedlingua.exchange.tensor_sets import Tensors, TensorSet
from fedlingua.parts import PARTS, Part


@dataclass(frozen=True)
class Update:
    """A site's tensors after local training, and how many sentences it trained on."""

    site: str
    tensors: Tensors
    num_examples: int


Rule = Callable[[Sequence[Update]], Tensors]


def fed_avg(updates: Sequence[Update]) -> Tensors:
    """Mean weighted by the sites' data sizes: Liu et al. 2023, eq. 2. Summed in the order given, in float32."""
    total = sum(update.num_examples for update in updates)
    return _weighted_sum(updates, [update.num_examples / total for update in updates])


def fed_mean(updates: Sequence[Update]) -> Tensors:
    """Plain mean over sites, whatever their sizes: Liu et al. 2023, eq. 3. Summed in the order given, in float32."""
    return _weighted_sum(updates, [1 / len(updates)] * len(updates))


def _weighted_sum(updates: Sequence[Update], weights: Sequence[float]) -> Tensors:
    result: Tensors = {}
    for name, first in updates[0].tensors.items():
        total = np.zeros(first.shape, np.float32)
        for update, weight in zip(updates, weights, strict=True):
            total += np.float32(weight) * update.tensors[name]
        result[name] = total
    return result


def start_everywhere(initial: Tensors, tensor_set: TensorSet, clusters: Clusters) -> dict[Part, dict[str, Tensors]]:
    """Every cluster begins with the same tensors: algorithm 1, lines 1-3."""
    return {
        part: {name: {spec.name: initial[spec.name] for spec in tensor_set.of_part(part)} for name in clusters[part]}
        for part in PARTS
    }


def inner_cluster_aggregation(
    state: ClusterTensors, updates: Mapping[str, Update], tensor_set: TensorSet, clusters: Clusters, rule: Rule
) -> dict[Part, dict[str, Tensors]]:
    """Each part of each cluster becomes `rule` over its own sites' updates: algorithm 1, lines 7-14.

    Sites are taken in federation order, whatever the order of their replies. A cluster none of whose sites answered stays as it was.
    """
    new: dict[Part, dict[str, Tensors]] = {}
    for part in PARTS:
        names = [spec.name for spec in tensor_set.of_part(part)]
        new[part] = {}
        for cluster, sites in clusters[part].items():
            members = [
                Update(site, {name: updates[site].tensors[name] for name in names}, updates[site].num_examples)
                for site in sites
                if site in updates
            ]
            new[part][cluster] = rule(members) if members else dict(state[part][cluster])
    return new


def tensors_for(site: str, state: ClusterTensors, tensor_set: TensorSet, clusters: Clusters) -> Tensors:
    """What one site gets: its encoder cluster's, its decoder cluster's and the shared tensors, in the set's order."""
    parts = {part: state[part][cluster_of(clusters, part, site)] for part in PARTS if tensor_set.of_part(part)}
    return {spec.name: parts[spec.part][spec.name] for spec in tensor_set.specs}
