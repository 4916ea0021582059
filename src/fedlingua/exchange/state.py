"""A method's state between rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlingua.backbones.parts import Part
from fedlingua.exchange.tensors import NamedTensors, Tensors

ClusterTensors = Mapping[Part, Mapping[str, NamedTensors]]
"""part -> cluster -> the cluster's tensors"""


@dataclass(frozen=True)
class State:
    """A method's state between rounds, which a checkpoint holds.

    Args:
        tensors: part -> cluster -> its tensors; the arrays are never written to.
        round: the last round that is part of it.
        memory: further named tensors of the method, such as an optimizer's moments; values: all other state, as JSON values.
        residuals: part.cluster -> the part of the changes so far that a code has not yet sent to the sites.
    """

    tensors: ClusterTensors
    round: int = 0
    memory: Tensors = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    residuals: Tensors = field(default_factory=dict)
