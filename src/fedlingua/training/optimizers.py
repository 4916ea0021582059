"""A site's optimiser: made anew for each round, or, where nothing leaves the site, gone on with from the round before."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

Options = Mapping[str, float]
Numbers = np.ndarray[Any, Any]


def _adam(parameters: list[nn.Parameter], lr: float, weight_decay: float, eps: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, eps=eps, fused=True)


def _adamw(parameters: list[nn.Parameter], lr: float, weight_decay: float, eps: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, eps=eps, fused=True)


def _sgd(parameters: list[nn.Parameter], lr: float, weight_decay: float, eps: float) -> torch.optim.Optimizer:
    fused = all(one.dtype == torch.float32 for one in parameters)  # torch 2.13's leaves half tensors on a CPU as they are
    return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay, fused=fused)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float, float, float], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
}
"""One line an optimiser: `optimizer` -> how it is made of parameters, rate, weight decay and epsilon (which SGD has not)."""


def optimizer_state(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Numbers]:
    """All that the optimiser remembers, by parameter and what it is."""
    return {
        f"{name}/{what}": np.atleast_1d(value.detach().float().cpu().numpy().copy())
        for name, parameter in parameters.items()
        for what, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Numbers]
) -> None:
    """Take back what `optimizer_state` gave."""
    for key, value in state.items():
        name, _, what = key.rpartition("/")
        parameter, kept = parameters[name], torch.from_numpy(value.copy())
        # Steps are counted in float32, whatever the parameter's own dtype.
        optimizer.state[parameter][what] = kept[0].to(parameter.device) if what == "step" else kept.to(parameter)
