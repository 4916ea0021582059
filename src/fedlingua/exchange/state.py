"""A method's state between rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlingua.backbones.parts import Part
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
