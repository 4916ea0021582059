"""Tensor sets: which tensors of a model train, which of them travel, and which part and layer each belongs to."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.bottleneck import AdapterConfig, adapters_bypassed, attach_adapters
from fedlingua.backbones.controllers import attach_controllers, controllers_bypassed, is_controller
from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.lora import LowRank, attach_lora, is_lora, peft_bypassed
from fedlingua.backbones.parts import is_adapter_set
from fedlingua.backbones.pruning import kept_layers
from fedlingua.exchange.joined import Joined, joined_set
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet, TensorSpec
from fedlingua.settings.config import Settings


@dataclass(frozen=True)
class Kind:
    """How a tensor set is made.

    attach: adds the set's modules to the model and returns their configuration, or None if the whole model is the result. trains, travels:
    whether a tensor of this name does; only a tensor that trains can travel. bypassed: makes the model compute without these modules.
    """

    attach: Callable[[PreTrainedModel, Settings], Mapping[str, Any] | None]
    bypassed: Callable[[nn.Module], AbstractContextManager[object]]
    trains: Callable[[str], bool]
    travels: Callable[[str], bool]


def _adapters(model: PreTrainedModel, settings: Settings) -> Mapping[str, Any]:
    attach_adapters(model, config := AdapterConfig(settings.adapter_dim, settings.adapter_layers), settings.seed)
    return {"type": "bottleneck", **asdict(config)}


def _lora(model: PreTrainedModel, settings: Settings) -> Mapping[str, Any]:
    config = LowRank(settings.lora_rank, settings.lora_alpha, settings.lora_targets, settings.adapter_layers)
    attach_lora(model, config, settings.seed)
    return {"type": "lora", **asdict(config)}


TENSOR_SETS: dict[str, Kind] = {
    "adapters": Kind(_adapters, adapters_bypassed, is_adapter_set, is_adapter_set),
    "full": Kind(lambda model, settings: None, nullcontext, bool, bool),
    "controllers": Kind(
        lambda model, settings: attach_controllers(model, settings.controllers), controllers_bypassed, bool, is_controller
    ),
    "lora": Kind(_lora, peft_bypassed, is_lora, is_lora),
}
"""Value of `tensor-set` -> how the set is made. With "full" and "controllers" the whole model trains."""


def tensor_set(model: PreTrainedModel, name: str, layers: str = "all") -> TensorSet:
    """Return the tensors of a model that train under the set `name`.

    layers: the third of each stack's layers that trains, together with tensors outside the layers (the stacks' final norms).
    """
    layers_left, trains, layout = kept_layers(model, layers), TENSOR_SETS[name].trains, layout_of(model)
    chosen = [
        TensorSpec(tensor_name, tuple(parameter.shape), *layout.place(tensor_name))
        # `named_parameters` lists tied weights once, under their first name.
        for tensor_name, parameter in model.named_parameters()
        if trains(tensor_name)
    ]
    return TensorSet(name, tuple(chosen)).where(lambda spec: spec.layer is None or spec.layer in layers_left[spec.part])


def travelling(trained: TensorSet) -> TensorSet:
    """Return the trained tensors that leave a site."""
    travels = TENSOR_SETS[trained.name].travels
    return trained.where(lambda spec: travels(spec.name))


def read_tensors(model: PreTrainedModel, chosen: TensorSet) -> Tensors:
    """Copy tensors out of the model; without a copy they would share memory with parameters that train on."""
    joined = read_joined(model, chosen)
    placed = zip(chosen.specs, chosen.places, strict=True)
    return {spec.name: np.reshape(joined.parts[part][first:last], spec.shape) for spec, (part, first, last) in placed}


def read_joined(model: PreTrainedModel, chosen: TensorSet) -> Joined:
    """Copy tensors out of the model into one flat array a part, the form in which they travel. A GPU hands over a part at once."""
    parameters, parts = dict(model.named_parameters()), [spec.part for spec in joined_set(chosen).specs]
    copied = {part: [parameters[spec.name].detach().flatten().float() for spec in chosen.of_part(part)] for part in parts}
    return Joined({part: torch.cat(numbers).cpu().numpy() for part, numbers in copied.items()}, chosen)


def write_tensors(model: PreTrainedModel, tensors: NamedTensors) -> None:
    """Copy tensors into the model by name; the model keeps its dtype and device."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, array in tensors.items():
            parameters[name].copy_(torch.tensor(array))
