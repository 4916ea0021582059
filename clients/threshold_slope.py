"""A site's part in what MetaSend learns from a round (Chu et al. 2024, eq. 5): the slope of the threshold, and of the second filter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from clients.selection import SiteSelection, stage_of
from fedlingua.backbones.parts import PARTS
from fedlingua.backbones.precision import autocast
from fedlingua.common.timing import timed
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import BATCHES_S, SLOPE_S, Task, Threshold
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet
from fedlingua.selection.deviation import magnitudes
from fedlingua.selection.masks import part_sizes, unpack_selected
from fedlingua.selection.meta_gradient import inner_product, own_slope
from fedlingua.selection.second_filter import SIZE, network_gradient
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Batch, Example, pad
from fedlingua.training.objective import corpus_gradient, corpus_nll


def threshold_slope(
    selection: SiteSelection,
    task: Task,
    threshold: Threshold,
    direction: Mapping[str, Numbers],
    network: Numbers | None,
    received: NamedTensors,
) -> dict[str, Any]:
    """Answer what the server asks about a round, with the tensors that `SiteClient.measure` has put into the model.

    Args:
        selection: The site's selection, whose client holds the model.
        task: The round.
        threshold: The round's threshold, and what the site's update counted.
        direction: Where the threshold moves the model, as the server packed it, for the estimator `cross`.
        network: The second filter's network, where the run has one.
        received: The tensors that came with the request.
    """
    client, settings = selection.client, selection.settings
    model, codec, seconds = client.trainable.model, client.trainable.backbone.codec, dict[str, float]()
    with timed(seconds, BATCHES_S):
        drawn = random_batches(client.examples("dev"), settings, f"{settings.seed}/{client.site}/{task.round}/meta")
        batches = [pad(batch, codec).to(model.device) for batch in drawn]
    with autocast(model, settings.precision):
        if settings.meta_estimator == "loss" and network is None:
            with timed(seconds, BATCHES_S):
                nll_sum, num_tokens = corpus_nll(model, batches)
            return {"nll_sum": nll_sum, "num_tokens": num_tokens, **seconds}
        asks_own = threshold.own or network is not None or settings.meta_estimator == "own"
        update = _round_update(selection, task, received) if asks_own and any(threshold.weights) else None
        return _Slope(selection, threshold, network, update).of(batches, direction, seconds)


def random_batches(examples: Sequence[Example], settings: Settings, seed: str) -> list[list[Example]]:
    """Draw `meta.batches` (b) of `meta.batch-size` sentences of the dev text without repetition, or all where there are fewer."""
    size = settings.meta_batch_size
    drawn = Random(seed).sample(list(examples), min(len(examples), settings.meta_batches * size))
    return [drawn[first : first + size] for first in range(0, len(drawn), size)]


@dataclass(frozen=True)
class RoundUpdate:
    """What a site trained in a round that counted it. start, new: what it began and ended with; deviations: (tensors,)."""

    start: NamedTensors
    new: Tensors
    deviations: Numbers


def _round_update(selection: SiteSelection, task: Task, received: NamedTensors) -> RoundUpdate:
    measured, start = selection.waiting(task)
    # Where the start was not stored nobody sent anything, and what the round began with is what it ended with.
    return RoundUpdate(start or received, selection.client.own_rounds.load(stage_of(task)), measured)


@dataclass(frozen=True)
class _Slope:
    """One site's answer about one round, whose result the model holds. update: None where the round counted none of the site's."""

    selection: SiteSelection
    threshold: Threshold
    network: Numbers | None
    update: RoundUpdate | None

    def of(self, batches: Sequence[Batch], direction: Mapping[str, Numbers], seconds: dict[str, float]) -> dict[str, Any]:
        """Return the site's numbers on batches of its dev text. seconds: added to, and returned with them."""
        settings, network, update = self.selection.settings, self.network, self.update
        crosses = settings.meta_estimator == "cross" and not self.threshold.own
        way = unpack_direction(direction, self.selection.chosen) if crosses else {}
        names = list(way) if crosses and network is None else list(update.new if update else way)
        with timed(seconds, BATCHES_S):
            model = self.selection.client.trainable.model
            nll_sum, num_tokens, gradients = corpus_gradient(model, names, batches)
        answer: dict[str, Any] = {"nll_sum": nll_sum, "num_tokens": num_tokens}
        with timed(seconds, SLOPE_S):
            answer["slope"] = inner_product(gradients, {name: way[name] for name in gradients if name in way})
            if update and not crosses:
                answer["slope"] = self._own_terms(gradients, update)
            if network is not None:
                answer["filter"] = self._filter_gradient(network, gradients, update) if update else [0.0] * SIZE
        return {**answer, **seconds}

    def _own_terms(self, gradients: Tensors, update: RoundUpdate) -> float:
        """The estimator `own`: <gradient, what theta lets this site's own update add>, over its clusters of all parts.

        What the second filter leaves out theta does not add.
        """
        chosen, theta, tau = self.selection.chosen, self.threshold.theta, self.threshold.tau
        passes = self.selection.passes_filter(update.new, self.network)
        of_tensor = dict(zip(chosen.names, map(float, update.deviations), strict=True))
        total = 0.0
        for part, weight in zip(PARTS, self.threshold.weights, strict=True):
            names = [spec.name for spec in chosen.of_part(part) if spec.name in gradients and spec.name in passes]
            trained = {name: update.new[name] for name in names}
            keep = self.selection.settings.keep
            total += own_slope(gradients, update.start, trained, weight, of_tensor, theta, tau, keep)
        return total

    def _filter_gradient(self, network: Numbers, gradients: Tensors, update: RoundUpdate) -> list[float]:
        """The gradient of the dev loss and of the numbers' price, over the tensors that the threshold has left."""
        chosen, price = self.selection.chosen, self.selection.settings.second_filter_weight
        remaining = self.selection.by_threshold(update.deviations, self.threshold.theta).tensors
        assert remaining is not None
        weights = dict(zip(PARTS, self.threshold.weights, strict=True))
        slopes = [
            weights[spec.part] * inner_product(gradients, {spec.name: update.new[spec.name] - update.start[spec.name]})
            + price * int(np.prod(spec.shape)) / chosen.num_parameters
            for spec, is_left in zip(chosen.specs, remaining, strict=True)
            if is_left and spec.name in gradients
        ]
        reached = np.array([spec.name in gradients for spec in chosen.specs]) & remaining
        gradient = network_gradient(network, magnitudes(update.new, chosen)[reached], np.array(slopes))
        return list(map(float, gradient))


def unpack_direction(arrays: Mapping[str, Numbers], chosen: TensorSet) -> Tensors:
    """Unpack the tensors that the server's direction has, by name.

    Raises:
        ExchangeError: It is not of the run's tensor set.
    """
    nothing = {part: [np.zeros(size, np.float32)] for part, size in part_sizes(chosen).items()}
    joined, selection = unpack_selected(arrays, chosen, nothing)
    assert selection.tensors is not None
    return {name: joined[name] for name, moves in zip(chosen.names, selection.tensors, strict=True) if moves}
