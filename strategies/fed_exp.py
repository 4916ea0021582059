"""FedExP: a mean that moves as far as all its sites together (Jhunjhunwala et al. 2023, algorithm 1)."""

from collections.abc import Sequence

import numpy as np

from fedlingua.exchange.tensors import NamedTensors
from strategies.fed_mean import FedMean
from strategies.updates import Update


class FedExP(FedMean):
    """FedMean, whose clusters move through the mean as far as `step_size` says, part by part.

    A server optimiser gets pseudo-gradients that are so much longer. The paper's mean of the last two rounds is not taken at the end:
    the best round is the one with the least dev loss.
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
    """eta_g = max(1, sum_i p_i |Delta_i|^2 / (2 (|sum_i p_i Delta_i|^2 + epsilon))): Jhunjhunwala et al. 2023, algorithm 1, where all of
    M sites have p_i = 1 / M.

    Args:
        squares: |Delta_i|^2 of every site.
        weights: p_i, which add up to 1.
        mean_square: |sum_i p_i Delta_i|^2.
    """
    shared = sum(weight * square for weight, square in zip(weights, squares, strict=True))
    return max(1.0, shared / (2 * (mean_square + epsilon)))


def squared_distance(tensors: NamedTensors, before: NamedTensors) -> float:
    """|Delta|^2 over all tensors, in float64."""
    return sum(float(np.square(np.subtract(tensors[name], start, dtype=np.float64)).sum()) for name, start in before.items())
