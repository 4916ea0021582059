"""APFL (Deng et al. 2020): train a site's own model inside a mixture with the federation's, together with alpha, its weight there.

Both use the gradient at theta_bar = alpha theta_i + (1 - alpha) theta (Algorithm 1). The own model is updated by
theta_i <- theta_i - eta alpha grad L(theta_bar), and alpha follows dL/dalpha = <grad L(theta_bar), theta_i - theta>. The difference is
own minus federation; the opposite order would increase the loss. theta, the federation's model, does not change.
"""

import math
import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization.interpolation import interpolated
from fedlingua.settings.config import Settings
from fedlingua.training.accumulate import StepGradient
from fedlingua.training.batches import TrainingExample
from fedlingua.training.loop import steps_of
from fedlingua.training.objective import Gradients
from fedlingua.training.optimizers import OPTIMIZERS

START = 0.5
"""Alpha before the first step: both models have the same weight."""


def alpha_slope(gradient: Gradients, federated: Tensors, personal: Tensors) -> float:
    """Return dL/dalpha = <grad L(theta_bar), theta_i - theta>, summed in float64; tensors without a gradient contribute 0."""
    return sum(
        float((gradient[name].astype(np.float64) * (personal[name] - array)).sum())  # np.vdot depends on the number of threads
        for name, array in federated.items()
        if name in gradient
    )


def alpha_step(alpha: float, slope: float, rate: float) -> float:
    """Return the next alpha, clip(alpha - rate x dL/dalpha, 0, 1); NaN if the slope is NaN."""
    return float(np.clip(alpha - rate * slope, 0.0, 1.0))


def learn_in_mixture(
    federated: Tensors,
    trainable: Trainable,
    texts: Sequence[Sequence[TrainingExample]],
    settings: Settings,
    alpha_rate: float,
    seed: str,
) -> tuple[Tensors, list[float]]:
    """Train the own model, starting from the federation's, with the run's optimizer, and alpha by gradient descent.

    Both use the same step's gradient at the same point, with dropout if the run has it. Afterwards the model holds a mixture's tensors.
    settings: Its `local_epochs` are run without a learning rate schedule. seed: Determines order, masks and dropout.

    Returns:
        The own model, and alpha before each step and at the end; NaN once training diverges.
    """
    model, rng = trainable.model, random.Random(seed)
    torch.manual_seed(rng.getrandbits(63))
    write_tensors(model, federated)
    names = set(trainable.trained.names)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    mixed = {name: parameter for name, parameter in model.named_parameters() if name in names}
    own = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in mixed.items()}
    rate, decay, epsilon = settings.step_learning_rate, settings.weight_decay, settings.optimizer_epsilon
    optimizer = OPTIMIZERS[settings.optimizer](list(own.values()), rate, decay, epsilon)
    add_gradient = StepGradient(model, trainable.backbone.codec, settings, texts)
    path = [START]
    model.train()
    for epoch in range(settings.local_epochs):
        for batches in steps_of(settings, texts, rng, epoch):
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
    return {name: own[name].detach().float().cpu().numpy().copy() for name in trainable.trained.names}, path
