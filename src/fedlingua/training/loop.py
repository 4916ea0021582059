"""Local training of one site for one round: the plain loop of Liu et al. 2023, §3.3, which notices tensors that never move."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from random import SystemRandom
from types import MappingProxyType

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.common.errors import StuckError
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.privacy.clipping import Clipping, PrivateSteps
from fedlingua.settings.config import Settings
from fedlingua.settings.schedules import rate_share
from fedlingua.training.accumulate import Step, StepGradient
from fedlingua.training.batches import TrainingExample, by_tokens, optimizer_steps
from fedlingua.training.optimizers import OPTIMIZERS, Numbers, optimizer_state, restore_optimizer
from fedlingua.training.sampling import sampled


def steps_of(
    settings: Settings, texts: Sequence[Sequence[TrainingExample]], rng: random.Random, epoch: int = 0
) -> list[list[list[TrainingExample]]]:
    """Draw the optimizer steps of an epoch, counted from 0 over the run, each as batches; `memory.micro-tokens` cuts these anew."""
    drawn, accumulation = sampled(texts, settings, rng, epoch), settings.accumulation
    if settings.tokens_per_batch:
        batches = list(by_tokens(drawn, settings.tokens_per_batch, rng))
        steps = [batches[first : first + accumulation] for first in range(0, len(batches), accumulation)]
    else:
        usable = _usable(drawn, settings, rng)
        steps = list(optimizer_steps(usable, settings.batch_size, accumulation, rng, settings.group_by_length))
    if settings.micro_tokens <= 0:
        return steps
    return [list(by_tokens([example for batch in step for example in batch], settings.micro_tokens, rng)) for step in steps]


def steps_of_round(
    settings: Settings, texts: Sequence[Sequence[TrainingExample]], seed: str, number: int
) -> Iterator[list[list[TrainingExample]]]:
    """Yield the optimizer steps that `train_locally` takes under this seed in round `number`, unless it trains privately."""
    rng = random.Random(seed)
    rng.getrandbits(63)
    for epoch in range((number - 1) * settings.local_epochs, number * settings.local_epochs):
        for step in steps_of(settings, texts, rng, epoch):
            yield step
            for batch in step:
                for example in batch:
                    example.drawn(rng)


def private_steps(
    settings: Settings, texts: Sequence[Sequence[TrainingExample]], rng: random.Random, private: PrivateSteps
) -> list[list[list[TrainingExample]]]:
    """Draw the one step of a private epoch: each unit with probability `private.share` (Poisson sampling), maybe none. Each document is a
    batch; batches of sentences, of similar length, only bound the memory."""
    if private.documents:
        return [[list(text) for text in texts if text and rng.random() < private.share]]
    drawn = [example for text in texts for example in text if rng.random() < private.share]
    if not drawn:
        return [[]]
    if tokens := max(settings.micro_tokens, 0) or settings.tokens_per_batch:
        return [list(by_tokens(drawn, tokens, rng))]
    return list(optimizer_steps(drawn, settings.batch_size, 1 + len(drawn) // settings.batch_size, rng))


@dataclass(frozen=True)
class LocalResult:
    """Sums over a site's training in one round. nll_sum: The sum of the training loss, smoothed or not, in nats."""

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
    settings: Settings,
    seed: str,
    state: dict[str, Numbers] | None = None,
    before_step: Callable[[Step], None] | None = None,
    this_round: tuple[int, int] = (1, 1),
    proximal_mu: float = 0.0,
    towards: NamedTensors = MappingProxyType({}),
    private: PrivateSteps | None = None,
) -> LocalResult:
    """Train the named parameters in place.

    Args:
        model: Left in evaluation mode, with no parameter that requires a gradient.
        names: The parameters that train.
        texts: The examples, text by text if several texts are trained on as one; document by document if `private` hides these.
        codec: The model's.
        settings: The run's. `whole-steps` drops examples that do not fill a step, as Liu et al. 2023 do, unless none would be left.
        seed: Decides order, masks and dropout, so that equal seeds give equal bits.
        state: The optimizer's state to continue from, updated at the end; None: a new optimizer.
        before_step: Called with the batches of every step before it is taken; must leave the model unchanged.
        this_round: The round's number, from 1, and the number of rounds. A schedule spans all rounds, as if each had as many steps.
        proximal_mu: The weight of the proximal term (see `_pull_back`); 0: none.
        towards: The tensors that it pulls to, some or all of those that train.
        private: Makes an epoch one step on units drawn at random, with clipped gradients and noise. Draws and dropout then come from the
            system's random numbers instead of the seed, which the server knows.

    Raises:
        ConfigError: Under `private` a tensor trains whose gradient cannot be clipped.
        RunError: A single example does not fit into memory. StuckError: An epoch does not move a tensor that has a gradient.
    """
    started = time.monotonic()
    rng = SystemRandom() if private else random.Random(seed)
    torch.manual_seed(rng.getrandbits(63))
    wanted, parameters = set(names), dict(model.named_parameters())
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in wanted)
    trained = {name: parameter for name, parameter in parameters.items() if name in wanted}
    optimizer = OPTIMIZERS[settings.optimizer](
        list(trained.values()), settings.step_learning_rate, settings.weight_decay, settings.optimizer_epsilon
    )
    if state:
        restore_optimizer(optimizer, trained, state)
    center = {name: torch.tensor(array).to(trained[name]) for name, array in towards.items()} if proximal_mu else {}
    units = len(texts) if private and private.documents else sum(map(len, texts))
    clipping = Clipping(model, trained, private, private.share * units) if private else None
    add_gradient = StepGradient(model, codec, settings, clipping)
    epochs = settings.local_epochs
    nll_sum: float | Tensor = 0.0
    num_tokens, num_examples, num_steps = 0, 0, 0
    model.train()
    with _checkpointing(model, settings.gradient_checkpointing), clipping.recording() if clipping else nullcontext():
        for epoch in range((this_round[0] - 1) * epochs, this_round[0] * epochs):  # counted over all rounds
            steps = private_steps(settings, texts, rng, private) if private else steps_of(settings, texts, rng, epoch)
            movement: Movement | None = None
            for number, batches in enumerate(steps):
                step = [[example.drawn(rng) for example in batch] for batch in batches]
                if before_step:
                    before_step(step)
                for nll, tokens, examples in add_gradient(step):
                    nll_sum += nll
                    num_tokens += tokens
                    num_examples += examples
                place, steps_of_run = epoch * len(steps) + number, this_round[1] * epochs * len(steps)
                share = rate_share(settings.schedule, place, steps_of_run, settings.warmup_steps)
                rate = settings.step_learning_rate * share
                for of_group in optimizer.param_groups:
                    of_group["lr"] = rate
                _pull_back(trained, center, proximal_mu)
                if settings.clip_norm:
                    nn.utils.clip_grad_norm_(trained.values(), settings.clip_norm)
                # Before noise is added, an error would tell of the text.
                movement = movement or (Movement(trained, rate) if rate > 0 and not (private and not private.noise) else None)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                num_steps += 1
            if movement:
                movement.check()
    if state is not None:
        state.update(optimizer_state(optimizer, trained))
    model.eval()
    model.requires_grad_(False)
    return LocalResult(float(nll_sum), num_tokens, num_examples, num_steps, time.monotonic() - started)


