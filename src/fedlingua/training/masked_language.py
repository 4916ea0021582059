"""Masked-language modelling as a task (Devlin et al. 2019): text as ids, masked anew at each draw, and the cross-entropy of what is masked.

Of a sequence's pieces a share is to be predicted, at least one; of those 80 % are replaced by the mask, 10 % by any piece, and 10 % stand
as they are. Text that is measured has masks of its own, decided by the text alone: all methods are measured on the same.
"""

import hashlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.training.batches import IGNORED, Batch
from fedlingua.training.head import Head
from fedlingua.training.outputs import masked_head

MASKED, REPLACED = 0.8, 0.1
"""Of the pieces to be predicted: shown as the mask, shown as another piece."""
MASKS_KEY = "fedlingua"
"""Decides the masks of text that is measured, with the text itself: under every method, seed and model the same."""


class MaskedBatch(Batch):
    """Padded masked sequences; a label where a piece is to be predicted."""

    def before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        hidden: Tensor = model.base_model(input_ids=self.input_ids, attention_mask=self.attention_mask).last_hidden_state
        asked = self.labels != IGNORED
        head, transformed = masked_head(model, hidden[asked])
        return head, transformed, self.labels[asked]

    def predicted(self, model: PreTrainedModel) -> tuple[Tensor, Tensor]:
        """Scores of the masked positions alone, (positions, vocabulary), and what stands there."""
        head, hidden, targets = self.before_head(model)
        return head.scores(hidden), targets


class MaskedExample(NamedTuple):
    """A sequence as the model sees it; positions: where something is to be predicted; targets: what stood there."""

    inputs: list[int]
    positions: list[int]
    targets: list[int]

    @property
    def length(self) -> tuple[int, int]:
        return len(self.inputs), len(self.positions)

    @property
    def num_targets(self) -> int:
        return len(self.positions)

    @classmethod
    def stack(cls, examples: Sequence[Self], codec: Codec) -> MaskedBatch:
        """Padded to the longest."""
        shape = (len(examples), max(len(example.inputs) for example in examples))
        input_ids, labels = torch.full(shape, codec.pad_id), torch.full(shape, IGNORED)
        for row, (inputs, positions, targets) in enumerate(examples):
            input_ids[row, : len(inputs)] = torch.tensor(inputs)
            labels[row, positions] = torch.tensor(targets)
        return MaskedBatch(input_ids, (input_ids != codec.pad_id).long(), labels)


class TextExample(NamedTuple):
    """A sequence before it is masked. share: of its pieces that is predicted."""

    ids: list[int]
    codec: TextCodec
    share: float

    @property
    def length(self) -> tuple[int, int]:
        return len(self.ids), len(self.ids)

    @property
    def target_ids(self) -> list[int]:
        return self.ids

    def drawn(self, rng: Random) -> MaskedExample:
        """Masked anew."""
        pieces = self._pieces()
        return self._masked(rng.sample(pieces, self._number(pieces)), rng)

    def fixed(self, key: str, times: int = 1) -> list[MaskedExample]:
        """Masked as the text itself and the key decide, so many times at most; no piece is predicted in two of them.

        With `times` of 1 / share or more every piece is predicted once.
        """
        pieces = self._pieces()
        rng, number = Random(f"{key}/{self.ids}"), self._number(pieces)
        rng.shuffle(pieces)
        parts = [pieces[first : first + number] for first in range(0, len(pieces), number)]
        return [self._masked(part, rng) for part in parts[:times]]

    def _pieces(self) -> list[int]:
        return [position for position, piece in enumerate(self.ids) if piece not in self.codec.special_ids]

    def _number(self, pieces: Sequence[int]) -> int:
        return max(1, round(self.share * len(pieces)))

    def _masked(self, positions: Iterable[int], rng: Random) -> MaskedExample:
        inputs, chosen = list(self.ids), sorted(positions)
        for position in chosen:
            drawn = rng.random()
            if drawn < MASKED:
                inputs[position] = self.codec.mask_id
            elif drawn < MASKED + REPLACED:
                inputs[position] = self.codec.any_piece(rng)
        return MaskedExample(inputs, chosen, [self.ids[position] for position in chosen])


def encode_text(sentences: Sequence[str], codec: TextCodec, max_tokens: int, share: float) -> list[TextExample]:
    """Sentences one after the other in sequences of up to `max_tokens`: `[start] pieces [end] pieces [end]`. A longer sentence is cut; a
    sequence of nothing that could be predicted, as of letters that the tokenizer does not know, is left out.
    """
    packed: list[list[int]] = []
    for pieces in codec.pieces(sentences):
        ids = [*pieces[: max_tokens - 2], codec.end_id]
        if not pieces:
            continue
        if not packed or len(packed[-1]) + len(ids) > max_tokens:
            packed.append([codec.start_id])
        packed[-1] += ids
    return [TextExample(ids, codec, share) for ids in packed if not codec.special_ids.issuperset(ids)]


def masks_hash(examples: Iterable[MaskedExample]) -> int:
    """48 bits of what is shown and what is asked: equal for two methods that are measured on the same."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(tuple(example)).encode())
    return int.from_bytes(digest.digest()[:6], "big")
