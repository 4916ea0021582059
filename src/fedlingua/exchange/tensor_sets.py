"""Tensor sets: which tensors of a model train and travel, and which part and layer each belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedModel

from fedlingua.backbones.bottleneck import is_adapter_set
from fedlingua.errors import ExchangeError

Part = Literal["encoder", "decoder", "shared"]
PARTS: tuple[Part, ...] = ("encoder", "decoder", "shared")
Tensors = dict[str, np.ndarray[Any, Any]]
"""Named float32 arrays, in the order of their tensor set."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: its name in the model, shape, part, and layer (None outside the layer stacks)."""

    name: str
    shape: tuple[int, ...]
    part: Part
    layer: int | None


@dataclass(frozen=True)
class TensorSet:
    """Ordered tensors that train and travel together."""

    name: str
    specs: tuple[TensorSpec, ...]

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @property
    def num_parameters(self) -> int:
        return sum(int(np.prod(spec.shape)) for spec in self.specs)

    def of_part(self, part: Part) -> list[TensorSpec]:
        return [spec for spec in self.specs if spec.part == part]


def tensor_set(model: PreTrainedModel, name: str) -> TensorSet:
    """The set `name` of a model: "adapters" (adapters and layer norms, as in the paper) or "full" (everything once)."""
    chosen = [
        TensorSpec(tensor_name, tuple(parameter.shape), *_place(tensor_name))
        # Tied weights come once here, under their first name.
        for tensor_name, parameter in model.named_parameters()
        if name == "full" or is_adapter_set(tensor_name)
    ]
    return TensorSet(name, tuple(chosen))


def _place(name: str) -> tuple[Part, int | None]:
    words = name.split(".")
    part: Part = "shared"
    if "encoder" in words:
        part = "encoder"
    elif "decoder" in words:
        part = "decoder"
    layer = int(words[words.index("layers") + 1]) if "layers" in words else None
    return part, layer


def read_tensors(model: PreTrainedModel, chosen: TensorSet) -> Tensors:
    """Copies of the model's tensors. Without the copy the arrays would share memory with parameters that go on training."""
    parameters = dict(model.named_parameters())
    return {name: parameters[name].detach().float().cpu().numpy().copy() for name in chosen.names}


def write_tensors(model: PreTrainedModel, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Put tensors into the model by name; the model's dtype and device stay."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, array in tensors.items():
            parameters[name].copy_(torch.from_numpy(np.asarray(array, order="C")))


def check_form(tensors: Mapping[str, np.ndarray[Any, Any]], wanted: TensorSet) -> Tensors:
    """The tensors in the set's order, once every name, shape and dtype is as it has to be; the numbers are not looked at.

    Raises:
        ExchangeError: names the first tensor that is missing, unexpected, or of another shape or dtype.
    """
    extra = sorted(set(tensors) - set(wanted.names))
    if extra:
        raise ExchangeError(f"got {len(extra)} tensor(s) that the set {wanted.name!r} does not have, {extra[0]!r} first")
    checked: Tensors = {}
    for spec in wanted.specs:
        if spec.name not in tensors:
            raise ExchangeError(f"tensor {spec.name!r} is missing; wanted all {len(wanted.specs)} of the set {wanted.name!r}")
        array = tensors[spec.name]
        if array.dtype != np.float32:
            raise ExchangeError(f"tensor {spec.name!r} is {array.dtype}; wanted float32")
        if array.shape != spec.shape:
            raise ExchangeError(f"tensor {spec.name!r} has shape {array.shape}; wanted {spec.shape}")
        checked[spec.name] = array
    return checked


def check_tensors(tensors: Mapping[str, np.ndarray[Any, Any]], wanted: TensorSet) -> Tensors:
    """The tensors in the set's order, once every name, shape, dtype and number is as it has to be.

    Raises:
        ExchangeError: what `check_form` refuses, or names the first tensor that is not finite.
    """
    checked = check_form(tensors, wanted)
    for name, array in checked.items():
        if not np.isfinite(array).all():
            raise not_finite(name)
    return checked


def not_finite(name: str) -> ExchangeError:
    """What is said of a tensor that holds something else than numbers."""
    return ExchangeError(f"tensor {name!r} holds NaN or infinity; wanted finite numbers")
