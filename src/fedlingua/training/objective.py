"""The loss of a model over batches or examples, as sums, and its gradient, without training."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.precision import autocast
from fedlingua.common.errors import MemoryRunsOutError
from fedlingua.training.batches import Batch, E, Example, by_tokens, pad
from fedlingua.training.head import WHOLE, HeadUse
from fedlingua.training.optimizers import Numbers
from fedlingua.training.pieces import tokens_at_once

Gradients = dict[str, Numbers]
T = TypeVar("T")
EVALUATION_TOKENS = 3000
"""Padded tokens of a batch when a loss is measured on a CPU; without gradients, batches can be large."""


@torch.no_grad()
def corpus_nll(model: PreTrainedModel, batches: Sequence[Batch], use: HeadUse = WHOLE) -> tuple[float, int]:
    """Return (nll_sum, number of predicted tokens) over batches, without dropout; the mode of the model is restored."""
    was_training = model.training
    model.eval()
    nll_sum, num_tokens = 0.0, 0
    try:
        for batch in batches:
            nll, count = batch.nll(model, 0.0, use)
            nll_sum += float(nll)
            num_tokens += count
    finally:
        model.train(was_training)
    return nll_sum, num_tokens


def examples_nll(
    model: PreTrainedModel, codec: Codec, examples: Sequence[Example], precision: str, use: HeadUse = WHOLE
) -> tuple[float, int]:
    """Return (nll_sum, number of predicted tokens) over examples, measured in batches of similar length, without dropout."""
    with autocast(model, precision):
        measured = halved_to_fit(
            evaluation_groups(model, examples), lambda group: corpus_nll(model, [pad(group, codec).to(model.device)], use)
        )
        sums = [each for _, each in measured]
    return sum((nll for nll, _ in sums), 0.0), sum(tokens for _, tokens in sums)


def evaluation_groups(model: PreTrainedModel, examples: Sequence[E]) -> Iterable[list[E]]:
    """Return the examples in groups of similar length, as many at once as the model's device takes without gradients."""
    vocabulary = model.config.get_text_config().vocab_size
    return by_tokens(examples, tokens_at_once(EVALUATION_TOKENS, model.device.type, vocabulary), Random(0))


def halved_to_fit(groups: Iterable[list[E]], measure: Callable[[list[E]], T]) -> Iterator[tuple[list[E], T]]:
    """Yield each group with its measurement; one that a GPU's memory does not hold is halved.

    Raises:
        MemoryRunsOutError: A single example does not fit.
    """
    waiting = [*groups][::-1]
    while waiting:
        group = waiting.pop()
        try:
            result = measure(group)
        except torch.OutOfMemoryError as error:
            if len(group) == 1:
                raise MemoryRunsOutError(
                    "measuring a loss runs out of memory with a single example; give smaller max-tokens, or a device with more memory"
                ) from error
        else:
            yield group, result
            continue
        torch.cuda.empty_cache()
        middle = len(group) // 2
        waiting += [group[middle:], group[:middle]]


@torch.no_grad()
def token_nlls_of_each(
    model: PreTrainedModel, codec: Codec, examples: Sequence[Example], precision: str, use: HeadUse = WHOLE
) -> list[Numbers]:
    """Return the negative log-likelihood of each example's predicted tokens, (tokens,) float64 in nats, in order, without dropout."""
    model.eval()
    places = {id(example): place for place, example in enumerate(examples)}
    nlls: list[Numbers] = [np.zeros(0)] * len(examples)
    with autocast(model, precision):
        measured = halved_to_fit(
            evaluation_groups(model, examples), lambda group: pad(group, codec).to(model.device).token_nlls(model, use)
        )
        for group, (of_batch, counts) in measured:
            for example, of_example in zip(group, of_batch.double().cpu().split(counts), strict=True):
                nlls[places[id(example)]] = of_example.numpy()
    return nlls


def corpus_gradient(model: PreTrainedModel, names: Sequence[str], batches: Sequence[Batch]) -> tuple[float, int, Gradients]:
    """Return (nll_sum, num_tokens, gradient of nll_sum / num_tokens by name), without dropout; the model's mode is restored.

    Gradients are float32 on the CPU; a tensor that the loss does not depend on has none.
    """
    was_training, wanted = model.training, set(names)
    model.eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in wanted)
        parameter.grad = None
    nll_sum, num_tokens = 0.0, 0
    for batch in batches:
        nll, count = batch.nll(model)
        if wanted:
            nll.backward()
        nll_sum += float(nll.detach())
        num_tokens += count
    gradients: Gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients[name] = (parameter.grad.float() / num_tokens).cpu().numpy()
            parameter.grad = None
    model.train(was_training)
    return nll_sum, num_tokens, gradients
