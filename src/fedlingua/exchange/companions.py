"""What travels beside the tensors of a model and is averaged as they are: a site's Adam, or SCAFFOLD's controls.

The companion WHAT of a tensor is called NAME/WHAT, and belongs to its part and layer. All are 0 before the first round.
"""

from collections.abc import Sequence

from fedlingua.exchange.tensors import NamedTensors, TensorSet, TensorSpec


def with_companions(travels: TensorSet, suffixes: Sequence[str]) -> TensorSet:
    """The set with a companion under each suffix beside every tensor, of its shape; a count of steps is one number."""
    beside = [
        TensorSpec(f"{spec.name}/{suffix}", (1,) if suffix == "step" else spec.shape, spec.part, spec.layer)
        for spec in travels.specs
        for suffix in suffixes
    ]
    return TensorSet(travels.name, (*travels.specs, *beside))


def without_companions(travels: TensorSet) -> TensorSet:
    """The set's parameters of the model alone."""
    specs = tuple(spec for spec in travels.specs if not is_companion(spec.name))
    return travels if len(specs) == len(travels.specs) else TensorSet(travels.name, specs)


def is_companion(name: str) -> bool:
    """Whether a tensor of this name is no parameter of a model."""
    return "/" in name


def of_the_model(tensors: NamedTensors) -> NamedTensors:
    """The tensors without companions."""
    return {name: tensors[name] for name in tensors if not is_companion(name)} if any(map(is_companion, tensors)) else tensors
