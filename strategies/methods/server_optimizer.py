"""The server's optimizer: steps against the sites' mean pseudo-gradient, with moments kept from round to round.

A site's pseudo-gradient is what it received minus its tensors after training, g_i = theta - theta_i (Manoel et al. 2022, eqs. 1, 2).
`FedMean` averages them, with its usual weights, clusters and selection; the optimizer computes the next theta from that mean. Without
an optimizer, the next theta is the mean of the sites' tensors, which is SGD with a learning rate of 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlingua.backbones.parts import Part
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.state import ClusterTensors, State
from fedlingua.exchange.tensors import NamedTensors, Tensors
from fedlingua.exchange.updates import Update, away_from
from fedlingua.settings.config import Settings
from strategies.aggregation.mean import Combine

OWN = "server-optimizer"
"""Prefix of the moments' names in a state's memory, and key of the step counts in its values."""


BETA1 = 0.9
"""Decay rate of the running mean of gradients: that of Reddi et al. 2021 and of torch."""


@dataclass(frozen=True)
class Step:
    """Hyperparameters of one step. learning_rate: this round's, after the schedule; the others as in torch.optim."""

    learning_rate: float
    momentum: float = 0.0
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Moments:
    """The optimizer's memory of one tensor: the number of its steps, and running means of its gradients and of their squares."""

    steps: int = 0
    first: Numbers | None = None
    second: Numbers | None = None


def pseudo_gradient(before: NamedTensors, updates: Sequence[Update], combine: Combine) -> NamedTensors:
    """Return what `combine` makes of the sites' theta - theta_i, for the tensors that any site sent: eqs. 1 and 2.

    Because the differences are combined, it is exactly 0 for a number that no site changed. Theta minus the mean of the sites
    would leave the mean's rounding error, which an optimizer that divides by a gradient's size would take for a direction.
    """
    moved = {name for update in updates for name in update.sent().tensors}
    nowhere = {name: np.zeros_like(tensor) for name, tensor in before.items() if name in moved}
    return combine(nowhere, [away_from(before, update) for update in updates]) if nowhere else {}


Optimizer = Callable[[Numbers, Numbers, Moments, Step], tuple[Numbers, Moments]]
"""(theta, pseudo-gradient, moments, step) -> (next theta, next moments); all of one shape, in float32; the arguments are not modified."""


def sgd(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Make a step of SGD with momentum, weight decay added to the gradient: Sutskever et al. 2013, as in torch.optim.SGD."""
    gradient = gradient + step.weight_decay * theta
    velocity = gradient if moments.first is None else step.momentum * moments.first + gradient
    return theta - step.learning_rate * velocity, Moments(moments.steps + 1, velocity)


def adam(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Make a step of Adam, Kingma & Ba 2015, algorithm 1; weight decay is added to the gradient."""
    direction, moments = _adaptive(gradient + step.weight_decay * theta, moments, step)
    return theta - step.learning_rate * direction, moments


def adamw(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Make a step of AdamW, Loshchilov & Hutter 2019, algorithm 2: weight decay shrinks theta itself."""
    direction, moments = _adaptive(gradient, moments, step)
    return (1 - step.learning_rate * step.weight_decay) * theta - step.learning_rate * direction, moments


def yogi(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Make a step of Yogi, Zaheer et al. 2018, as in FedYogi (Reddi et al. 2021, alg. 2): no bias correction; v begins at epsilon^2."""
    gradient = gradient + step.weight_decay * theta
    first = (1 - BETA1) * gradient + (0 if moments.first is None else BETA1 * moments.first)
    second = np.full_like(gradient, step.epsilon**2) if moments.second is None else moments.second
    squared = gradient * gradient
    second = second - (1 - step.beta2) * squared * np.sign(second - squared)
    return theta - step.learning_rate * first / (np.sqrt(second) + step.epsilon), Moments(moments.steps + 1, first, second)


def lamb(theta: Numbers, gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Make a step of LAMB, You et al. 2020, algorithm 2: AdamW's direction, scaled to theta's norm unless one is 0; by tensor."""
    direction, moments = _adaptive(gradient, moments, step)
    direction = direction + step.weight_decay * theta
    length, size = _norm(direction), _norm(theta)
    ratio = size / length if size > 0 and length > 0 else 1.0
    return theta - step.learning_rate * ratio * direction, moments


def _adaptive(gradient: Numbers, moments: Moments, step: Step) -> tuple[Numbers, Moments]:
    """Return Adam's direction, m / (sqrt(v) + epsilon) with m and v bias-corrected, and the next moments."""
    steps = moments.steps + 1
    first = (1 - BETA1) * gradient + (0 if moments.first is None else BETA1 * moments.first)
    second = (1 - step.beta2) * gradient * gradient + (0 if moments.second is None else step.beta2 * moments.second)
    root = np.sqrt(second) / math.sqrt(1 - step.beta2**steps) + step.epsilon
    return first / (1 - BETA1**steps) / root, Moments(steps, first, second)


def _norm(tensor: Numbers) -> float:
    return math.sqrt(float(np.sum(np.square(tensor, dtype=np.float64))))


OPTIMIZERS: dict[str, Optimizer] = {"sgd": sgd, "adam": adam, "adamw": adamw, "yogi": yogi, "lamb": lamb}
"""`server.optimizer` -> the function that makes its step; one line for each optimizer."""


SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": lambda number, rounds: 1.0,
    # With the fall a round of Manoel et al. 2022, table 2.
    "linear": lambda number, rounds: max(0.0, 1 - 1e-3 * number),
    # Loshchilov & Hutter 2017, without restarts.
    "cosine": lambda number, rounds: 0.5 * (1 + math.cos(math.pi * number / rounds)),
    "inverse-sqrt": lambda number, rounds: 1 / math.sqrt(number + 1),
}
"""`server.schedule` -> (round, from 0; number of rounds) -> share of the learning rate; one line for each."""


class ServerOptimizer:
    """An optimizer for each tensor of each cluster of a run; the moments are stored in the state's memory.

    A tensor that no site sent makes no step: it and its moments stay the same bit for bit. In a tensor that a site did send, a number
    that none sent has a gradient of 0 and moves by its momentum only.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self._optimizer = settings, OPTIMIZERS[settings.optimized_by]

    def step(self, state: State, gradients: ClusterTensors) -> State:
        """Return the state at the end of a round. gradients: pseudo-gradients of the tensors that make a step."""
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
        """Return the hyperparameters of the next step. rounds_before: number of rounds that came before it."""
        settings = self.settings
        share = SCHEDULES[settings.server_schedule](rounds_before, settings.rounds)
        others = settings.server_momentum, settings.server_beta2, settings.server_epsilon, settings.server_weight_decay
        return Step(settings.server_learning_rate * share, *others)
