"""Local training of one site for one round: the plain loop of Liu et al. 2023, §3.3."""

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.training.batches import Example, optimiser_steps, pad


@dataclass(frozen=True)
class LocalTraining:
    """How a site trains in one round; an optimiser step sees batch_size x accumulation sentences."""

    batch_size: int
    accumulation: int
    epochs: int
    learning_rate: float
    whole_steps: bool
    precision: str


@dataclass(frozen=True)
class LocalResult:
    """What a site's round of training came to, as sums: nll in nats."""

    nll_sum: float
    num_tokens: int
    num_examples: int
    steps: int
    seconds: float


def train_locally(
    model: PreTrainedModel,
    names: Sequence[str],
    examples: Sequence[Example],
    codec: Codec,
    how: LocalTraining,
    seed: str,
) -> LocalResult:
    """Train the named parameters in place with an Adam made anew, at a constant rate, without decay, clipping or smoothing.

    `seed` decides order and dropout, so that equal seeds give equal bits. `whole_steps` drops what does not fill a step, as the paper
    does, unless there is less text than one step takes.
    """
    started = time.monotonic()
    rng = random.Random(seed)
    torch.manual_seed(rng.getrandbits(63))
    wanted = set(names)
    trained = []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in wanted)
        if name in wanted:
            trained.append(parameter)
    optimizer = torch.optim.Adam(trained, lr=how.learning_rate, fused=True)
    nll_sum, num_tokens, num_examples, steps = 0.0, 0, 0, 0
    model.train()
    for _ in range(how.epochs):
        for step in optimiser_steps(_usable(examples, how, rng), how.batch_size, how.accumulation, rng):
            tokens_of_step = sum(example.num_targets for batch in step for example in batch)
            for batch in step:
                with autocast(model, how.precision):
                    nll, tokens = pad(batch, codec).to(model.device).nll(model)
                # Mean over the tokens of the whole step, however its batches are cut.
                (nll / tokens_of_step).backward()
                nll_sum += float(nll.detach())
                num_tokens += tokens
                num_examples += len(batch)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
    model.eval()
    model.requires_grad_(False)
    return LocalResult(nll_sum, num_tokens, num_examples, steps, time.monotonic() - started)


def autocast(model: PreTrainedModel, precision: str) -> Any:
    """bf16 arithmetic where it is asked for; fp32 otherwise."""
    return torch.autocast(model.device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def _usable(examples: Sequence[Example], how: LocalTraining, rng: random.Random) -> Sequence[Example]:
    window = how.batch_size * how.accumulation
    if not how.whole_steps or len(examples) < window:
        return examples
    # Another remainder each round, so that no sentence is left out for good.
    return rng.sample(list(examples), len(examples) // window * window)
