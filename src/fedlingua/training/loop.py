"""Local training of one site for one round: the plain loop of Liu et al. 2023, §3.3."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.config import Settings
from fedlingua.training.batches import Example, TrainingExample, optimiser_steps, pad
from fedlingua.training.optimizers import OPTIMIZERS, Numbers, optimizer_state, restore_optimizer
from fedlingua.training.sampling import Sampling

Step = Sequence[Sequence[Example]]
"""What one step of the optimiser sees: batches of examples."""


@dataclass(frozen=True)
class LocalTraining:
    """How a site trains in one round; an optimiser step sees batch_size x accumulation examples."""

    batch_size: int
    accumulation: int
    epochs: int
    learning_rate: float
    whole_steps: bool
    precision: str
    optimizer: str = "adam"
    weight_decay: float = 0.0
    epsilon: float = 1e-8
    sampling: Sampling = field(default_factory=Sampling)

    @classmethod
    def of(cls, settings: Settings) -> "LocalTraining":
        """As the run config says."""
        return cls(
            settings.batch_size,
            settings.accumulation,
            settings.local_epochs,
            settings.step_learning_rate,
            settings.whole_steps,
            settings.precision,
            settings.optimizer,
            settings.weight_decay,
            settings.optimizer_epsilon,
            Sampling(settings.sample_least, settings.sample_share, settings.sampling_temperature),
        )


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
    texts: Sequence[Sequence[TrainingExample]],
    codec: Codec,
    how: LocalTraining,
    seed: str,
    kept: dict[str, Numbers] | None = None,
    before_step: Callable[[Step], None] | None = None,
) -> LocalResult:
    """Train the named parameters in place at a constant rate, without clipping or smoothing.

    texts: the examples, text by text where several are trained on as one. `seed` decides order, masks and dropout, so that equal seeds give
    equal bits. `whole_steps` drops what does not fill a step, as Liu et al. 2023 do, unless there is less text than one step takes. kept:
    what the optimiser goes on from, and leaves there for the next time; None makes it anew. before_step: shown the batches of every step
    before it is taken; it has to leave the model as it found it.
    """
    started = time.monotonic()
    rng = random.Random(seed)
    torch.manual_seed(rng.getrandbits(63))
    wanted = set(names)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in wanted)
    trained = {name: parameter for name, parameter in model.named_parameters() if name in wanted}
    optimizer = OPTIMIZERS[how.optimizer](list(trained.values()), how.learning_rate, how.weight_decay, how.epsilon)
    if kept:
        restore_optimizer(optimizer, trained, kept)
    nll_sum, num_tokens, num_examples, steps = 0.0, 0, 0, 0
    model.train()
    for _ in range(how.epochs):
        examples = _usable(how.sampling.drawn(texts, rng), how, rng)
        for batches in optimiser_steps(examples, how.batch_size, how.accumulation, rng):
            step = [[example.drawn(rng) for example in batch] for batch in batches]
            if before_step:
                before_step(step)
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
    if kept is not None:
        kept.update(optimizer_state(optimizer, trained))
    model.eval()
    model.requires_grad_(False)
    return LocalResult(nll_sum, num_tokens, num_examples, steps, time.monotonic() - started)


def autocast(model: PreTrainedModel, precision: str) -> Any:
    """bf16 arithmetic where it is asked for; fp32 otherwise."""
    return torch.autocast(model.device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def _usable(examples: Sequence[TrainingExample], how: LocalTraining, rng: random.Random) -> Sequence[TrainingExample]:
    window = how.batch_size * how.accumulation
    if not how.whole_steps or len(examples) < window:
        return examples
    # Another remainder each round, so that no sentence is left out for good.
    return rng.sample(list(examples), len(examples) // window * window)
