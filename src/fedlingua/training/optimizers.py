"""A site's optimizer: new in each round, or continued from its state of the round before, as `optimizer-state` says."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Numbers = np.ndarray[Any, Any]


Maker = Callable[[list[nn.Parameter], float, float, float], torch.optim.Optimizer]


def _adam(kind: type[torch.optim.Adam], parameters: list[nn.Parameter], lr: float, decay: float, eps: float) -> torch.optim.Adam:
    return kind(parameters, lr=lr, weight_decay=decay, eps=eps, fused=True)


def _sgd(parameters: list[nn.Parameter], lr: float, decay: float, eps: float) -> torch.optim.SGD:
    fused = all(each.dtype == torch.float32 for each in parameters)  # torch 2.13's does not move half tensors on a CPU
    return torch.optim.SGD(parameters, lr=lr, weight_decay=decay, fused=fused)


OPTIMIZERS: dict[str, Maker] = {"adam": partial(_adam, torch.optim.Adam), "adamw": partial(_adam, torch.optim.AdamW), "sgd": _sgd}
"""`optimizer` -> its maker, from parameters, rate, weight decay and epsilon (unused by SGD); one line for each optimizer."""


def optimizer_state(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Numbers]:
    """Copy the optimizer's state: `<parameter>/<entry>` -> its values in float32."""
    return {
        f"{name}/{what}": np.atleast_1d(value.detach().float().cpu().numpy().copy())
        for name, parameter in parameters.items()
        for what, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], state: Mapping[str, Numbers]) -> None:
    """Restore the state that `optimizer_state` copied."""
    for key, value in state.items():
        name, _, what = key.rpartition("/")
        parameter, stored = parameters[name], torch.from_numpy(value.copy())
        # The step count is float32, whatever the parameter's dtype.
        optimizer.state[parameter][what] = stored[0].to(parameter.device) if what == "step" else stored.to(parameter)
