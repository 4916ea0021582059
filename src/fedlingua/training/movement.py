"""Whether an epoch moves what it trains: an optimiser that leaves a tensor as it is must not pass for training."""

from collections.abc import Mapping

import torch
from torch import nn

from fedlingua.common.errors import RunError

WITNESSES = 8
"""Numbers of each tensor that are compared, those with the steepest gradients; no others are copied."""


class Movement:
    """Begins before a step of the optimiser at `rate`, above 0, with its gradients, and ends with the epoch.

    A tensor may stay where its gradient is 0 (A of low-rank additions while B is 0), or, beside others that move, where fp32 rounds its
    step away (a key's bias, whose gradient is 0 but for rounding).
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], rate: float) -> None:
        self.rate, self.watched = rate, []
        for name, parameter in parameters.items():
            if parameter.grad is not None and parameter.grad.any():
                slopes, places = parameter.grad.flatten().abs().topk(min(WITNESSES, parameter.numel()))
                before = parameter.detach().flatten()[places]
                least = torch.finfo(torch.float32).eps * before.float().abs().clamp(min=1e-12)
                # A step of SGD is the rate times the gradient, one of Adam about the rate.
                expected = bool((rate * slopes.float().clamp(max=1.0) > least).any())
                self.watched.append((name, parameter, places, before, expected))

    def check(self) -> None:
        """
        Raises:
            RunError: tensors that should have moved and did not, by name.
        """
        still = [each for each in self.watched if torch.equal(each[1].detach().flatten()[each[2]], each[3])]
        stuck = [name for name, *_, expected in still if expected or len(still) == len(self.watched)]
        if stuck:
            more = f" and {len(stuck) - 1} more" if stuck[1:] else ""
            raise RunError(
                f"tensor {stuck[0]!r}{more}: its gradient is not 0, and an epoch did not move it; wanted steps that do: give another "
                f"optimizer, or a larger learning-rate than {self.rate:g}"
            )
