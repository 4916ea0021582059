"""The loss of a model over batches, as sums."""

from collections.abc import Sequence
from random import Random

import torch
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.precision import autocast
from fedlingua.training.batches import Batch, Example, by_tokens, pad
from fedlingua.training.head import WHOLE, HeadUse

EVALUATION_TOKENS = 3000
"""Padded tokens of one batch when a loss is measured: no gradients, so batches can be large."""


@torch.no_grad()
def corpus_nll(model: PreTrainedModel, batches: Sequence[Batch], use: HeadUse = WHOLE) -> tuple[float, int]:
    """(nll_sum, number of predicted tokens) over batches, without dropout; the mode of the model is restored."""
    was_training = model.training
    model.eval()
    nll_sum, num_tokens = 0.0, 0
    for batch in batches:
        nll, count = batch.nll(model, 0.0, use)
        nll_sum += float(nll)
        num_tokens += count
    model.train(was_training)
    return nll_sum, num_tokens


def examples_nll(
    model: PreTrainedModel, codec: Codec, examples: Sequence[Example], precision: str, use: HeadUse = WHOLE
) -> tuple[float, int]:
    """The same over examples, in batches of like length."""
    groups = by_tokens(examples, EVALUATION_TOKENS, Random(0))
    with autocast(model, precision):
        return corpus_nll(model, [pad(group, codec).to(model.device) for group in groups], use)
