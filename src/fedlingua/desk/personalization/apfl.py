"""APFL (Deng et al. 2020): train a site's own model in a mixture with the federation's, and alpha, its weight in the mixture.

Both learn at theta_bar = alpha theta_i + (1 - alpha) theta (Algorithm 1), the own model by
theta_i <- theta_i - eta alpha grad L(theta_bar), alpha by dL/dalpha = <grad L(theta_bar), theta_i - theta>: own model minus the
federation's, in this order; the other order would increase the loss. theta, the federation's model, does not change.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization.interpolation import interpolated
from fedlingua.training.batches import TrainingExample
from fedlingua.training.loop import LocalTraining
from fedlingua.training.objective import Gradients
from fedlingua.training.optimizers import OPTIMIZERS

START = 0.5
"""Alpha before the first step: both models count the same."""


@dataclass(frozen=True)
class Mixture:
    """APFL's result. personal: the own model. path: alpha before each step and at the end; NaN once the training diverges."""

    personal: Tensors
    path: Sequence[float]

    @property
    def alpha(self) -> float:
        """Alpha at the end."""
        return self.path[-1]


def alpha_slope(gradient: Gradients, federated: Tensors, personal: Tensors) -> float:
    """Return dL/dalpha = <grad L(theta_bar), theta_i - theta>, summed in float64; a tensor without a gradient adds 0."""
    return sum(
        float(np.vdot(gradient[name].astype(np.float64), (personal[name] - array).astype(np.float64)))
        for name, array in federated.items()
        if name in gradient
    )


def alpha_step(alpha: float, slope: float, rate: float) -> float:
    """Return clip(alpha - rate x dL/dalpha, 0, 1), the next alpha; NaN if the slope is NaN."""
    return float(np.clip(alpha - rate * slope, 0.0, 1.0))


def learn_in_mixture(
    federated: Tensors,
    trainable: Trainable,
    texts: Sequence[Sequence[TrainingExample]],
    how: LocalTraining,
    alpha_rate: float,
    seed: str,
) -> Mixture:
    """Train the own model, from the federation's, and alpha with the run's optimizer; the model keeps a mixture's tensors.

    Both use the gradient of the same step at the same point, with dropout if the run has it. how: its `epochs` are made,
    without a schedule. seed: decides order, masks and dropout.
    """
    model, rng = trainable.model, random.Random(seed)
    torch.manual_seed(rng.getrandbits(63))
    write_tensors(model, federated)
    names = set(trainable.trained.names)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    mixed = {name: parameter for name, parameter in model.named_parameters() if name in names}
    own = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in mixed.items()}
    optimizer = OPTIMIZERS[how.optimizer](list(own.values()), how.learning_rate, how.weight_decay, how.epsilon)
    add_gradient = how.gradient(model, trainable.backbone.codec, texts)
    path = [START]
    model.train()
    for epoch in range(how.epochs):
        for batches in how.steps(texts, rng, epoch):
            alpha = path[-1]
            if math.isnan(alpha):
                break
            personal = {name: tensor.detach().float().cpu().numpy() for name, tensor in own.items()}
            write_tensors(model, interpolated(federated, personal, alpha))
            add_gradient([[example.drawn(rng) for example in batch] for batch in batches])
            gradient = {name: each.grad.float().cpu().numpy() for name, each in mixed.items() if each.grad is not None}
            path.append(alpha_step(alpha, alpha_slope(gradient, federated, personal), alpha_rate))
            for name, parameter in mixed.items():
                own[name].grad = None if parameter.grad is None else alpha * parameter.grad
                parameter.grad = None
            optimizer.step()
    model.eval()
    model.requires_grad_(False)
    return Mixture({name: own[name].detach().float().cpu().numpy().copy() for name in trainable.trained.names}, path)
