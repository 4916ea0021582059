"""A site's part in training MetaSend (Chu et al. 2024, eq. 5): slopes of its dev loss with respect to threshold and second filter."""

from collections.abc import Sequence
from itertools import compress
from random import Random
from typing import Any

import numpy as np

from fedlingua.backbones.parts import PARTS
from fedlingua.backbones.precision import autocast
from fedlingua.common.timing import timed
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import BATCHES_S, SLOPE_S, Task, Threshold
from fedlingua.layers.selection import SiteSelection, stage_of
from fedlingua.selection.deviation import magnitudes
from fedlingua.selection.meta_gradient import own_slope, products
from fedlingua.selection.second_filter import PRICE, SIZE, network_gradient
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Example, pad
from fedlingua.training.objective import corpus_gradient, corpus_nll


def threshold_slope(selection: SiteSelection, task: Task, threshold: Threshold, network: Numbers | None) -> dict[str, Any]:
    """Return the sums of the loss on random dev batches and its slope with respect to the threshold, for the tensors that
    `SiteClient.measure` loaded.

    Args:
        threshold: The round's threshold, and the weights of the site's update in its clusters.
        network: The second filter's network, if the run has one.
    """
    client, settings = selection.client, selection.settings
    node, draws = client.node, f"{task.site}/{task.round}/meta"
    least = node.guard.file.limits.min_dev if node.guard else 0
    drawn = dev_batches(client.measured_examples(), settings, node.seed(draws), least)
    model, codec, seconds = client.trainable.model, client.trainable.backbone.codec, dict[str, float]()
    with timed(seconds, BATCHES_S), autocast(model, settings.precision):
        batches = [pad(batch, codec).to(model.device) for batch in drawn]
        if not settings.asks_own_terms:
            nll_sum, num_tokens = corpus_nll(model, batches)
        else:
            nll_sum, num_tokens, gradients = corpus_gradient(model, selection.chosen.names, batches)
    answer: dict[str, Any] = {"nll_sum": nll_sum, "num_tokens": num_tokens}
    if settings.asks_own_terms:
        with timed(seconds, SLOPE_S):
            answer |= own_terms(selection, task, threshold, network, gradients)
    return {**answer, **seconds}


def dev_batches(examples: Sequence[Example], settings: Settings, seed: str, least: int) -> list[list[Example]]:
    """Draw `meta.batches` (b) batches of `meta.batch-size` dev sentences without replacement, or all sentences if there are fewer.

    Also if fewer than `least` would be left: the dev loss, less that on the drawn sentences, would be about them alone.
    """
    size, number = settings.meta_batch_size, min(len(examples), settings.meta_batches * settings.meta_batch_size)
    drawn = Random(seed).sample(list(examples), number if len(examples) - number >= least else len(examples))
    return [drawn[first : first + size] for first in range(0, len(drawn), size)]


def own_terms(
    selection: SiteSelection, task: Task, threshold: Threshold, network: Numbers | None, gradients: dict[str, Numbers]
) -> dict[str, Any]:
    """Compute how the site's update affects its dev loss: the slope for the threshold and the gradient for the second filter.

    Both are 0 if the round did not count the update. Tensors that the filter removes do not contribute to the threshold's slope.
    """
    chosen, settings = selection.chosen, selection.settings
    if not any(threshold.weights):
        return {"slope": 0.0, **({} if network is None else {"filter": [0.0] * SIZE})}
    measured, start = selection.waiting(task)
    new = selection.client.own_rounds.load(stage_of(task))
    deviations = dict(zip(chosen.names, map(float, measured), strict=True))
    of_tensors, passing = products(gradients, start, new), set(compress(chosen.names, selection.passing(new, network)))
    weights = dict(zip(PARTS, threshold.weights, strict=True))
    answer: dict[str, Any] = {"slope": 0.0}
    for part, weight in weights.items():
        names = [spec.name for spec in chosen.of_part(part) if spec.name in of_tensors and spec.name in passing]
        of_part = {name: of_tensors[name] for name in names}
        answer["slope"] += own_slope(of_part, weight, deviations, threshold.theta, threshold.tau, settings.side)
    if network is not None:
        remaining = selection.by_threshold(measured, threshold.theta).tensors
        reached = remaining & np.array([name in of_tensors for name in chosen.names])
        slopes = [
            weights[spec.part] * of_tensors[spec.name] + PRICE * spec.size / chosen.num_parameters
            for spec, is_reached in zip(chosen.specs, reached, strict=True)
            if is_reached
        ]
        gradient = network_gradient(network, magnitudes(new, chosen)[reached], np.array(slopes))
        answer["filter"] = list(map(float, gradient))
    return answer
