"""Means over sites that sent only some of their tensors, or some numbers of them: eq. 4 of MetaSend, as pure functions of what came.

The paper sums over all sites and does not say what stands where a site sent nothing. Both readings are here, under `missing`:

- `previous`: what the site received stands in, as if it had not moved there: W_s = W_g + sum over those who sent of w_k (W_k - W_g).
- `renormalise`: those who sent share the weights among them.

Where nobody sent, what was there stays, bit for bit, under either. Where all sent all, either is FedAvg, bit for bit.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isclose

import numpy as np

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import Clusters
from fedlingua.exchange.joined import Flat, Joined, Numbers, Some, flat
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.checkpoints import ClusterTensors
from strategies.aggregation import Update, Weights, weighted_sum
from strategies.cores import BLOCK, SPAN, in_order


@dataclass(frozen=True)
class Sent:
    """What came from one site of a cluster.

    weight: the site's in its cluster, above 0. tensors: those it sent, float32 in their full shape. masks: tensor -> flat bools, which of
    its numbers were sent, where not all were; what stands at the others is not looked at.
    """

    weight: float
    tensors: Mapping[str, Numbers]
    masks: Mapping[str, Numbers] = field(default_factory=dict)


def previous(received: Mapping[str, Numbers], sent: Sequence[Sent]) -> Tensors:
    """The mean over all sites that answered, each with what it received where it sent nothing. Summed in the order given, in float32.

    received: the cluster's tensors that the round began with. sent: of every site that answered, with weights that add up to 1.
    """
    assert isclose(fsum(site.weight for site in sent), 1.0), "weights are those of all sites that answered"
    weights = [site.weight for site in sent]
    found: Tensors = {}
    for name, start in received.items():
        found[name] = start
        if any(name in site.tensors for site in sent):
            before = np.ravel(start)
            mean = weighted_sum([_with_received(site, name, before) for site in sent], weights)
            found[name] = _unless_nobody_sent(mean, before, sent, name).reshape(start.shape)
    return found


def renormalised(received: Mapping[str, Numbers], sent: Sequence[Sent]) -> Tensors:
    """The mean over the sites that sent, by their weights among those. Summed in the order given.

    In float32 where all senders of a tensor sent it whole. Else every number has a divisor of its own, and the mean is taken in float64 and
    rounded once: what a single site sent comes out as it was sent.
    """
    found: Tensors = {}
    for name, start in received.items():
        senders = [site for site in sent if name in site.tensors]
        arrays = [flat(site.tensors, name) for site in senders]
        weights = [site.weight for site in senders]
        found[name] = start
        if any(name in site.masks for site in senders):
            masks = [site.masks.get(name) for site in senders]
            found[name] = _mean_of_sent(np.ravel(start), arrays, weights, masks).reshape(start.shape)
        elif senders:
            found[name] = weighted_sum(arrays, [weight / fsum(weights) for weight in weights]).reshape(start.shape)
    return found


Partial = Callable[[Mapping[str, Numbers], Sequence[Sent]], Tensors]
MISSING: dict[str, Partial] = {"previous": previous, "renormalise": renormalised}
"""One line a reading: `missing` -> its mean."""


Sendings = Iterable[tuple[Part, str, Sequence[Sent]]]
"""Every part's clusters, each with what came from its sites; empty where none answered."""


def sent_to_clusters(updates: Mapping[str, Update], tensor_set: TensorSet, clusters: Clusters, weights: Weights) -> Sendings:
    """Of a round's updates; sites are taken in federation order. weights: of a cluster's updates, in its mean."""
    for part in PARTS:
        names = [spec.name for spec in tensor_set.of_part(part)]
        for cluster, sites in clusters[part].items():
            members = [updates[site] for site in sites if site in updates]
            shares = weights(members) if members else []
            yield part, cluster, [_sent(update, names, share) for update, share in zip(members, shares, strict=True)]


def selective_aggregation(state: ClusterTensors, sendings: Sendings, mean: Partial) -> dict[Part, dict[str, Tensors]]:
    """Each part of each cluster becomes `mean` of what its own sites sent; a cluster none of whose sites answered stays as it was."""
    new: dict[Part, dict[str, Tensors]] = {part: {} for part in PARTS}
    for part, cluster, sent in sendings:
        # A checkpoint keeps no cluster without tensors, as of a part that the set has nothing of.
        before = state[part].get(cluster, {})
        new[part][cluster] = mean(before, sent) if sent else dict(before)
    return new


