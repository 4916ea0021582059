"""The server's optimiser: a step against the sites' pseudo-gradient, which remembers from round to round (Manoel et al. 2022, eqs. 1, 2).

A site's pseudo-gradient is what it was given less what it came to, g_i = theta - theta_i. `FedMean` takes their mean, whatever the weights,
the clusters and the selection; one function an optimiser makes the next theta of it. Without an optimiser the
sites' own mean is the next theta: SGD at a rate of 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlingua.backbones.parts import Part
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import NamedTensors, Tensors
from fedlingua.runs.checkpoints import ClusterTensors
from fedlingua.settings.config import Settings
from strategies.aggregation import Combine, State
from strategies.updates import Update, away_from

OWN = "server-optimizer"
"""Prefix of the moments' names in a state's memory, and key of the steps in its values."""


@dataclass(frozen=True)
class Step:
    """What a step goes by. learning_rate: of this round; the rest as in torch.optim."""

    learning_rate: float
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Moments:
    """What is remembered of one tensor: how many steps it has made, and running means of its gradients and of their squares."""

    steps: int = 0
    first: Numbers | None = None
    second: Numbers | None = None


def pseudo_gradient(before: NamedTensors, updates: Sequence[Update], combine: Combine) -> NamedTensors:
    """What `combine` makes of the sites' theta - theta_i, of the tensors that anybody sent: eqs. 1 and 2.

    Taken of the differences themselves, it is 0 to the last bit for a number that no site changed; theta less the mean of the
    sites would leave the mean's rounding there, which an optimiser that divides by a gradient's size takes for a direction.
    """
    moved = {name for update in updates for name in update.sent().tensors}
    nowhere = {name: np.zeros_like(tensor) for name, tensor in before.items() if name in moved}
    return combine(nowhere, [away_from(before, update) for update in updates]) if nowhere else {}


Optimizer = Callable[[Numbers, Numbers, Moments, Step], tuple[Numbers, Moments]]
"""(theta, pseudo-gradient, moments, step) -> (next theta, next moments); all of one shape, in float32, and none of them is written to."""


def sgd(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """With momentum, weight decay added to the gradient: Sutskever et al. 2013, as torch.optim.SGD has it."""
    gradient = gradient + step.weight_decay * theta
    velocity = gradient if moments.first is None else step.momentum * moments.first + gradient
    return theta - step.learning_rate * velocity, Moments(moments.steps + 1, velocity)


def adam(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Kingma & Ba 2015, algorithm 1; weight decay is added to the gradient."""
    direction, moments = _adaptive(gradient + step.weight_decay * theta, moments, step)
    return theta - step.learning_rate * direction, moments


