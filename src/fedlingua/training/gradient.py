"""The gradient of a loss over a few batches, without training anything."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from fedlingua.training.batches import Batch

Gradients = dict[str, np.ndarray[Any, Any]]


def corpus_gradient(model: PreTrainedModel, names: Sequence[str], batches: Sequence[Batch]) -> tuple[float, int, Gradients]:
    """(nll_sum, num_tokens, gradient of nll_sum / num_tokens by name), without dropout; the model's mode is restored.

    Gradients are float32 on the CPU; that of a tensor which the loss does not reach is left out.
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
