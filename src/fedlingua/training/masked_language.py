"""Masked-language modelling as a task (Devlin et al. 2019): text as ids, masked anew at each draw, and its loss.

A share of a sequence's pieces is to be predicted, at least one; 80 % of those are replaced by the mask, 10 % by any piece, and
10 % stay unchanged. In text to measure, masks depend only on the text, so all methods are measured on the same ones.
"""

import hashlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.training.batches import IGNORED, Batch, padded
from fedlingua.training.head import Head
from fedlingua.training.outputs import masked_head

MASKED, REPLACED = 0.8, 0.1
"""Shares of the pieces to predict that are replaced by the mask, and by any piece."""
MASKS_KEY = "fedlingua"
"""Key that, with the text, decides the masks of text to measure: the same under every method, seed and model."""


class MaskedBatch(Batch):
    """Padded masked sequences; positions of pieces to predict have a label."""

    def before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        hidden: Tensor = model.base_model(input_ids=self.input_ids, attention_mask=self.attention_mask).last_hidden_state
        head, transformed = masked_head(model, self.at_labels(hidden))
        return head, transformed, self.at_labels(self.labels)


class MaskedExample(NamedTuple):
    """A masked sequence. positions: of the pieces to predict; targets: these pieces."""

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
        """Stack examples into a batch, padded to the longest."""
        input_ids = padded([example.inputs for example in examples], codec.pad_id)
        labels = torch.full_like(input_ids, IGNORED)
        for row, (_, positions, targets) in enumerate(examples):
            labels[row, positions] = torch.tensor(targets)
        return MaskedBatch(input_ids, (input_ids != codec.pad_id).long(), labels)


class TextExample(NamedTuple):
    """A sequence before masking. share: the share of its pieces to predict."""

    ids: list[int]
    codec: TextCodec
    share: float

    @property
    def length(self) -> tuple[int, int]:
        return len(self.ids), len(self.ids)

    def drawn(self, rng: Random) -> MaskedExample:
        """Return the sequence with new random masks."""
        pieces = self._pieces()
        return self._masked(rng.sample(pieces, self._number(pieces)), rng)

    def fixed(self, key: str, times: int = 1) -> list[MaskedExample]:
        """Return up to `times` masked forms, decided by the text and the key; no piece is predicted in two of them.

        If `times` is the number of pieces or more, every piece is predicted once.
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
    """Pack sentences in order into sequences of up to `max_tokens`: `[start] pieces [end] pieces [end]`. A longer sentence is
    cut; a sequence of special pieces only, such as of letters that the tokenizer does not know, is left out.
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
    """Return a 48-bit hash of all examples; it is equal for two methods that are measured on the same masked text."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(tuple(example)).encode())
    return int.from_bytes(digest.digest()[:6], "big")
