"""The other sites' adapter, frozen beside a site's own, and the gate that mixes both: FedALT (Bian et al., AAAI 2026).

Where a layer added f(x), by a bottleneck adapter or by low-rank matrices, it now adds
    a_own f_own(x) + a_rest f_rest(x), with (a_own, a_rest) = softmax(G x + b).
G: (2, width) and b: (2,) start at 0, and the rest (the other sites' adapter) as a copy of the own adapter, so the model starts unchanged.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.backbones.bottleneck import BottleneckAdapter

_RESTS = {
    ".down.": ".beside.first.",
    ".up.": ".beside.last.",
    ".lora_A.default.": ".beside.first.",
    ".lora_B.default.": ".beside.last.",
}
"""Part of an own tensor's name -> the same part in the name of the rest's tensor."""


class Beside(nn.Module):
    """The rest's two projections and the gate. first, last: the own projections, whose input and output it gets by hooks."""

    def __init__(self, first: nn.Linear, last: nn.Linear, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self._activation = copy.deepcopy(first), copy.deepcopy(last), activation
        self.gate = nn.Linear(first.in_features, 2, device=first.weight.device)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self._inputs: Tensor | None = None
        first.register_forward_pre_hook(self._remember)
        last.register_forward_hook(self._mix)

    def _remember(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = inputs[0]

    def _mix(self, module: nn.Module, inputs: Any, own: Tensor) -> Tensor:
        assert self._inputs is not None
        hidden, self._inputs = self._inputs, None
        return mixed(self.gate(hidden), own, self.last(self._activation(self.first(hidden))))


def mixed(scores: Tensor, own: Tensor, rest: Tensor) -> Tensor:
    """Return a_own f_own + a_rest f_rest. scores: (..., 2), whose softmax is a; own, rest: (..., width)."""
    shares = torch.softmax(scores, dim=-1)
    return shares[..., :1] * own + shares[..., 1:] * rest


def attach_rest(model: PreTrainedModel) -> None:
    """Attach the rest beside every adapter and every low-rank matrix pair of the model."""
    for module in list(model.modules()):
        attached: Any = module
        if isinstance(module, BottleneckAdapter):
            attached.beside = Beside(module.down, module.up, torch.relu)
        elif "default" in getattr(module, "lora_A", ()):
            attached.beside = Beside(attached.lora_A["default"], attached.lora_B["default"], lambda hidden: hidden)
    model.requires_grad_(False)


def rest_name(name: str) -> str:
    """Return the name of the rest's tensor beside an own tensor; "" if there is none, as for a norm."""
    own = next((part for part in _RESTS if part in name), "")
    return name.replace(own, _RESTS[own]) if own else ""


def is_gate(name: str) -> bool:
    """Return whether a tensor of this name is a gate's, which trains and stays at its site."""
    return ".beside.gate." in name


def is_rest(name: str) -> bool:
    """Return whether a tensor of this name belongs to the rest, the other sites' frozen adapter."""
    return ".beside." in name and not is_gate(name)
