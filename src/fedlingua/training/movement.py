"""Check that an epoch moves the tensors that it trains; an optimiser that leaves one unchanged is an error."""

from collections.abc import Mapping

import torch
from torch import nn

from fedlingua.common.errors import RunError

WITNESSES = 8
"""Numbers of each tensor that are copied and compared: those with the largest gradients."""


class Movement:
    """A comparison of the tensors before and after an epoch, from its first step with a `rate` above 0, whose gradients it needs.

    A tensor may stay unchanged if its gradient is 0 (A of LoRA while B is 0). If other tensors move, it may also stay where fp32 rounds
    its step away (a key's bias, whose gradient is 0 except for rounding).
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
        """Raise RunError, which names them, if tensors that should have moved did not."""
        still = [each for each in self.watched if torch.equal(each[1].detach().flatten()[each[2]], each[3])]
        stuck = [name for name, *_, expected in still if expected or len(still) == len(self.watched)]
        if stuck:
            more = f" and {len(stuck) - 1} more" if stuck[1:] else ""
            raise RunError(
                f"tensor {stuck[0]!r}{more}: its gradient is not 0, and an epoch did not move it; wanted steps that do: give another "
                f"optimizer, or a larger learning-rate than {self.rate:g}"
            )
