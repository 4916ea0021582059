"""Bottleneck adapters inside a frozen backbone; in M2M-100 and mBART-50 at the places of Liu et al. 2023, §2.2.

An adapter maps h: (batch, len, d_model) to h + up(relu(down(h))). An encoder layer has two (after self-attention, after the
feed-forward's second projection), a decoder layer three (after cross-attention as well), each after dropout and before the residual
add, as in the paper's code. Layers of a masked-language model have the two of an encoder layer.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.pruning import kept_layers
from fedlingua.common.errors import BackboneError

INIT_STD = 0.02
"""Standard deviation of an adapter's initial weights, the paper's. Biases start at 0, so an adapter is no identity at the start."""


@dataclass(frozen=True)
class AdapterConfig:
    """Options of adapters. dim: width of the bottleneck. layers: "all", or the third of each stack with adapters."""

    dim: int = 64
    layers: str = "all"


class BottleneckAdapter(nn.Module):
    """h + up(relu(down(h))), with biases, no inner layer norm; h while `bypassed`. dropout: of h, in both cases."""

    def __init__(self, d_model: int, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.bypassed, self.dropout = False, dropout
        self.down = nn.Linear(d_model, dim)
        self.up = nn.Linear(dim, d_model)

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply the adapter. hidden and result: (batch, len, d_model)."""
        hidden = nn.functional.dropout(hidden, self.dropout, self.training)
        if self.bypassed:
            return hidden
        result: Tensor = hidden + self.up(torch.relu(self.down(hidden)))
        return result


def attach_adapters(model: PreTrainedModel, config: AdapterConfig, seed: int) -> None:
    """Attach an adapter at every place of every chosen layer, drawn with `seed` in the order of stacks, layers and places.

    Raises:
        BackboneError: the model already has adapters, or the chosen third of its layers is empty.
    """
    generator = torch.Generator().manual_seed(seed)
    adapted, width = kept_layers(model, config.layers), model.config.hidden_size
    for part, stack in layout_of(model).stacks.items():
        layers = stack.held(model)
        for number in adapted[part]:
            layer = layers[number]
            if hasattr(layer, "adapters"):
                raise BackboneError("this backbone already has adapters; load it again before attaching others")
            dropout = _taken_over(layer, stack.places)
            layer.adapters = nn.ModuleDict({at: BottleneckAdapter(width, config.dim, dropout[at]) for at in stack.places})
            layer.adapters.to(model.device).train(layer.training)  # fp32, whatever the backbone's dtype is
            for place, module in stack.places.items():
                adapter = layer.adapters[place]
                _initialise(adapter, generator)
                layer.get_submodule(module).register_forward_hook(_through(adapter))


def _initialise(adapter: BottleneckAdapter, generator: torch.Generator) -> None:
    with torch.no_grad():
        for projection in (adapter.down, adapter.up):
            drawn = torch.empty(projection.weight.shape).normal_(0.0, INIT_STD, generator=generator)
            projection.weight.copy_(drawn)
            projection.bias.zero_()


def _taken_over(layer: nn.Module, places: Mapping[str, str]) -> dict[str, float]:
    """Set the layer's dropout at the places, a number or a module, to 0; return each place's former probability."""
    owners: dict[str, Any] = {place: layer.get_submodule(module.rpartition(".")[0]) for place, module in places.items()}
    owners = {place: owner for place, owner in owners.items() if hasattr(owner, "dropout")}  # decoder-only models have no dropout
    taken = {place: float(getattr(owner.dropout, "p", owner.dropout)) for place, owner in owners.items()}
    for owner in owners.values():
        owner.dropout = type(owner.dropout)(0.0)
    return dict.fromkeys(places, 0.0) | taken


def _through(adapter: BottleneckAdapter) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        # Attention returns (hidden, weights), a linear layer the hidden states alone.
        return (adapter(output[0]), *output[1:]) if isinstance(output, tuple) else adapter(output)

    return hook


@contextmanager
def bypassed(model: nn.Module, kind: type[Any]) -> Iterator[None]:
    """Make the model compute without its modules of this kind; all other tensors keep their current values."""
    attached: list[Any] = [module for module in model.modules() if isinstance(module, kind)]
    for module in attached:
        module.bypassed = True
    try:
        yield
    finally:
        for module in attached:
            module.bypassed = False


def adapters_bypassed(model: nn.Module) -> AbstractContextManager[None]:
    """Make the model compute without its adapters."""
    return bypassed(model, BottleneckAdapter)
