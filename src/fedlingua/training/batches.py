"""Sentence pairs to padded batches of like length."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedlingua.backbones.codec import Codec
from fedlingua.corpora.read import Pair
from fedlingua.languages import Direction

IGNORED = -100
"""Label of a padded position: never counted in a loss."""


class Example(NamedTuple):
    """One pair as ids: `[language] pieces [end]` on both sides."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class Batch:
    """Padded examples.

    input_ids, attention_mask: (batch, src_len) int64; decoder_input_ids, labels: (batch, tgt_len) int64, labels -100 where padded.
    """

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(
            *(tensor.to(device) for tensor in (self.input_ids, self.attention_mask, self.decoder_input_ids, self.labels))
        )


def encode_pairs(pairs: Sequence[Pair], direction: Direction, codec: Codec, max_tokens: int) -> list[Example]:
    """Ids of both sides, each cut at `max_tokens`."""
    sources = codec.encode([pair.source for pair in pairs], direction.source, max_tokens)
    targets = codec.encode([pair.target for pair in pairs], direction.target, max_tokens)
    return [Example(source, target) for source, target in zip(sources, targets, strict=True)]


def pad(examples: Sequence[Example], codec: Codec) -> Batch:
    """Stack examples into one batch. The decoder starts from the end token, as both backbones were trained."""
    src_len = max(len(example.source) for example in examples)
    tgt_len = max(len(example.target) for example in examples)
    shape = (len(examples), tgt_len)
    input_ids = torch.full((len(examples), src_len), codec.pad_id)
    labels, decoder_input_ids = torch.full(shape, IGNORED), torch.full(shape, codec.pad_id)
    for row, (source, target) in enumerate(examples):
        input_ids[row, : len(source)] = torch.tensor(source)
        labels[row, : len(target)] = torch.tensor(target)
        decoder_input_ids[row, : len(target)] = torch.tensor([codec.end_id, *target[:-1]])
    return Batch(input_ids, (input_ids != codec.pad_id).long(), decoder_input_ids, labels)


def optimiser_steps(
    examples: Sequence[Example], batch_size: int, accumulation: int, rng: random.Random
) -> Iterator[list[list[Example]]]:
    """Shuffled examples as optimiser steps, each of up to `accumulation` batches of `batch_size`.

    Lengths are sorted only inside a step: it holds the very examples that plain shuffling would give it, in batches with little
    padding.
    """
    order = list(examples)
    rng.shuffle(order)
    window = batch_size * accumulation
    for start in range(0, len(order), window):
        step = sorted(order[start : start + window], key=_length)
        yield [step[first : first + batch_size] for first in range(0, len(step), batch_size)]


def by_tokens(examples: Sequence[Example], max_tokens: int, rng: random.Random) -> Iterator[list[Example]]:
    """Batches of like length, each with at most `max_tokens` on its padded longer side; every example once, in random order."""
    order = sorted(examples, key=lambda example: (_length(example), rng.random()))
    batches: list[list[Example]] = []
    batch: list[Example] = []
    longest = 0
    for example in order:
        longest = max(longest, len(example.source), len(example.target))
        if batch and longest * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch, longest = [], max(len(example.source), len(example.target))
        batch.append(example)
    if batch:
        batches.append(batch)
    rng.shuffle(batches)
    yield from batches


def _length(example: Example) -> tuple[int, int]:
    return max(len(example.source), len(example.target)), len(example.target)
