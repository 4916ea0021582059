"""Pruning: only a third of each stack's layers is adapted (Liu et al. 2023, §5.3, table 5)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.parts import Part
from fedlingua.common.errors import BackboneError

if TYPE_CHECKING:  # what is planned needs no torch
    from transformers import PreTrainedModel

THIRDS = ("input-end", "middle", "output-end")


def third(num_layers: int, which: str) -> range:
    """Layers (from 0) of one third of a stack, or of "all": the third i holds round(i L / 3) up to round((i + 1) L / 3) - 1.

    12 layers make 4, 4, 4, as in the paper. Of fewer than 3 layers a third may be empty.
    """
    if which == "all":
        return range(num_layers)
    number = THIRDS.index(which)
    return range(round(number * num_layers / 3), round((number + 1) * num_layers / 3))


def private_layers(sizes: Mapping[Part, int], names: str) -> dict[Part, set[int]]:
    """Stack -> layers that `private-layers` names: part.layer, negative ones from the end, or part.third, with commas.

    sizes: layers of each stack.

    Raises:
        BackboneError: a stack or a layer that the model has not.
    """
    private: dict[Part, set[int]] = {part: set() for part in sizes}
    for name in filter(None, (name.strip() for name in names.split(","))):
        part, _, which = name.partition(".")
        size = {str(stack): number for stack, number in sizes.items()}.get(part, 0)
        layers = third(size, which) if which in THIRDS else range(size)[int(which) :][:1] if -size <= int(which) < size else ()
        if not layers:
            has = ", ".join(f"{stack} {number}" for stack, number in sizes.items())
            raise BackboneError(f"private-layers = {names!r}: {name!r} names no layer; the backbone's stacks have {has} layers")
        private[part] |= set(layers)  # type: ignore[index]
    return private


def kept_layers(model: "PreTrainedModel", which: str) -> dict[Part, range]:
    """Stack -> its layers that `adapter.layers = which` keeps; BackboneError where nothing is left of one."""
    return thirds({part: len(stack.held(model)) for part, stack in layout_of(model).stacks.items()}, which)


def thirds(num_layers: Mapping[Part, int], which: str) -> dict[Part, range]:
    """Stack -> the layers of a third, of a model with so many in each stack; BackboneError where nothing is left of one."""
    chosen = {stack: third(number, which) for stack, number in num_layers.items()}
    for stack, layers in chosen.items():
        if not layers:
            sizes = ", ".join(f"{name} {len(third(num_layers[stack], name))}" for name in THIRDS)
            raise BackboneError(
                f"adapter.layers = {which!r} keeps no layer of the {stack}, which has {num_layers[stack]} ({sizes}); "
                "choose another third, or adapter.layers = 'all'"
            )
    return chosen
