"""Which layers of a stack: those of a third, where only a third trains (Liu et al. 2023, §5.3, table 5); those that controllers follow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.parts import Part
from fedlingua.common.errors import BackboneError

if TYPE_CHECKING:  # planning a run needs no torch
    from transformers import PreTrainedModel

THIRDS = ("input-end", "middle", "output-end")


def third(num_layers: int, which: str) -> range:
    """Return the layers (from 0) of a third of a stack, or of "all": third i has round(i L / 3) to round((i + 1) L / 3) - 1.

    12 layers give 4, 4, 4, as in the paper. With fewer than 3 layers a third may be empty.
    """
    if which == "all":
        return range(num_layers)
    number = THIRDS.index(which)
    return range(round(number * num_layers / 3), round((number + 1) * num_layers / 3))


def kept_layers(model: "PreTrainedModel", which: str) -> dict[Part, range]:
    """Return stack -> layers that `adapter.layers = which` chooses; raise BackboneError if a stack would have none."""
    return thirds({part: len(stack.held(model)) for part, stack in layout_of(model).stacks.items()}, which)


def thirds(num_layers: Mapping[Part, int], which: str) -> dict[Part, range]:
    """Return stack -> layers of a third, given each stack's number; raise BackboneError if a stack would have none."""
    chosen = {stack: third(number, which) for stack, number in num_layers.items()}
    for stack, layers in chosen.items():
        if not layers:
            sizes = ", ".join(f"{name} {len(third(num_layers[stack], name))}" for name in THIRDS)
            raise BackboneError(
                f"adapter.layers = {which!r} keeps no layer of the {stack}, which has {num_layers[stack]} ({sizes}); "
                "choose another third, or adapter.layers = 'all'"
            )
    return chosen


def controller_places(num_layers: int, num_controllers: int) -> list[int]:
    """Return the number of layers before each controller: round((i + 1) L / N), halves up, and at least 1.

    4 in a stack of 12 come after the 3rd, 6th, 9th and 12th layer; 4 in a stack of 2 after the 1st, 1st, 2nd and 2nd.
    """
    evenly = ((2 * (i + 1) * num_layers + num_controllers) // (2 * num_controllers) for i in range(num_controllers))
    return [max(1, place) for place in evenly]
