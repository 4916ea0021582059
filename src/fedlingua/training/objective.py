"""Cross-entropy of a translation: Liu et al. 2023, eq. 1, as sums."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.training.batches import IGNORED, Batch


def translation_nll(model: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0) -> tuple[Tensor, int]:
    """(nll_sum, num_target_tokens): minus the log probability of the batch's target tokens, in nats, not averaged.

    Padded positions are dropped before the output head, whose vocabulary makes it about half of an adapter step's cost: nothing is
    computed that the loss would ignore.
    """
    hidden: Tensor = model.model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        decoder_input_ids=batch.decoder_input_ids,
        use_cache=False,
    ).last_hidden_state
    real = batch.labels != IGNORED
    logits: Tensor = model.lm_head(hidden[real])
    bias = getattr(model, "final_logits_bias", None)  # mBART carries one, M2M-100 does not
    if bias is not None:
        logits = logits + bias.reshape(-1)
    targets = batch.labels[real]
    nll = nn.functional.cross_entropy(logits.float(), targets, reduction="sum", label_smoothing=label_smoothing)
    return nll, int(targets.numel())


@torch.no_grad()
def corpus_nll(model: PreTrainedModel, batches: list[Batch]) -> tuple[float, int]:
    """(nll_sum, num_target_tokens) over batches, without dropout; the mode of the model is restored."""
    was_training = model.training
    model.eval()
    nll_sum, num_tokens = 0.0, 0
    for batch in batches:
        nll, count = translation_nll(model, batch)
        nll_sum += float(nll)
        num_tokens += count
    model.train(was_training)
    return nll_sum, num_tokens