def _pull_back(trained: Mapping[str, nn.Parameter], center: Mapping[str, Tensor], mu: float) -> None:
    """Add the gradient of mu / 2 x |w - w_global|^2, the proximal term of FedProx: Li et al. 2020, eq. 2."""
    for name, middle in center.items():
        parameter = trained[name]
        away = mu * (parameter.detach() - middle)
        parameter.grad = away if parameter.grad is None else parameter.grad + away


@contextmanager
def _checkpointing(model: PreTrainedModel, wanted: bool) -> Iterator[None]:
    """Recompute layers' activations in the backward pass instead of storing them (Chen et al. 2016), with the same dropout."""
    if not wanted:
        yield
        return
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.disable_input_require_grads()  # its hook: without re-entering, nothing below the first trained tensor needs a graph
    try:
        yield
    finally:
        model.activation_checkpointing_disable()


def _usable(examples: Sequence[TrainingExample], settings: Settings, rng: random.Random) -> Sequence[TrainingExample]:
    window = settings.batch_size * settings.accumulation
    if not settings.whole_steps or len(examples) < window:
        return examples
    # A new random choice each time, so that no sentence is always left out.
    return rng.sample(list(examples), len(examples) // window * window)


WITNESSES = 8
"""Numbers of each tensor that are copied and compared: those with the largest gradients."""


class Movement:
    """Checks that an epoch moves every tensor that has a gradient. Made at its first step with a rate above 0, while gradients are there.

    A tensor may stay unchanged if its gradient is 0 (A of LoRA while B is 0). If other tensors move, it may also stay where fp32 rounds
    its step away, or where its gradient is only what rounding leaves of 0 (a key's bias), so that its steps may cancel.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], rate: float) -> None:
        self.rate = rate
        self.watched = {name: each for name, each in parameters.items() if each.grad is not None}
        if self.watched:
            largest = [_largest(each.grad) for each in self.watched.values() if each.grad is not None]
            self.places = [places for _, places in largest]
            slopes, self.before = torch.stack([slopes for slopes, _ in largest]).float(), self._now()
            least = torch.finfo(torch.float32).eps * self.before.abs().clamp(min=1e-12)
            # A step of SGD is the rate times the gradient, one of Adam about the rate.
            is_noise = slopes[:, 0] <= torch.finfo(torch.float32).eps * slopes.max()
            expected = (rate * slopes.clamp(max=1.0) > least).any(dim=1) & ~is_noise
            self.claims = torch.stack([slopes[:, 0] != 0, expected])

    def _now(self) -> Tensor:
        """Return the witnesses' present values, (tensors, WITNESSES) float32."""
        return torch.stack([each.detach().take(at).float() for each, at in zip(self.watched.values(), self.places, strict=True)])

    def check(self) -> None:
        """Raise StuckError, which names them, if tensors that should have moved did not. A GPU is waited for once, not for each tensor."""
        if not self.watched:
            return
        same = (self._now() == self.before).all(dim=1)
        claims = torch.stack([same, *self.claims]).T.tolist()
        watched = [
            (name, still, expected)
            for name, (still, has_gradient, expected) in zip(self.watched, claims, strict=True)
            if has_gradient
        ]
        all_still = all(still for _, still, _ in watched)
        stuck = [name for name, still, expected in watched if still and (expected or all_still)]
        if stuck:
            more = f" and {len(stuck) - 1} more" if stuck[1:] else ""
            raise StuckError(
                f"tensor {stuck[0]!r}{more}: its gradient is not 0, and an epoch did not move it; wanted steps that do: give another "
                f"optimizer, or a larger learning-rate than {self.rate:g}"
            )


def _largest(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest absolute values, descending, and their places, (WITNESSES,) each; those of a small tensor are repeated."""
    values, places = gradient.flatten().abs().topk(min(WITNESSES, gradient.numel()))
    if len(values) < WITNESSES:
        again = torch.arange(WITNESSES, device=values.device) % len(values)
        values, places = values[again], places[again]
    return values, places
