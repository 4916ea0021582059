"""A method's state between rounds."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedlingua.backbones.parts import Part
from fedlingua.common.errors import RunError
from fedlingua.exchange.tensors import NamedTensors, Tensors

ClusterTensors = Mapping[Part, Mapping[str, NamedTensors]]
"""part -> cluster -> the cluster's tensors"""
RESERVED = ("residual/", "layer/")
"""Beginnings of the names of what layers store; one of a user's own says `layer/` and its name."""


@dataclass(frozen=True)
class State:
    """A method's state between rounds, which a checkpoint holds.

    Args:
        tensors: part -> cluster -> its tensors; the arrays are never written to.
        round: the last round that is part of it.
        memory: further named tensors of the method, such as an optimizer's moments; values: all other state, as JSON values.
        of_layers: what layers store besides, under names that begin with one of RESERVED.
    """

    tensors: ClusterTensors
    round: int = 0
    memory: Tensors = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    of_layers: Tensors = field(default_factory=dict)


def checked_state(who: str, state: State, before: State) -> State:
    """Return a state as a checkpoint would give it back, with its tensors in float32; raise RunError for any other. who: What made it."""
    if not isinstance(state, State):
        raise RunError(f"{who} gave {type(state).__name__}; wanted a State, as replace(state, tensors=...) makes")
    for kind, named in (("memory", state.memory), ("of_layers", state.of_layers)):
        begins = kind == "of_layers"
        for name, array in named.items():
            if not isinstance(array, np.ndarray):
                raise RunError(f"{who} gave {kind}[{name!r}], which is no array; give it in values, or an array")
            if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                raise RunError(
                    f"{who} gave {kind}[{name!r}] of {array.dtype}; wanted bool, or int, uint or float of at most 64 bits"
                )
            if not isinstance(name, str) or name.startswith(RESERVED) != begins:
                how = f"{'begins' if begins else 'does not begin'} with {' or '.join(map(repr, RESERVED))}"
                raise RunError(f"{who} gave {kind}[{name!r}]; wanted a name that is a str and {how}")
    memory = {name: np.asarray(array, order="C") for name, array in sorted(state.memory.items())}
    try:
        values = json.loads(json.dumps(dict(state.values)))
    except (TypeError, ValueError) as error:
        raise RunError(f"{who} gave values that JSON cannot hold ({error}); give such as float(x)") from error
    tensors: Any = {}
    for part, clusters in before.tensors.items():
        given, wanted = state.tensors.get(part, {}), {name for name, old in clusters.items() if old}
        if (had := {name for name, new in given.items() if new}) != wanted:
            raise RunError(
                f"{who} gave the {part} of {', '.join(sorted(had)) or 'no cluster'}; wanted {', '.join(sorted(wanted))}"
            )
        tensors[part] = {name: _checked_tensors(who, new, clusters[name]) if new else new for name, new in given.items()}
    return replace(state, tensors=tensors, memory=memory, values=values)


def _checked_tensors(who: str, given: NamedTensors, before: NamedTensors) -> NamedTensors:
    if given is before:
        return before
    if not isinstance(given, Mapping):
        raise RunError(f"{who} gave a cluster's tensors as {type(given).__name__}; wanted a dict, name -> float32 array")
    if set(given) != set(before):
        raise RunError(f"{who} gave the tensors {', '.join(map(str, given)) or 'none'}; wanted {', '.join(before)}")
    return {name: checked_numbers(who, name, np.asarray(given[name]), old.shape) for name, old in before.items()}


def checked_numbers(who: str, name: str, given: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return numbers as float32; raise RunError for another shape, or numbers that are not finite."""
    numbers = np.asarray(given, np.float32, order="C")
    if numbers.shape != shape:
        raise RunError(f"{who} gave {name} with shape {numbers.shape}; wanted {shape}")
    if not np.isfinite(numbers).all():
        raise RunError(f"{who} gave {name} with numbers that are not finite")
    return numbers
