"""Which tensors a run trains and sends, read from the backbone's files where possible: loading torch takes seconds."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedlingua.backbones.directories import backbone_directory, check_fits
from fedlingua.backbones.parts import is_adapter_set
from fedlingua.backbones.pruning import thirds
from fedlingua.desk.described import Described, describe
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.settings.config import Settings

_TOLD: dict[str, Callable[[str], bool]] = {"adapters": is_adapter_set, "full": bool}
"""Tensor set that can be described without loading the model -> whether a tensor of this name trains."""


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
    if name not in _TOLD:
        from fedlingua.exchange.trainable import build_trainable

        loaded = build_trainable(settings, computes=False)
        whole = sum(parameter.numel() for parameter in loaded.model.parameters())
        return Outline(backbone, loaded.trained, loaded.tensor_set, whole - backbone.num_parameters)
    sizes = layout.sizes(backbone.config)
    layers_left, width, dim = thirds(sizes, settings.adapter_layers), backbone.config.hidden_size, settings.adapter_dim
    added = {
        f"{stack.path}.{layer}.adapters.{place}.{end}": shape
        for part, stack in layout.stacks.items()
        for layer in (layers_left[part] if name == "adapters" else ())
        for place in stack.places
        for end, shape in {
            "down.weight": (dim, width),
            "down.bias": (dim,),
            "up.weight": (width, dim),
            "up.bias": (width,),
        }.items()
    }
    shapes = {tensor: shape for tensor, shape in {**backbone.shapes, **added}.items() if _TOLD[name](tensor)}
    whole_set = TensorSet(name, tuple(TensorSpec(tensor, shape, *layout.place(tensor)) for tensor, shape in shapes.items()))
    trained = whole_set.where(lambda spec: spec.layer is None or spec.layer in layers_left[spec.part])
    return Outline(backbone, trained, trained, sum(map(math.prod, added.values())))
