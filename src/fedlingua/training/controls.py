"""SCAFFOLD's correction of local steps by control variates (Karimireddy et al. 2020, algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from fedlingua.training.optimizers import Numbers

CONTROL = "/control"


@dataclass
class Controls:
    """Adds c - c_i to the gradient of every step; the next c_i is the mean of the uncorrected gradients.

    Under SGD that is the paper's option II, c_i - c + (x - y_i) / (K x rate), since y_i is x less rate x the sum of K corrected
    gradients; under Adam, whose steps have another scale, it is a mean of gradients as well.

    shared, own: tensor -> c and c_i. Tensors without c are not corrected.
    """

    shared: Mapping[str, Numbers]
    own: Mapping[str, Numbers]
    steps: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    corrections: dict[str, Tensor] = field(default_factory=dict)

    def correct(self, trained: Mapping[str, nn.Parameter]) -> None:
        """Correct the gradients of one step in place, and add the uncorrected ones to the sums."""
        self.steps += 1
        for name, shared in self.shared.items():
            parameter = trained[name]
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach()
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(gradient)
                self.corrections[name] = torch.tensor(shared - self.own.get(name, np.float32(0))).to(gradient)
            self.sums[name] += gradient
            parameter.grad = gradient + self.corrections[name]

    def next_own(self) -> dict[str, Numbers]:
        """Return c_i of the next round."""
        return {name: (total / self.steps).float().cpu().numpy() for name, total in self.sums.items()}

    def named(self) -> dict[str, Numbers]:
        """Return c_i of the next round under the names that it travels by."""
        return {f"{name}{CONTROL}": array for name, array in self.next_own().items()}
