"""A site's part in what MetaSend learns from a round (Chu et al. 2024, eq. 5): the slope of the threshold, and of the second filter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from clients.sending import Sending
from fedlingua.backbones.parts import PARTS
from fedlingua.common.timing import timed
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import BATCHES_S, SLOPE_S, Threshold
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.selection.deviation import magnitudes
from fedlingua.selection.masks import part_sizes, unpack_selected
from fedlingua.selection.meta_gradient import inner_product, own_slope
from fedlingua.selection.second_filter import SIZE, network_gradient
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Batch, Example
from fedlingua.training.gradient import corpus_gradient
from fedlingua.training.objective import corpus_nll


def random_batches(examples: Sequence[Example], settings: Settings, seed: str) -> list[list[Example]]:
    """`meta-batches` (b) of `meta-batch-size` sentences drawn from the dev text without repetition, or all where there are fewer."""
    size = settings.meta_batch_size
    drawn = Random(seed).sample(list(examples), min(len(examples), settings.meta_batches * size))
    return [drawn[first : first + size] for first in range(0, len(drawn), size)]


@dataclass(frozen=True)
class RoundsUpdate:
    """What a site trained in a round that counted it. came: what it began with; new: what it ended with; deviations: (tensors,)."""

    came: Tensors
    new: Tensors
    deviations: Numbers


@dataclass(frozen=True)
class MetaStep:
    """One site's answer about one round: the model holds what the round came to, batches are of the dev text. seconds: go on from what it
    took to draw them."""

    settings: Settings
    sending: Sending
    model: PreTrainedModel
    batches: list[Batch]
    seconds: dict[str, float]

    def loss(self) -> dict[str, Any]:
        """The estimator `loss`: that alone."""
        with timed(self.seconds, BATCHES_S):
            nll_sum, num_tokens = corpus_nll(self.model, self.batches)
        return {"nll_sum": nll_sum, "num_tokens": num_tokens, **self.seconds}

    def answer(
        self, threshold: Threshold, direction: Mapping[str, Numbers], network: Numbers | None, update: RoundsUpdate | None
    ) -> dict[str, Any]:
        """The site's numbers. direction: as packed, for `cross`; network: the second filter's; update: None where the round went on
        without the site's.
        """
        crosses = self.settings.meta_estimator == "cross" and not threshold.own
        way = unpack_direction(direction, self.sending.chosen) if crosses else {}
        names = list(way) if crosses and network is None else list(update.new if update else way)
        with timed(self.seconds, BATCHES_S):
            nll_sum, num_tokens, gradients = corpus_gradient(self.model, names, self.batches)
        told: dict[str, Any] = {"nll_sum": nll_sum, "num_tokens": num_tokens}
        with timed(self.seconds, SLOPE_S):
            told["slope"] = inner_product(gradients, {name: way[name] for name in gradients if name in way})
            if update and not crosses:
                told["slope"] = self._own_terms(gradients, update, threshold, network)
            if network is not None:
                told["filter"] = self._filter_gradient(network, gradients, update, threshold) if update else [0.0] * SIZE
        return {**told, **self.seconds}

    def _own_terms(self, gradients: Tensors, update: RoundsUpdate, threshold: Threshold, network: Numbers | None) -> float:
        """The estimator `own`: <gradient, what theta lets this site's own update add>, over its clusters of all parts. What the second
        filter leaves out theta does not add.
        """
        chosen = self.sending.chosen
        passes = self.sending.passes_filter(update.new, network)
        of_tensor = dict(zip(chosen.names, map(float, update.deviations), strict=True))
        total = 0.0
        for part, weight in zip(PARTS, threshold.weights, strict=True):
            names = [spec.name for spec in chosen.of_part(part) if spec.name in gradients and spec.name in passes]
            trained = {name: update.new[name] for name in names}
            total += own_slope(
                gradients, update.came, trained, weight, of_tensor, threshold.theta, threshold.tau, self.settings.keep
            )
        return total

    def _filter_gradient(self, network: Numbers, gradients: Tensors, update: RoundsUpdate, threshold: Threshold) -> list[float]:
        """Of the dev loss and the numbers' price, over the tensors that the threshold has left."""
        chosen = self.sending.chosen
        remaining = self.sending.by_threshold(update.deviations, threshold.theta).tensors
        assert remaining is not None
        weights = dict(zip(PARTS, threshold.weights, strict=True))
        slopes = [
            weights[spec.part] * inner_product(gradients, {spec.name: update.new[spec.name] - update.came[spec.name]})
            + self.settings.second_filter_weight * int(np.prod(spec.shape)) / chosen.num_parameters
            for spec, is_left in zip(chosen.specs, remaining, strict=True)
            if is_left and spec.name in gradients
        ]
        reached = np.array([spec.name in gradients for spec in chosen.specs]) & remaining
        gradient = network_gradient(network, magnitudes(update.new, chosen)[reached], np.array(slopes))
        return list(map(float, gradient))


def unpack_direction(arrays: Mapping[str, Numbers], chosen: TensorSet) -> Tensors:
    """The tensors that the server's direction has, by name.

    Raises:
        ExchangeError: it is not of the run's tensor set.
    """
    nothing = {part: [np.zeros(size, np.float32)] for part, size in part_sizes(chosen).items()}
    joined, selection = unpack_selected(arrays, chosen, nothing)
    assert selection.tensors is not None
    return {name: joined[name] for name, moves in zip(chosen.names, selection.tensors, strict=True) if moves}
