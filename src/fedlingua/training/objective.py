"""The loss of a model over batches, as sums."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from fedlingua.training.batches import Batch


@torch.no_grad()
def corpus_nll(model: PreTrainedModel, batches: Sequence[Batch]) -> tuple[float, int]:
    """(nll_sum, number of predicted tokens) over batches, without dropout; the mode of the model is restored."""
    was_training = model.training
    model.eval()
    nll_sum, num_tokens = 0.0, 0
    for batch in batches:
        nll, count = batch.nll(model)
        nll_sum += float(nll)
        num_tokens += count
    model.train(was_training)
    return nll_sum, num_tokens
