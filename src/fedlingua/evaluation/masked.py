"""Score a model on masked text."""

from collections.abc import Iterable, Sequence
from random import Random

import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.codec import TextCodec
from fedlingua.evaluation.perplexity import PARTS, MaskedScores
from fedlingua.training.batches import by_tokens
from fedlingua.training.masked_language import MaskedBatch, MaskedExample, TextExample, masks_hash

TOKENS_PER_BATCH = 3000
"""Padded tokens of a batch, which can be large without gradients."""


def masked_scores(
    model: PreTrainedModel, codec: TextCodec, sentences: int, examples: Sequence[TextExample], key: str
) -> MaskedScores:
    """Score a text, with every piece masked once; text and key determine the masks.

    Sequence i belongs to part i mod 4, so that each part is spread over the text.
    """
    parts = [[masked for text in examples[part::PARTS] for masked in text.fixed(key, len(text.ids))] for part in range(PARTS)]
    sums = []
    for part in parts:
        groups = by_tokens(part, TOKENS_PER_BATCH, Random(0))
        sums.append(masked_sums(model, (MaskedExample.stack(group, codec).to(model.device) for group in groups)))
    nll, tokens, correct = zip(*sums, strict=True)
    return MaskedScores(sentences, nll, tokens, correct, masks_hash(masked for part in parts for masked in part))


@torch.no_grad()
def masked_sums(model: PreTrainedModel, batches: Iterable[MaskedBatch]) -> tuple[float, int, int]:
    """Return (nll in nats, number of masked pieces, number of correct guesses), without dropout."""
    model.eval()
    nll_sum, num_tokens, correct = 0.0, 0, 0
    for batch in batches:
        logits, targets = batch.predicted(model)
        nll_sum += float(nn.functional.cross_entropy(logits.float(), targets, reduction="sum"))
        num_tokens += int(targets.numel())
        correct += int((logits.argmax(dim=-1) == targets).sum())
    return nll_sum, num_tokens, correct
