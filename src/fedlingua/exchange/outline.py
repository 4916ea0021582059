"""What a run trains and sends of a backbone, as its files tell: what `build_trainable` has, without torch, which takes seconds to load.

What each tensor set adds to a model stands here once more, as names and shapes; a test holds the two to each other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fedlingua.backbones.directories import backbone_directory, check_fits
from fedlingua.backbones.files import Described, describe
from fedlingua.backbones.names import chosen_linear, controlled, is_adapter_set, is_norm, rescaled, second_of
from fedlingua.backbones.pruning import private_layers, thirds
from fedlingua.exchange.companions import with_companions
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.settings.config import Settings

Shape = tuple[int, ...]
_OF_THE_BACKBONE = {"adapters": is_adapter_set, "norms": is_norm, "full": bool, "controllers": bool}
"""Tensor set -> which of the backbone's own tensors train; of others none."""


@dataclass(frozen=True)
class Outline:
    """backbone: as published. trained, tensor_set: as `Trainable` has them. num_added: numbers that stand in the model besides."""

    backbone: Described
    trained: TensorSet
    tensor_set: TensorSet
    num_added: int


def outline_of(settings: Settings) -> Outline:
    """Read the run's backbone, and work out what the run's method trains of it.

    Raises:
        BackboneError: as `build_trainable`, but for a weight whose rank is below `lora.rank`.
    """
    drawn = settings.seed if settings.backbone_weights == "random" else None
    backbone = describe(backbone_directory(settings.backbone, settings.backbone_revision), settings.backbone, drawn)
    check_fits(backbone.config, settings)
    name, layout = settings.trained_set, backbone.layout
    sizes = layout.sizes(backbone.config)
    kept, added = thirds(sizes, settings.adapter_layers), dict(_added(backbone, settings))
    own = _OF_THE_BACKBONE.get(name, lambda tensor: False)
    shapes = {tensor: shape for tensor, shape in backbone.shapes.items() if own(tensor)}
    shapes |= {tensor: shape for tensor, shape in added.items() if ".beside." not in tensor or ".gate." in tensor}
    specs = [TensorSpec(tensor, shape, *layout.place(tensor)) for tensor, shape in shapes.items()]
    trained = TensorSet(name, tuple(spec for spec in specs if spec.layer is None or spec.layer in kept[spec.part]))
    private = private_layers(sizes, settings.private_layers)
    travels = [spec for spec in trained.specs if ".gate." not in spec.name and spec.layer not in private.get(spec.part, ())]
    sent = TensorSet(name, tuple(spec for spec in travels if name != "controllers" or spec.name in added))
    return Outline(backbone, trained, with_companions(sent, settings.companions), sum(map(math.prod, added.values())))


def _added(backbone: Described, settings: Settings) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every parameter that the run's tensor set puts into the model."""
    layout, name, shapes = backbone.layout, settings.trained_set, backbone.shapes
    sizes, width, beside = layout.sizes(backbone.config), backbone.config.hidden_size, settings.own_model == "shared-private"
    weights = {tensor.removesuffix(".weight"): shape for tensor, shape in shapes.items() if tensor.endswith(".weight")}
    linear = {module: shape for module, shape in weights.items() if len(shape) == 2}
    if name in ("lora", "lora-sb"):
        for module in chosen_linear(linear, layout, sizes, settings.lora_targets, settings.adapter_layers):
            d_out, d_in = linear[module]
            if name == "lora":
                ends = ("lora_A.default", "lora_B.default")
                yield from _low_rank(module, ends, (d_in, settings.lora_rank, d_out), False, beside)
            else:
                yield f"{module}.lora_B.default.core", (settings.lora_rank, settings.lora_rank)
    if name == "ia3":
        for module in rescaled(linear, layout, sizes, settings.adapter_layers):
            d_out, d_in = linear[module]
            yield f"{module}.ia3_l.default", (1, d_in) if second_of([module]) else (d_out, 1)
    for part, stack in layout.stacks.items():
        for layer in thirds(sizes, settings.adapter_layers)[part] if name == "adapters" else ():
            for place in stack.places:
                at = f"{stack.path}.{layer}.adapters.{place}"
                yield from _low_rank(at, ("down", "up"), (width, settings.adapter_dim, width), True, beside)
        for layer, number in controlled(sizes[part], settings.controllers).items() if name == "controllers" else ():
            own = f"{stack.path}.{layer}."
            copied = [(tensor.removeprefix(own), shape) for tensor, shape in shapes.items() if tensor.startswith(own)]
            yield from ((f"{own}controllers.{i}.{rest}", shape) for i in range(number) for rest, shape in copied)


def _low_rank(
    at: str, ends: tuple[str, str], widths: tuple[int, int, int], biases: bool, beside: bool
) -> Iterator[tuple[str, Shape]]:
    """Two projections, of (from, over, to) so many numbers, and where `beside` the rest of the world's with the gate."""
    d_in, rank, d_out = widths
    for first, last in (ends, ("beside.first", "beside.last"))[: 2 if beside else 1]:
        for end, shape in ((first, (rank, d_in)), (last, (d_out, rank))):
            yield f"{at}.{end}.weight", shape
            if biases:
                yield f"{at}.{end}.bias", shape[:1]
    if beside:
        yield f"{at}.beside.gate.weight", (2, d_in)
        yield f"{at}.beside.gate.bias", (2,)
