"""Which tensors a run trains and sends, read from the backbone's files where possible: loading torch takes seconds."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedlingua.backbones.directories import backbone_directory, check_fits
from fedlingua.backbones.parts import Part, is_adapter_set
from fedlingua.backbones.pruning import controller_places, thirds
from fedlingua.desk.described import Described, describe
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.settings.config import Settings

_Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Outline:
    """A run's tensor sets. trained, tensor_set: as in `Trainable`. num_added: parameters that the run adds to the backbone."""

    backbone: Described
    trained: TensorSet
    tensor_set: TensorSet
    num_added: int


def outline_of(settings: Settings) -> Outline:
    """Return the outline of the tensors that the run's method trains; raise BackboneError in the cases of `build_trainable`."""
    drawn = settings.seed if settings.backbone_weights == "random" else None
    backbone = describe(backbone_directory(settings.backbone, settings.backbone_revision), settings.backbone, drawn)
    check_fits(backbone.config, settings)
    name, layout = settings.trained_set, backbone.layout
    layers_left = thirds(layout.sizes(backbone.config), settings.adapter_layers)
    added = ADDED[name](settings, backbone, layers_left)
    if added is None:
        from fedlingua.exchange.trainable import build_trainable

        loaded = build_trainable(settings, computes=False)
        whole = sum(parameter.numel() for parameter in loaded.model.parameters())
        return Outline(backbone, loaded.trained, loaded.tensor_set, whole - backbone.num_parameters)
    trains = is_adapter_set if name == "adapters" else added.__contains__ if name == "lora" else bool
    shapes = {tensor: shape for tensor, shape in {**backbone.shapes, **added}.items() if trains(tensor)}
    whole_set = TensorSet(name, tuple(TensorSpec(tensor, shape, *layout.place(tensor)) for tensor, shape in shapes.items()))
    trained = whole_set.where(lambda spec: spec.layer is None or spec.layer in layers_left[spec.part])
    travels = trained.where(lambda spec: spec.name in added) if name == "controllers" else trained
    return Outline(backbone, trained, travels, sum(map(math.prod, added.values())))


def _bottlenecks(settings: Settings, backbone: Described, layers_left: Mapping[Part, range]) -> _Shapes:
    width, dim = backbone.config.hidden_size, settings.adapter_dim
    ends = {"down.weight": (dim, width), "down.bias": (dim,), "up.weight": (width, dim), "up.bias": (width,)}
    return {
        f"{stack.path}.{layer}.adapters.{place}.{end}": shape
        for part, stack in backbone.layout.stacks.items()
        for layer in layers_left[part]
        for place in stack.places
        for end, shape in ends.items()
    }


def _low_rank(settings: Settings, backbone: Described, layers_left: Mapping[Part, range]) -> _Shapes | None:
    """None: a target is called otherwise in this model, or the model lacks it, which only the loaded one tells."""
    linear = {
        name.removesuffix(".weight"): shape
        for name, shape in backbone.shapes.items()
        if name.endswith(".weight") and len(shape) == 2
    }
    ends = [f".{end.strip()}" for end in settings.lora_targets.split(",")]
    if not all(any(name.endswith(end) for name in linear) for end in ends):
        return None
    added: _Shapes = {}
    for name, (width_out, width_in) in linear.items():
        part, layer = backbone.layout.place(name)
        if layer is not None and part != "shared" and layer in layers_left[part] and name.endswith(tuple(ends)):
            added[f"{name}.lora_A.default.weight"] = (settings.lora_rank, width_in)
            added[f"{name}.lora_B.default.weight"] = (width_out, settings.lora_rank)
    return added


def _controllers(settings: Settings, backbone: Described, layers_left: Mapping[Part, range]) -> _Shapes | None:
    if backbone.config.model_type not in ("m2m_100", "mbart"):
        return None
    added: _Shapes = {}
    sizes = backbone.layout.sizes(backbone.config)
    for part, stack in backbone.layout.stacks.items():
        for place, following in Counter(controller_places(sizes[part], settings.controllers)).items():
            layer = f"{stack.path}.{place - 1}."
            of_layer = {name.removeprefix(layer): shape for name, shape in backbone.shapes.items() if name.startswith(layer)}
            added |= {
                f"{layer}controllers.{number}.{end}": shape for number in range(following) for end, shape in of_layer.items()
            }
    return added


ADDED: dict[str, Callable[[Settings, Described, Mapping[Part, range]], _Shapes | None]] = {
    "adapters": _bottlenecks,
    "full": lambda settings, backbone, layers_left: {},
    "lora": _low_rank,
    "controllers": _controllers,
}
"""Tensor set -> the tensors that it adds to the backbone's; None if only the loaded model tells them."""
