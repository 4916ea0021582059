"""Whether an epoch moves what it trains: an optimiser that leaves a tensor as it is must not pass for training."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedlingua.errors import RunError

WITNESSES = 8
"""Numbers of each tensor that are looked at, those with the steepest gradients; none but them is copied."""


class Movement:
    """Begins before a step of the optimiser, with the step's gradients there, and ends with its epoch.

    Honest training leaves a tensor as it is where its gradient is 0 (the A of low-rank additions while B is 0) or the step is less than
    fp32 can add to its numbers (a key's bias, whose gradient is 0 up to rounding). Neither is an error, unless nothing moves at all.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], rate: float) -> None:
        """rate: the step's, above 0."""
        self.rate, self.watched = rate, {}
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                slopes, places = parameter.grad.flatten().abs().topk(min(WITNESSES, parameter.numel()))
                self.watched[name] = (parameter, places, slopes, parameter.detach().flatten()[places])

    def check(self) -> None:
        """
        Raises:
            RunError: tensors that should have moved, by name, and did not.
        """
        still = {
            name: (slopes, before)
            for name, (parameter, places, slopes, before) in self.watched.items()
            if torch.equal(parameter.detach().flatten()[places], before) and bool((slopes > 0).any())
        }
        nothing_moved = len(still) == sum(bool((slopes > 0).any()) for _, _, slopes, _ in self.watched.values())
        stuck = [name for name, seen in still.items() if nothing_moved or self._should_move(*seen)]
        if stuck:
            more = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
            raise RunError(
                f"tensor {stuck[0]!r}{more} did not move in an epoch, with a gradient up to {float(still[stuck[0]][0].max()):.1e} and the "
                f"learning rate {self.rate:g}; wanted a step that changes its numbers: give a larger learning-rate, or another optimizer"
            )

    def _should_move(self, slopes: Tensor, before: Tensor) -> bool:
        """Whether the plain step is more than fp32 rounds away, of any of the numbers; Adam's is no longer than the rate."""
        steps = self.rate * slopes.float().clamp(max=1.0)
        return bool((steps > torch.finfo(torch.float32).eps * before.float().abs().clamp(min=1e-12)).any())
