"""Which tensors a run trains and sends, read from the backbone's files where possible: loading torch takes seconds."""

from dataclasses import dataclass

from fedlingua.backbones.files import Described
from fedlingua.exchange.tensors import TensorSet


@dataclass(frozen=True)
class Outline:
    """A run's tensor sets. trained, tensor_set: as in `Trainable`. num_added: parameters that the run adds to the backbone."""

    backbone: Described
    trained: TensorSet
    tensor_set: TensorSet
    num_added: int
