"""How much of its own model a site should use, learned from its training text: APFL's update of alpha (Deng et al. 2020).

With theta_bar = alpha theta_i + (1 - alpha) theta the chain rule gives dL/dalpha = <grad L(theta_bar), theta_i - theta>: own model minus
the federation's, in this order. The other order learns the opposite of what the text says.
"""

import math

import numpy as np

from fedlingua.backbones.precision import autocast
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization.interpolation import interpolated
from fedlingua.training.accumulate import Step
from fedlingua.training.batches import pad
from fedlingua.training.objective import Gradients, corpus_gradient

START = 0.5
"""Alpha before the first step: both models count the same."""


def alpha_slope(gradient: Gradients, federated: Tensors, personal: Tensors) -> float:
    """dL/dalpha = <grad L(theta_bar), theta_i - theta>, summed in float64; of a tensor that the loss does not reach 0."""
    return sum(
        float(np.vdot(gradient[name].astype(np.float64), (personal[name] - array).astype(np.float64)))
        for name, array in federated.items()
        if name in gradient
    )


def alpha_step(alpha: float, slope: float, rate: float) -> float:
    """alpha <- clip(alpha - rate x dL/dalpha, 0, 1); NaN of a slope that is none."""
    return float(np.clip(alpha - rate * slope, 0.0, 1.0))


class LearnedAlpha:
    """Alpha beside the training of a site's own model, a step for each of its steps: `before_step` of train_locally.

    The gradient is that of the batches that the own model is about to learn from, so in a first pass of text that it has not seen; and
    without dropout, which leaves the training's own random numbers as they are. path: alpha before each step, and at the end; NaN from the
    step on at which a training diverges.
    """

    def __init__(self, federated: Tensors, trainable: Trainable, rate: float, precision: str) -> None:
        self.federated, self.rate, self.precision = federated, rate, precision
        self.model, self.codec, self.trained = trainable.model, trainable.backbone.codec, trainable.trained
        self.path = [START]

    @property
    def alpha(self) -> float:
        """As it stands now."""
        return self.path[-1]

    def __call__(self, step: Step) -> None:
        if math.isnan(self.alpha):
            return
        personal = read_tensors(self.model, self.trained)
        write_tensors(self.model, interpolated(self.federated, personal, self.alpha))
        batches = [pad(batch, self.codec).to(self.model.device) for batch in step]
        with autocast(self.model, self.precision):
            _, _, gradient = corpus_gradient(self.model, self.trained.names, batches)
        write_tensors(self.model, personal)
        self.path.append(alpha_step(self.alpha, alpha_slope(gradient, self.federated, personal), self.rate))
