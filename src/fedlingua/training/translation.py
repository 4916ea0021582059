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
from fedlingua.training.outputs import decoder_output, output_head


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
        """Padded to the longest. The decoder starts from what the backbone was trained with: the end token, or the padding's."""
        src_len = max(len(example.source) for example in examples)
        tgt_len = max(len(example.target) for example in examples)
        shape = (len(examples), tgt_len)
        input_ids = torch.full((len(examples), src_len), codec.pad_id)
        labels, decoder_input_ids = torch.full(shape, IGNORED), torch.full(shape, codec.pad_id)
        for row, (source, target) in enumerate(examples):
            input_ids[row, : len(source)] = torch.tensor(source)
            labels[row, : len(target)] = torch.tensor(target)
            decoder_input_ids[row, : len(target)] = torch.tensor([codec.start_id, *target[:-1]])
        return PairBatch(input_ids, (input_ids != codec.pad_id).long(), decoder_input_ids, labels)


@dataclass(frozen=True)
class JoinedBatch:
    """Padded pairs of a decoder-only model, source and target end to end.

    input_ids, attention_mask, labels: (batch, len) int64; labels -100 but for the targets.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Self:
        return type(self)(self.input_ids.to(device), self.attention_mask.to(device), self.labels.to(device))

    def nll(self, model: PreTrainedModel, label_smoothing: float = 0.0, use: HeadUse = WHOLE) -> tuple[Tensor, int]:
        head, hidden, targets = self._before_head(model)
        return cross_entropy(head, hidden, targets, label_smoothing, use), int(targets.numel())

    def nlls(self, model: PreTrainedModel, use: HeadUse = WHOLE) -> tuple[Tensor, Tensor]:
        return summed_by_row(token_nlls(*self._before_head(model), use.chunk), self.labels != IGNORED)

    def _before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        """As of pairs: what stands before a target token predicts it."""
        inputs = {"input_ids": self.input_ids, "attention_mask": self.attention_mask, "use_cache": False}
        hidden: Tensor = model.model(**inputs).last_hidden_state
        real = self.labels != IGNORED
        return output_head(model), hidden[:, :-1][real[:, 1:]], self.labels[real]


class JoinedExample(NamedTuple):
    """One pair as ids for a decoder-only model: the prompt with the source, and the target up to its end."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> tuple[int, int]:
        return len(self.source) + len(self.target), len(self.target)

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
    def stack(cls, examples: Sequence[Self], codec: Codec) -> JoinedBatch:
        """Padded to the longest, at its end."""
        shape = (len(examples), max(len(source) + len(target) for source, target in examples))
        input_ids, mask = torch.full(shape, codec.pad_id), torch.zeros(shape, dtype=torch.long)
        labels = torch.full(shape, IGNORED)
        for row, (source, target) in enumerate(examples):
            last = len(source) + len(target)
            input_ids[row, :last] = torch.tensor([*source, *target])
            mask[row, :last] = 1  # the padding's id can be the end's
            labels[row, len(source) : last] = torch.tensor(target)
        return JoinedBatch(input_ids, mask, labels)


def encode_pairs(
    pairs: Sequence[Pair], direction: Direction, codec: Codec, max_tokens: int
) -> Sequence[PairExample | JoinedExample]:
    """Ids of both sides, each cut at `max_tokens`."""
    sources = codec.encode_source([pair.source for pair in pairs], direction, max_tokens)
    targets = codec.encode_target([pair.target for pair in pairs], direction, max_tokens)
    both = zip(sources, targets, strict=True)
    return [JoinedExample(*ids) for ids in both] if codec.is_causal else [PairExample(*ids) for ids in both]


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
    hidden = decoder_output(model, batch.input_ids, batch.attention_mask, batch.decoder_input_ids)
    real = batch.labels != IGNORED
    return output_head(model), hidden[real], batch.labels[real]
