"""Translation as a task: pairs as ids, their batches, and the cross-entropy of the target side, Liu et al. 2023, eq. 1, as sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.training.batches import IGNORED, summed_by_row
from fedlingua.training.head import WHOLE, Head, HeadUse, cross_entropy, token_nlls


@dataclass(frozen=True)
class PairBatch:
    """Padded pairs.

    input_ids, attention_mask: (batch, src_len) int64; decoder_input_ids, labels: (batch, tgt_len) int64, labels -100 where padded.
    """

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Self:
        tensors = (self.input_ids, self.attention_mask, self.decoder_input_ids, self.labels)
        return type(self)(*(tensor.to(device) for tensor in tensors))

    def nll(self, model: PreTrainedModel, label_smoothing: float = 0.0, use: HeadUse = WHOLE) -> tuple[Tensor, int]:
        return translation_nll(model, self, label_smoothing, use)

    def nlls(self, model: PreTrainedModel, use: HeadUse = WHOLE) -> tuple[Tensor, Tensor]:
        return summed_by_row(token_nlls(*_before_head(model, self), use.chunk), self.labels != IGNORED)


class PairExample(NamedTuple):
    """One pair as ids: `[language] pieces [end]` on both sides."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> tuple[int, int]:
        return max(len(self.source), len(self.target)), len(self.target)

    @property
    def num_targets(self) -> int:
        return len(self.target)

    @property
    def target_ids(self) -> list[int]:
        return self.target

    def drawn(self, rng: Random) -> Self:
        """Itself."""
        return self

    @classmethod
    def stack(cls, examples: Sequence[Self], codec: Codec) -> PairBatch:
        """Padded to the longest. The decoder starts from the end token, as both backbones were trained."""
        src_len = max(len(example.source) for example in examples)
        tgt_len = max(len(example.target) for example in examples)
        shape = (len(examples), tgt_len)
        input_ids = torch.full((len(examples), src_len), codec.pad_id)
        labels, decoder_input_ids = torch.full(shape, IGNORED), torch.full(shape, codec.pad_id)
        for row, (source, target) in enumerate(examples):
            input_ids[row, : len(source)] = torch.tensor(source)
            labels[row, : len(target)] = torch.tensor(target)
            decoder_input_ids[row, : len(target)] = torch.tensor([codec.end_id, *target[:-1]])
        return PairBatch(input_ids, (input_ids != codec.pad_id).long(), decoder_input_ids, labels)


def encode_pairs(pairs: Sequence[Pair], direction: Direction, codec: Codec, max_tokens: int) -> list[PairExample]:
    """Ids of both sides, each cut at `max_tokens`."""
    sources = codec.encode([pair.source for pair in pairs], direction.source, max_tokens)
    targets = codec.encode([pair.target for pair in pairs], direction.target, max_tokens)
    return [PairExample(source, target) for source, target in zip(sources, targets, strict=True)]


def translation_nll(
    model: PreTrainedModel, batch: PairBatch, label_smoothing: float = 0.0, use: HeadUse = WHOLE
) -> tuple[Tensor, int]:
    """(nll_sum, num_target_tokens): minus the log probability of the batch's target tokens, in nats, not averaged.

    Padded positions are dropped before the output head, whose vocabulary makes it about half of an adapter step's cost: nothing is
    computed that the loss would ignore.
    """
    head, hidden, targets = _before_head(model, batch)
    return cross_entropy(head, hidden, targets, label_smoothing, use), int(targets.numel())


def _before_head(model: PreTrainedModel, batch: PairBatch) -> tuple[Head, Tensor, Tensor]:
    """The head's last layer, what it takes at the target positions alone, (tokens, d), and what stands there."""
    hidden: Tensor = model.model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        decoder_input_ids=batch.decoder_input_ids,
        use_cache=False,
    ).last_hidden_state
    real = batch.labels != IGNORED
    bias = getattr(model, "final_logits_bias", None)  # mBART carries one, M2M-100 does not
    head = Head(model.lm_head, None if bias is None else bias.reshape(-1))
    return head, hidden[real], batch.labels[real]
