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
from fedlingua.common.errors import RunError
from fedlingua.desk.finetuning.settings import FineTuning
from fedlingua.desk.pace import Pace
from fedlingua.training.batches import IGNORED, optimizer_steps, padded

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


def stack(examples: Sequence[Example], pad_id: int, device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
    """Stack examples into a batch, padded to the longest.

    Returns:
        The model's inputs on the device, (batch, longest) int64; and the labels on the CPU, (batch, longest) or (batch, 1) int64,
        IGNORED where padded.
    """
    ids = padded([example.ids for example in examples], pad_id)
    mask = padded([[1] * len(example.ids) for example in examples], 0)
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}, padded([each.labels for each in examples], IGNORED)


def shuffled_batches(examples: Sequence[Example], batch_size: int, rng: random.Random) -> list[list[Example]]:
    """Return every example once, in random order, in batches of similar length."""
    batches = [batch for pool in optimizer_steps(examples, batch_size, POOL, rng) for batch in pool]
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

    Raises:
        RunError: Training diverged.
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
            inputs, labels = stack(chosen, pad_id, model.device)
            with autocast(model, how.precision):
                logits = model(**inputs).logits
            targets = labels.flatten().to(model.device)
            nll = cross_entropy(logits.float().flatten(0, -2), targets, ignore_index=IGNORED, reduction="sum")
            asked = int((labels != IGNORED).sum())
            (nll / asked).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), how.max_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            nll_sum += float(nll.detach())
            num_labels += asked
            pace.at(schedule.last_epoch, steps, train_loss=nll_sum / num_labels)
        if not math.isfinite(nll_sum):
            raise RunError(f"epoch {number} diverged at the learning rate {how.learning_rate:g}; give a smaller --learning-rate")
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
        inputs, labels = stack([examples[number] for number in numbers], pad_id, model.device)
        with autocast(model, how.precision):
            logits = model(**inputs).logits
        likeliest = logits.argmax(-1).reshape(labels.shape).cpu()
        for number, row, asked in zip(numbers, likeliest, labels != IGNORED, strict=True):
            labels_of[number] = row[asked].tolist()
    return labels_of
