"""The weighted mean of updates without a strategy: FedMean and FedAvg of Liu et al. 2023."""

from collections.abc import Sequence
from functools import partial

from fedlingua.exchange.tensors import NamedTensors
from fedlingua.exchange.updates import Update
from strategies.aggregation.mean import Weights, by_size, equally, mean


def weighted_mean(before: NamedTensors, updates: Sequence[Update], by: Weights) -> NamedTensors:
    """Return the mean of a cluster's updates, weighted `by`; without updates, its tensors as they were."""
    if not updates:
        return before
    return mean(before, [update.sent(weight) for update, weight in zip(updates, by(updates), strict=True)])


fed_mean, fed_avg = partial(weighted_mean, by=equally), partial(weighted_mean, by=by_size)