def adamw(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Loshchilov & Hutter 2019, algorithm 2: the decay shrinks theta itself."""
    direction, moments = _adaptive(gradient, moments, step)
    return (1 - step.learning_rate * step.weight_decay) * theta - step.learning_rate * direction, moments


def yogi(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Zaheer et al. 2018 as FedYogi has it (Reddi et al. 2021, algorithm 2): no correction of the first steps; v begins at epsilon^2."""
    gradient = gradient + step.weight_decay * theta
    first = (1 - step.beta1) * gradient + (0 if moments.first is None else step.beta1 * moments.first)
    second = np.full_like(gradient, step.epsilon**2) if moments.second is None else moments.second
    squared = gradient * gradient
    second = second - (1 - step.beta2) * squared * np.sign(second - squared)
    return theta - step.learning_rate * first / (np.sqrt(second) + step.epsilon), Moments(moments.steps + 1, first, second)


def lamb(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """You et al. 2020, algorithm 2: AdamW's direction, as long as theta is; unscaled where either is 0. A tensor is a layer."""
    direction, moments = _adaptive(gradient, moments, step)
    direction = direction + step.weight_decay * theta
    length, size = _norm(direction), _norm(theta)
    ratio = size / length if size > 0 and length > 0 else 1.0
    return theta - step.learning_rate * ratio * direction, moments


def _adaptive(gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Adam's direction: m / (sqrt(v) + epsilon), both with the bias of their start corrected."""
    steps = moments.steps + 1
    first = (1 - step.beta1) * gradient + (0 if moments.first is None else step.beta1 * moments.first)
    second = (1 - step.beta2) * gradient * gradient + (0 if moments.second is None else step.beta2 * moments.second)
    root = np.sqrt(second) / math.sqrt(1 - step.beta2**steps) + step.epsilon
    return first / (1 - step.beta1**steps) / root, Moments(steps, first, second)


def _norm(tensor: Numbers) -> float:
    return math.sqrt(float(np.sum(np.square(tensor, dtype=np.float64))))


OPTIMIZERS: dict[str, Optimizer] = {"sgd": sgd, "adam": adam, "adamw": adamw, "yogi": yogi, "lamb": lamb}
"""One line an optimiser: `server.optimizer` -> its step."""


def constant(_: int, __: int, ___: float) -> float:
    """No schedule."""
    return 1.0


def linear(round_number: int, _: int, decay: float) -> float:
    """Manoel et al. 2022, table 2: 1 - decay x r, and never below 0."""
    return max(0.0, 1 - decay * round_number)


def cosine(round_number: int, rounds: int, _: float) -> float:
    """From 1 to 0 over the run's rounds (Loshchilov & Hutter 2017, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * round_number / rounds))


def inverse_sqrt(round_number: int, _: int, __: float) -> float:
    """1 / sqrt(r + 1)."""
    return 1 / math.sqrt(round_number + 1)


SCHEDULES: dict[str, Callable[[int, int, float], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-sqrt": inverse_sqrt,
}
"""One line a schedule: `server.schedule` -> (round, counted from 0; rounds; `server.decay`) -> share of the rate."""


class ServerOptimizer:
    """An optimiser for each tensor of each cluster of a run; the moments lie in the state's memory.

    A tensor that nobody sent, or whose cluster nobody answered for, makes no step: it stays bit for bit, and so do its moments. A number
    that nobody sent of a tensor that somebody did has a gradient of 0, and goes on by its momentum.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self._optimizer = settings, OPTIMIZERS[settings.optimized_by]

    def step(self, state: State, gradients: ClusterTensors) -> State:
        """The state that a round ends with. gradients: of those of its tensors that make a step."""
        how = self.step_of(state.round)
        steps, memory, tensors = dict(state.values.get(OWN, {})), dict(state.memory), dict[Part, dict[str, Tensors]]()
        for part, clusters in state.tensors.items():
            tensors[part] = {cluster: dict(of_cluster) for cluster, of_cluster in clusters.items()}
            for cluster, of_cluster in gradients.get(part, {}).items():
                for name, gradient in of_cluster.items():
                    key = f"{part}/{cluster}/{name}"
                    first, second = f"{OWN}/{key}/first", f"{OWN}/{key}/second"
                    moments = Moments(int(steps.get(key, 0)), memory.get(first), memory.get(second))
                    theta = state.tensors[part][cluster][name]
                    tensors[part][cluster][name], moments = self._optimizer(theta, gradient, moments, how)
                    steps[key] = moments.steps
                    memory |= {k: array for k, array in ((first, moments.first), (second, moments.second)) if array is not None}
        return replace(state, tensors=tensors, memory=memory, values={**state.values, OWN: steps})

    def step_of(self, rounds_before: int) -> Step:
        """What the steps go by after so many rounds."""
        settings = self.settings
        share = SCHEDULES[settings.server_schedule](rounds_before, settings.rounds, settings.server_decay)
        return Step(
            settings.server_learning_rate * share,
            settings.server_momentum,
            settings.server_beta1,
            settings.server_beta2,
            settings.server_epsilon,
            settings.server_weight_decay,
        )
