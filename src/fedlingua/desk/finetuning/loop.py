"""Fine-tuning in one plain loop: AdamW, a linear learning rate with warm-up, and the epoch that is best on dev.

transformers' Trainer has another sampler and schedule, with which earlier figures could not be reproduced.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from fedlingua.backbones.precision import autocast
from fedlingua.desk.finetuning.settings import FineTuning
from fedlingua.desk.pace import Pace
from fedlingua.training.batches import IGNORED, optimiser_steps, padded

POOL = 32
"""Number of batches that are sorted by length together: enough for little padding, few enough to keep an epoch's order random."""


class Example(NamedTuple):
    """One sequence. labels: one for each id (IGNORED where nothing is predicted), or one for the whole sequence."""

    ids: list[int]
    labels: list[int]

    @property
    def length(self) -> tuple[int, int]:
        """Key by which examples are sorted into batches."""
        return len(self.ids), 0


class Batch(NamedTuple):
    """ids, mask: (batch, longest) int64; labels: (batch, longest) or (batch, 1) int64, IGNORED where padded."""

    ids: Tensor
    mask: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(tensor.to(device) for tensor in self))


def stack(examples: Sequence[Example], pad_id: int) -> Batch:
    """Stack examples into a batch, padded to the longest."""
    rows = ([ex.ids for ex in examples], [[1] * len(ex.ids) for ex in examples], [ex.labels for ex in examples])
    fillers = (pad_id, 0, IGNORED)
    return Batch(*(padded(part, filler) for part, filler in zip(rows, fillers, strict=True)))


def shuffled_batches(examples: Sequence[Example], batch_size: int, rng: random.Random) -> list[list[Example]]:
    """Return every example once, in random order, in batches of similar length."""
    batches = [batch for pool in optimiser_steps(examples, batch_size, POOL, rng) for batch in pool]
    rng.shuffle(batches)
    return batches


@dataclass(frozen=True)
class Epoch:
    """A finished epoch. loss: training loss in nats per label; dev_f1: micro F1; left_s: estimated seconds of the remaining epochs."""

    number: int
    loss: float
    dev_f1: float
    seconds: float
    left_s: float


def fine_tune(
    model: PreTrainedModel,
    examples: Sequence[Example],
    pad_id: int,
    how: FineTuning,
    dev_f1: Callable[[], float],
    report: Callable[[Epoch], None],
    pace: Pace,
) -> list[Epoch]:
    """Train the model in place, leave it at the epoch with the best `dev_f1` (the later of equal ones), and return all epochs.
    pace: receives every step.

    `how.seed` decides order and dropout, so equal seeds give equal bits on one CPU type and build.
    """
    started = time.monotonic()
    rng = random.Random(f"{how.seed}/fine-tuning")
    torch.manual_seed(rng.getrandbits(63))
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = {"params": [parameter for parameter in model.parameters() if parameter.dim() < 2], "weight_decay": 0.0}
    groups = [{"params": matrices, "weight_decay": how.weight_decay}, others]
    optimizer = torch.optim.AdamW(groups, lr=how.learning_rate, fused=True)
    steps = how.epochs * math.ceil(len(examples) / how.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps, how.warm_up))
    pace.at(0, steps)
    epochs: list[Epoch] = []
    best: dict[str, Tensor] = {}
    for number in range(1, how.epochs + 1):
        nll_sum, num_labels = 0.0, 0
        model.train()
        for chosen in shuffled_batches(examples, how.batch_size, rng):
            batch = stack(chosen, pad_id).to(model.device)
            with autocast(model, how.precision):
                logits = model(input_ids=batch.ids, attention_mask=batch.mask).logits
            nll = cross_entropy(logits.float().flatten(0, -2), batch.labels.flatten(), ignore_index=IGNORED, reduction="sum")
            asked = int((batch.labels != IGNORED).sum())
            (nll / asked).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), how.max_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            nll_sum += float(nll.detach())
            num_labels += asked
            pace.at(schedule.last_epoch, steps, train_loss=nll_sum / num_labels)
        f1 = dev_f1()
        seconds = time.monotonic() - started
        if f1 >= max((epoch.dev_f1 for epoch in epochs), default=0.0):
            best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        epochs.append(Epoch(number, nll_sum / num_labels, f1, seconds, seconds / number * (how.epochs - number)))
        report(epochs[-1])
    model.load_state_dict(best)
    model.eval()
    return epochs


def best_epoch(epochs: Sequence[Epoch]) -> Epoch:
    """Return the epoch whose weights are kept: the best on dev, the later of equal ones."""
    return max(epochs, key=lambda epoch: (epoch.dev_f1, epoch.number))


def rate(step: int, steps: int, warm_up: float) -> float:
    """Return the share of the full rate at `step`, from 0 on. It rises over a share `warm_up` of the steps, then falls linearly to 0."""
    rising = math.ceil(warm_up * steps)
    return (step + 1) / rising if step < rising else (steps - step) / max(steps - rising, 1)


@torch.no_grad()
def answers(model: PreTrainedModel, examples: Sequence[Example], pad_id: int, how: FineTuning) -> list[list[int]]:
    """Return for each example, in order, the most likely label at each labelled place."""
    model.eval()
    labels_of: list[list[int]] = [[] for _ in examples]
    by_length = sorted(range(len(examples)), key=lambda number: len(examples[number].ids))
    for start in range(0, len(by_length), how.batch_size):
        numbers = by_length[start : start + how.batch_size]
        batch = stack([examples[number] for number in numbers], pad_id)
        moved = batch.to(model.device)
        with autocast(model, how.precision):
            logits = model(input_ids=moved.ids, attention_mask=moved.mask).logits
        likeliest = logits.argmax(-1).reshape(batch.labels.shape).cpu()
        for number, row, labels in zip(numbers, likeliest, batch.labels, strict=True):
            labels_of[number] = row[labels != IGNORED].tolist()
    return labels_of