def pseudo_gradients(state: ClusterTensors, sendings: Sendings, mean: Partial) -> dict[Part, dict[str, Tensors]]:
    """`mean` of what each of a cluster's sites moved away from: theta - theta_i, eqs. 1 and 2 of Manoel et al. 2022.

    Taken of the differences themselves, it is 0 to the last bit for a number that no site changed; theta less the mean of the sites would
    leave the mean's rounding there, which an optimiser that divides by a gradient's size takes for a direction. Tensors that nobody sent,
    and clusters that nobody answered for, are not in it.
    """
    found: dict[Part, dict[str, Tensors]] = {part: {} for part in PARTS}
    for part, cluster, sent in sendings:
        theta = state[part].get(cluster, {})
        moved = {name for site in sent for name in site.tensors}
        nowhere = {name: np.zeros_like(tensor) for name, tensor in theta.items() if name in moved}
        found[part][cluster] = (
            mean(nowhere, [Sent(site.weight, _Away(theta, site.tensors), site.masks) for site in sent]) if sent else {}
        )
    return found


class _Away(Some):
    """How far tensors are from theta, each worked out when it is asked for."""

    def __init__(self, theta: Mapping[str, Numbers], tensors: Mapping[str, Numbers]) -> None:
        super().__init__(tensors, tensors)
        self._theta = theta

    def flat(self, name: str) -> Flat:
        return _Difference(np.ravel(self._theta[name]), super().flat(name))

    def __getitem__(self, name: str) -> Numbers:
        return self._theta[name] - super().__getitem__(name)


@dataclass(frozen=True)
class _Difference:
    """One flat array less another, as far as it is asked for."""

    theta: Numbers
    numbers: Flat

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, chosen: slice) -> Numbers:
        return self.theta[chosen] - self.numbers[chosen]


def sent_tensors(update: Update, names: Collection[str]) -> Some:
    """Of the named tensors those of which a site sent anything, left where they lie."""
    chosen = update.selection
    if chosen is None or chosen.tensors is None:
        return Some(update.tensors, names)
    sent = {name for name, is_sent in zip(chosen.chosen.names, chosen.tensors, strict=True) if is_sent}
    return Some(update.tensors, [name for name in names if name in sent])


def _sent(update: Update, names: Sequence[str], weight: float) -> Sent:
    masks: dict[str, Numbers] = {}
    if update.selection is not None and update.selection.numbers is not None:
        by_name = Joined(update.selection.numbers, update.selection.chosen)
        masks = {name: np.ravel(by_name[name]) for name in names}
    return Sent(weight, sent_tensors(update, names), masks)


@dataclass(frozen=True)
class _Filled:
    """A site's numbers where it sent them, and what it received everywhere else."""

    numbers: Flat
    mask: Numbers
    start: Numbers

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, chosen: slice) -> Numbers:
        return np.where(self.mask[chosen], self.numbers[chosen], self.start[chosen])


def _with_received(site: Sent, name: str, start: Numbers) -> Flat:
    if name not in site.tensors:
        return start
    numbers, mask = flat(site.tensors, name), site.masks.get(name)
    return numbers if mask is None else _Filled(numbers, mask, start)


def _unless_nobody_sent(mean: Numbers, start: Numbers, sent: Sequence[Sent], name: str) -> Numbers:
    """The mean, but the very numbers received where every site left them out: the sum of their shares would round."""
    senders = [site for site in sent if name in site.tensors]
    if all(name in site.masks for site in senders):
        np.copyto(mean, start, where=~np.logical_or.reduce([site.masks[name] for site in senders]))
    return mean


def _mean_of_sent(start: Numbers, arrays: Sequence[Flat], weights: Sequence[float], masks: Sequence[Numbers | None]) -> Numbers:
    """By blocks that stay in a core's cache, as `weighted_sum`."""
    mean = np.empty(len(start), np.float32)

    def fold(span: int) -> None:
        for first in range(span, min(span + SPAN, len(start)), BLOCK):
            block = slice(first, min(first + BLOCK, len(start)))
            sums, present = np.zeros((2, block.stop - first))
            for array, weight, mask in zip(arrays, weights, masks, strict=True):
                chosen = True if mask is None else mask[block]
                np.add(sums, weight * array[block].astype(np.float64), out=sums, where=chosen)
                np.add(present, weight, out=present, where=chosen)
            np.divide(sums, present, out=sums, where=present > 0)
            mean[block] = np.where(present > 0, sums, start[block])

    in_order(fold, range(0, len(start), SPAN))
    return mean
