"""Examples to padded batches of like length, whatever the model is trained for."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.training.head import WHOLE, Head, HeadUse, cross_entropy, token_nlls

IGNORED = -100
"""Label of a position that is never counted in a loss."""


@dataclass(frozen=True)
class Batch(ABC):
    """Padded examples, which know the loss that they are for.

    input_ids, attention_mask: (batch, len) int64; labels: what is to be predicted, -100 elsewhere.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor

    @abstractmethod
    def before_head(self, model: PreTrainedModel) -> tuple[Head, Tensor, Tensor]:
        """The head's last layer, what it takes where something is predicted, (tokens, d), and what stands there, row after row.

        The head is about half of a step's cost with a large vocabulary, so it is asked for nothing that the loss would ignore.
        """

    def to(self, device: torch.device) -> Self:
        """The same on another device; a GPU fetches it while it computes."""
        tensors = {each.name: getattr(self, each.name) for each in fields(self)}
        if device.type == "cuda":
            tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        return type(self)(**{name: tensor.to(device, non_blocking=device.type == "cuda") for name, tensor in tensors.items()})

    def nll(self, model: PreTrainedModel, label_smoothing: float = 0.0, use: HeadUse = WHOLE) -> tuple[Tensor, int]:
        """(nll_sum, number of predicted tokens): minus the log probability of what is to be predicted, in nats, not averaged.

        use: how the output head is gone through.
        """
        head, hidden, targets = self.before_head(model)
        return cross_entropy(head, hidden, targets, label_smoothing, use), int(targets.numel())

    def nlls(self, model: PreTrainedModel, use: HeadUse = WHOLE) -> tuple[Tensor, Tensor]:
        """(nll_sum, number of predicted tokens) of each example, both (batch,), over the whole vocabulary; no gradient."""
        return summed_by_row(token_nlls(*self.before_head(model), use), self.labels != IGNORED)


class Sized(Protocol):
    """What can be put beside others of like length."""

    @property
    def length(self) -> tuple[int, int]:
        """By which examples are put side by side: the padded length first."""


class Example(Sized, Protocol):
    """What a model sees at once: ids of one pair, or of one masked sequence."""

    @property
    def num_targets(self) -> int:
        """Tokens that its loss is over."""

    @classmethod
    def stack(cls, examples: Sequence[Self], codec: Codec) -> Batch:
        """Padded to the longest."""


class TrainingExample(Sized, Protocol):
    """What an example is made of each time that it is trained on."""

    @property
    def target_ids(self) -> Sequence[int]:
        """All that its loss may ask for."""

    def drawn(self, rng: random.Random) -> Example:
        """As the model sees it this time: a pair as it is, a sequence with new masks."""


E = TypeVar("E", bound=Sized)


def summed_by_row(nlls: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
    """(sum, number) of each row. nlls: (tokens,), row after row; predicted: (batch, len) bool, which positions they are of."""
    placed = torch.zeros(predicted.shape, device=nlls.device)
    placed[predicted] = nlls  # added up row by row, in one order on a GPU as well
    return placed.sum(dim=1), predicted.sum(dim=1)


def pad(examples: Sequence[Example], codec: Codec) -> Batch:
    """Stack examples, which are all of one kind, into one batch."""
    return type(examples[0]).stack(examples, codec)


def optimiser_steps(examples: Sequence[E], batch_size: int, accumulation: int, rng: random.Random) -> Iterator[list[list[E]]]:
    """Shuffled examples as optimiser steps, each of up to `accumulation` batches of `batch_size`.

    Lengths are sorted only inside a step: it holds the very examples that plain shuffling would give it, in batches with little
    padding.
    """
    order = list(examples)
    rng.shuffle(order)
    window = batch_size * accumulation
    for start in range(0, len(order), window):
        step = sorted(order[start : start + window], key=lambda example: example.length)
        yield [step[first : first + batch_size] for first in range(0, len(step), batch_size)]


def steps_by_tokens(examples: Sequence[E], max_tokens: int, accumulation: int, rng: random.Random) -> Iterator[list[list[E]]]:
    """The batches of `by_tokens` as optimiser steps, each of up to `accumulation` of them."""
    batches = list(by_tokens(examples, max_tokens, rng))
    for start in range(0, len(batches), accumulation):
        yield batches[start : start + accumulation]


def by_tokens(examples: Sequence[E], max_tokens: int, rng: random.Random) -> Iterator[list[E]]:
    """Batches of like length, each with at most `max_tokens` on its padded longer side; every example once, in random order."""
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
