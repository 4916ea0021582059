"""A site's signature: the gradient of one adapter on the site's text (Liu et al. 2023, §2.3), and its private form.

On mBART-50 an adapter's two weight matrices have 131,072 numbers, as many as the paper sends. Such a gradient can reveal text;
the private form is a random projection of every sentence's gradient, clipped, summed and noised.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from fedlingua.backbones.bottleneck import BottleneckAdapter
from fedlingua.backbones.codec import Codec
from fedlingua.backbones.layouts import Stack, layout_of
from fedlingua.common.errors import ConfigError
from fedlingua.training.batches import Example, by_tokens, pad

Array = np.ndarray[Any, Any]
BATCH_TOKENS = 3000
"""Padded tokens of a batch for the mean gradient, which needs no gradients of single sentences."""


def chosen_adapter(model: PreTrainedModel, name: str) -> BottleneckAdapter:
    """Return the adapter that `signature.adapter` names, as in "encoder.-1.fc2", where only layers with adapters are counted.

    Raises:
        ConfigError: There is no such adapter; lists those there are.
    """
    part, layer, place = name.split(".")
    stacks: dict[str, Stack] = dict(layout_of(model).stacks.items())
    adapters = [layer.adapters for layer in stacks[part].held(model) if hasattr(layer, "adapters")] if part in stacks else []
    number = int(layer)
    if part not in stacks or place not in stacks[part].places or not -len(adapters) <= number < len(adapters):
        places = "; ".join(f"{stack}.LAYER.PLACE, PLACE one of {', '.join(each.places)}" for stack, each in stacks.items())
        raise ConfigError(
            f"signature.adapter = {name!r}: there is no such adapter; wanted {places}; LAYER from 0, or from -1 backwards, "
            f"of {len(adapters) or 'the'} layers with adapters"
        )
    adapter: BottleneckAdapter = adapters[number][place]
    return adapter


def num_weights(adapter: BottleneckAdapter) -> int:
    """Return how many numbers the gradient has."""
    return sum(weight.numel() for weight in _weights(adapter))


def mean_gradient(model: PreTrainedModel, adapter: BottleneckAdapter, examples: Sequence[Example], codec: Codec) -> Array:
    """Return the gradient of the mean loss a token (eq. 1), over all examples, in the adapter's two weights: (2 x d x dim,)."""
    total, num_tokens = np.zeros(num_weights(adapter), np.float32), 0
    for batch in by_tokens(examples, BATCH_TOKENS, Random(0)):
        gradient, tokens = _gradient(model, adapter, batch, codec)
        total, num_tokens = total + gradient, num_tokens + tokens
    return total / np.float32(num_tokens)


def private_signature(
    model: PreTrainedModel,
    adapter: BottleneckAdapter,
    examples: Sequence[Example],
    codec: Codec,
    projection: Array,
    clip: float,
    noise: float,
    random: Random,
) -> Array:
    """Return the mean of all sentences' projected gradients, each clipped to norm `clip`, plus Gaussian noise: (dimensions,).

    A sentence adds at most `clip` to the sum, whose noise has standard deviation `noise` x `clip` in every dimension; for the
    guarantee see fedlingua.privacy.accounting. The number of sentences is not secret. projection: (dimensions, 2 x d x dim).
    """
    total = np.zeros(len(projection), np.float64)
    for gradient in projected_gradients(model, adapter, examples, codec, projection):
        total += gradient * min(1.0, clip / max(float(np.linalg.norm(gradient)), np.finfo(np.float64).tiny))
    total += [random.gauss(0.0, noise * clip) for _ in range(len(projection))]
    return (total / len(examples)).astype(np.float32)


def projected_gradients(
    model: PreTrainedModel, adapter: BottleneckAdapter, examples: Sequence[Example], codec: Codec, projection: Array
) -> Iterator[Array]:
    """Yield the projected gradient of each sentence's mean loss a token: (dimensions,) float64."""
    for example in examples:
        gradient, tokens = _gradient(model, adapter, [example], codec)
        yield (projection @ (gradient / np.float32(tokens))).astype(np.float64)


def random_projection(dimensions: int, size: int, seed: int) -> Array:
    """Return (dimensions, size) of N(0, 1 / dimensions), equal at all sites; keeps mean lengths (Johnson & Lindenstrauss)."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((dimensions, size), np.float32) / np.float32(np.sqrt(dimensions))


def _gradient(model: PreTrainedModel, adapter: BottleneckAdapter, batch: Sequence[Example], codec: Codec) -> tuple[Array, int]:
    """Return (gradient of nll_sum, number of target tokens) in the model's current mode, which is left unchanged."""
    weights = _weights(adapter)
    required = [weight.requires_grad for weight in weights]
    for weight in weights:
        weight.requires_grad_(True)
    nll, tokens = pad(batch, codec).to(model.device).nll(model)
    gradients = torch.autograd.grad(nll, weights)
    for weight, before in zip(weights, required, strict=True):
        weight.requires_grad_(before)
    return np.concatenate([gradient.float().cpu().numpy().ravel() for gradient in gradients]), tokens


def _weights(adapter: BottleneckAdapter) -> list[torch.Tensor]:
    return [adapter.down.weight, adapter.up.weight]
