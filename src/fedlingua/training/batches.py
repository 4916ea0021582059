"""Padded batches of examples of similar length, whatever the task."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.training.head import WHOLE, Head, HeadUse, cross_entropy, token_nlls

IGNORED = -100
"""Label of a position that no loss counts."""
POOL = 50
"""Batches whose examples are sorted by length together, as in transformers' group_by_length."""


@dataclass(frozen=True)
class Batch(ABC):
    """Padded examples, with the loss of their task.

    input_ids, attention_mask: (batch, len) int64; labels: the tokens to predict, -100 elsewhere. places: as of `label_places`;
    set only on a GPU, where looking for them would make the CPU wait.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    places: Tensor | None = field(default=None, kw_only=True)

    @abstractmethod
    def before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        """Return (output head, its inputs at predicted positions, (tokens, d), the tokens to predict there), row after row.

        With a large vocabulary the head is about half of a step's cost, so it computes nothing that the loss would ignore.
        """

    def to(self, device: torch.device) -> Self:
        """Return the batch on another device; a copy to a GPU runs while it computes."""
        if device.type != "cuda":
            return self
        tensors = self.tensors() | {"places": self.label_places()}
        return type(self)(**{name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in tensors.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return what the batch holds, by name."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def label_places(self) -> Tensor:
        """Return the labels' positions in the flattened batch, (tokens,) int64."""
        return (self.labels != IGNORED).flatten().nonzero()[:, 0]

    def at_labels(self, values: Tensor, before: int = 0) -> Tensor:
        """Return the rows of `values`, (batch, len, ...), `before` positions before each label: (tokens, ...)."""
        if self.places is None and not before:
            return values[self.labels != IGNORED]
        return values.flatten(0, 1)[(self.label_places() if self.places is None else self.places) - before]

    def nll(self, model: PreTrainedModel, label_smoothing: float = 0.0, use: HeadUse = WHOLE) -> tuple[Tensor, int]:
        """Return (nll_sum, number of predicted tokens): the summed negative log-likelihood of the labels, in nats.

        use: In which chunks and over which vocabulary the output head computes.
        """
        head, hidden, targets = self.before_head(model)
        return cross_entropy(head, hidden, targets, label_smoothing, use), int(targets.numel())

    def token_nlls(self, model: PreTrainedModel, use: HeadUse = WHOLE) -> tuple[Tensor, list[int]]:
        """Return each predicted token's negative log-likelihood over the whole vocabulary, (tokens,), and their number per example."""
        return token_nlls(*self.before_head(model), use), (self.labels != IGNORED).sum(dim=1).tolist()


class Sized(Protocol):
    """Anything that is batched with others of similar length."""

    @property
    def length(self) -> tuple[int, int]:
        """The key that examples are sorted by for batches, the padded length first."""


class Example(Sized, Protocol):
    """One input of a model: the ids of one pair, or of one masked sequence."""

    @property
    def num_targets(self) -> int:
        """The number of tokens that its loss is over."""

    @classmethod
    def stack(cls, examples: Sequence[Self], codec: Codec) -> Batch:
        """Stack examples into a batch, padded to the longest."""


class TrainingExample(Sized, Protocol):
    """The text from which an `Example` is drawn each time that it is trained on."""

    def drawn(self, rng: random.Random) -> Example:
        """Return the example for this time: a pair unchanged, a sequence with new masks."""


E = TypeVar("E", bound=Sized)


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Return rows as one tensor, (rows, longest), with `fill` at their ends."""
    longest = max(map(len, rows))
    return torch.from_numpy(np.array([[*row, *[fill] * (longest - len(row))] for row in rows], np.int64))


def pad(examples: Sequence[Example], codec: Codec) -> Batch:
    """Stack examples, all of one kind, into one padded batch."""
    return type(examples[0]).stack(examples, codec)


def optimizer_steps(
    examples: Sequence[E], batch_size: int, accumulation: int, rng: random.Random, by_length: bool = False
) -> Iterator[list[list[E]]]:
    """Yield shuffled examples as optimizer steps, each of up to `accumulation` batches of `batch_size`.

    Examples of a step are sorted by length, for batches with little padding. by_length: Also make batches of examples of similar length
    before they are shuffled into steps.
    """
    order = list(examples)
    rng.shuffle(order)
    if by_length:
        order = _grouped(order, batch_size, rng)
    window = batch_size * accumulation
    for start in range(0, len(order), window):
        step = sorted(order[start : start + window], key=lambda example: example.length)
        yield [step[first : first + batch_size] for first in range(0, len(step), batch_size)]


def _grouped(order: Sequence[E], batch_size: int, rng: random.Random) -> list[E]:
    """Return the examples as whole batches of similar length, made and shuffled among POOL batches at a time; the rest comes last."""
    grouped, whole = list[E](), len(order) // batch_size * batch_size
    for start in range(0, whole, POOL * batch_size):
        pool = sorted(order[start : min(start + POOL * batch_size, whole)], key=lambda example: example.length)
        batches = [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
        rng.shuffle(batches)
        grouped += chain(*batches)
    return [*grouped, *order[whole:]]


def by_tokens(examples: Sequence[E], max_tokens: int, rng: random.Random) -> Iterator[list[E]]:
    """Yield batches of similar length, `max_tokens` at most on the longer padded side; every example once, in random order."""
    order = sorted(examples, key=lambda example: (example.length, rng.random()))
    batches: list[list[E]] = []
    batch: list[E] = []
    longest = 0
    for example in order:
        longest = max(longest, example.length[0])
        if batch and longest * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch, longest = [], example.length[0]
        batch.append(example)
    if batch:
        batches.append(batch)
    rng.shuffle(batches)
    yield from batches
