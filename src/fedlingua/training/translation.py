"""Translation as a task: pairs as ids, their batches, and the target side's cross-entropy as sums (Liu et al. 2023, eq. 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Self

from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.training.batches import IGNORED, Batch, padded
from fedlingua.training.head import Head
from fedlingua.training.outputs import decoder_output, output_head


@dataclass(frozen=True)
class PairBatch(Batch):
    """Padded pairs. decoder_input_ids: (batch, tgt_len) int64; labels have the same shape and hold the whole target."""

    decoder_input_ids: Tensor

    def before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        hidden = decoder_output(model, self.input_ids, self.attention_mask, self.decoder_input_ids)
        return output_head(model), self.at_labels(hidden), self.at_labels(self.labels)


class JoinedBatch(Batch):
    """Padded pairs for a decoder-only model, source and target end to end; only the target has labels."""

    def before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        """Return head, inputs and targets: the hidden state before each target token predicts it."""
        inputs = {"input_ids": self.input_ids, "attention_mask": self.attention_mask, "use_cache": False}
        hidden: Tensor = model.model(**inputs).last_hidden_state
        return output_head(model), self.at_labels(hidden, before=1), self.at_labels(self.labels)


class PairExample(NamedTuple):
    """A pair as ids: `[language] pieces [end]` on both sides."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> tuple[int, int]:
        return max(len(self.source), len(self.target)), len(self.target)

    @property
    def num_targets(self) -> int:
        return len(self.target)

    def drawn(self, rng: Random) -> Self:
        """Return the pair itself."""
        return self

    @classmethod
    def stack(cls, examples: Sequence[Self], codec: Codec) -> PairBatch:
        """Stack pairs, padded to the longest. The decoder's first input is the backbone's own: the end or padding token."""
        sources, targets = zip(*examples, strict=True)
        input_ids, labels = padded(sources, codec.pad_id), padded(targets, IGNORED)
        decoder_input_ids = padded([[codec.start_id, *target[:-1]] for target in targets], codec.pad_id)
        mask = padded([[1] * len(source) for source in sources], 0)  # by length, as a sentence can spell the padding token
        return PairBatch(input_ids, mask, labels, decoder_input_ids)


class JoinedExample(PairExample):
    """A pair as ids for a decoder-only model: the prompt with the source, and the target with its end token."""

    @property
    def length(self) -> tuple[int, int]:
        return len(self.source) + len(self.target), len(self.target)

    @classmethod
    def stack(cls, examples: Sequence[Self], codec: Codec) -> JoinedBatch:  # type: ignore[override]
        """Stack pairs, padded at the end to the longest."""
        input_ids = padded([[*source, *target] for source, target in examples], codec.pad_id)
        # By length, as the padding id can be that of the end token.
        mask = padded([[1] * (len(source) + len(target)) for source, target in examples], 0)
        labels = padded([[*[IGNORED] * len(source), *target] for source, target in examples], IGNORED)
        return JoinedBatch(input_ids, mask, labels)


def encode_pairs(pairs: Sequence[Pair], direction: Direction, codec: Codec, max_tokens: int) -> list[PairExample]:
    """Encode both sides of each pair, each cut at `max_tokens`."""
    sources = codec.encode_source([pair.source for pair in pairs], direction, max_tokens)
    targets = codec.encode_target([pair.target for pair in pairs], direction, max_tokens)
    kind = JoinedExample if codec.is_causal else PairExample
    return [kind(*ids) for ids in zip(sources, targets, strict=True)]
