"""FedExP: the step to the mean, extrapolated by the sites' disagreement (Jhunjhunwala et al. 2023, algorithm 1)."""

from collections.abc import Sequence

import numpy as np

from fedlingua.exchange.tensors import NamedTensors
from strategies.aggregation.updates import Update
from strategies.methods.fed_mean import FedMean


class FedExP(FedMean):
    """FedMean in which each part of a cluster moves `step_size` times its step to the mean.

    A server optimizer gets pseudo-gradients longer by this factor. The paper's mean of the last two rounds is not taken at the
    end: the best round is the one with the least dev loss.
    """

    def _combined(self, before: NamedTensors, members: Sequence[Update]) -> NamedTensors:
        mean = super()._combined(before, members)
        if not members or not before:
            return mean
        squares = [squared_distance(update.tensors, before) for update in members]
        size = step_size(squares, self.weights(members), squared_distance(mean, before), self.settings.server_epsilon)
        about = {"sites": [update.site for update in members], "step_size": size}
        self.phases.record.about.setdefault("extrapolation", []).append(about)
        if size == 1:
            return mean
        return {name: before[name] + np.float32(size) * (tensor - before[name]) for name, tensor in mean.items()}


def step_size(squares: Sequence[float], weights: Sequence[float], mean_square: float, epsilon: float) -> float:
    """Return eta_g = max(1, sum_i p_i |Delta_i|^2 / (2 (|sum_i p_i Delta_i|^2 + epsilon))).

    Args:
        squares: |Delta_i|^2 of every site.
        weights: p_i, which add up to 1; in the paper (Jhunjhunwala et al. 2023, algorithm 1) 1 / M for each of M sites.
        mean_square: |sum_i p_i Delta_i|^2.
    """
    shared = sum(weight * square for weight, square in zip(weights, squares, strict=True))
    return max(1.0, shared / (2 * (mean_square + epsilon)))


def squared_distance(tensors: NamedTensors, before: NamedTensors) -> float:
    """Return |Delta|^2 over all tensors, in float64."""
    return sum(float(np.square(np.subtract(tensors[name], start, dtype=np.float64)).sum()) for name, start in before.items())
