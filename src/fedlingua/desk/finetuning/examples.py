"""What an encoder learns from at once: ids and what is to be said of them, in padded batches of like length."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedlingua.training.batches import IGNORED

POOL = 32
"""Batches whose examples are sorted by length together: enough for little padding, few enough that an epoch's order stays random."""


class Example(NamedTuple):
    """One sequence. labels: one for each id (IGNORED where none is asked for), or a single one for all of it."""

    ids: list[int]
    labels: list[int]


class Batch(NamedTuple):
    """ids, mask: (batch, longest) int64; labels: (batch, longest) or (batch, 1) int64, IGNORED where padded."""

    ids: Tensor
    mask: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        return Batch(*(tensor.to(device) for tensor in self))


def stack(examples: Sequence[Example], pad_id: int) -> Batch:
    """Padded to the longest."""
    ids = _padded([example.ids for example in examples], pad_id)
    mask = _padded([[1] * len(example.ids) for example in examples], 0)
    return Batch(ids, mask, _padded([example.labels for example in examples], IGNORED))


def shuffled_batches(examples: Sequence[Example], batch_size: int, rng: random.Random) -> Iterator[list[Example]]:
    """Every example once, in random order, in batches of like length."""
    order = list(examples)
    rng.shuffle(order)
    batches = []
    for start in range(0, len(order), batch_size * POOL):
        pool = sorted(order[start : start + batch_size * POOL], key=lambda example: len(example.ids))
        batches += [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
    rng.shuffle(batches)
    yield from batches


def _padded(rows: Sequence[list[int]], filler: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
