"""Pruning: only a third of each stack's layers is adapted (Liu et al. 2023, §5.3, table 5)."""

from typing import Any

from transformers import PreTrainedModel

from fedlingua.errors import BackboneError

STACKS = ("encoder", "decoder")
THIRDS = ("input-end", "middle", "output-end")


def third(num_layers: int, which: str) -> range:
    """Layers (from 0) of one third of a stack, or of "all": the third i holds round(i L / 3) up to round((i + 1) L / 3) - 1.

    12 layers make 4, 4, 4, as in the paper. Of fewer than 3 layers a third may be empty.
    """
    if which == "all":
        return range(num_layers)
    number = THIRDS.index(which)
    return range(round(number * num_layers / 3), round((number + 1) * num_layers / 3))


def kept_layers(model: PreTrainedModel, which: str) -> dict[str, range]:
    """Stack -> its layers that `adapter-layers = which` keeps.

    Raises:
        BackboneError: a stack of which nothing is left.
    """
    kept = {}
    for stack in STACKS:
        layers: Any = model.get_submodule(f"model.{stack}.layers")
        kept[stack] = third(len(layers), which)
        if not kept[stack]:
            sizes = ", ".join(f"{name} {len(third(len(layers), name))}" for name in THIRDS)
            raise BackboneError(
                f"adapter-layers = {which!r} keeps no layer of the {stack}, which has {len(layers)} ({sizes}); "
                "choose another third, or adapter-layers = 'all'"
            )
    return kept
