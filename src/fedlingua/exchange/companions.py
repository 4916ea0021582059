"""Companion tensors: Adam's state or SCAFFOLD's controls, which travel beside a model's tensors and are averaged like them.

The companion WHAT of tensor NAME is called NAME/WHAT and has the same part and layer. All are 0 before the first round.
"""

from collections.abc import Sequence

from fedlingua.exchange.tensors import NamedTensors, TensorSet, TensorSpec


def with_companions(travels: TensorSet, suffixes: Sequence[str]) -> TensorSet:
    """Add a companion for each suffix to every tensor of the set, of the tensor's shape; the companion "step" has shape (1,)."""
    beside = [
        TensorSpec(f"{spec.name}/{suffix}", (1,) if suffix == "step" else spec.shape, spec.part, spec.layer)
        for spec in travels.specs
        for suffix in suffixes
    ]
    return TensorSet(travels.name, (*travels.specs, *beside))


def without_companions(travels: TensorSet) -> TensorSet:
    """Return the set without its companions: the model's own parameters."""
    return travels.where(lambda spec: not is_companion(spec.name))


def is_companion(name: str) -> bool:
    """Return whether the name is that of a companion, not of a model's parameter."""
    return "/" in name


def of_the_model(tensors: NamedTensors) -> NamedTensors:
    """Return the tensors without companions."""
    return {name: tensors[name] for name in tensors if not is_companion(name)} if any(map(is_companion, tensors)) else tensors
