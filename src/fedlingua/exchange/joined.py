"""On the wire a part's tensors are one array: encoder, decoder and shared, each laid end to end in the order of the tensor set.

Both sides know names, shapes and order (their fingerprints agree before anything travels), so a name a tensor would be 490 bytes and
two requests for nothing; and what a cluster's sites get alike is one object, which the SuperLink takes and keeps once.
"""

import numpy as np

from fedlingua.exchange.tensor_sets import Tensors, TensorSet, TensorSpec
from fedlingua.parts import PARTS


def joined_set(chosen: TensorSet) -> TensorSet:
    """The set as it travels: one flat tensor for each part that has any."""
    sizes = {part: sum(_size(spec) for spec in chosen.of_part(part)) for part in PARTS}
    return TensorSet(chosen.name, tuple(TensorSpec(part, (size,), part, None) for part, size in sizes.items() if size))


def join(tensors: Tensors, chosen: TensorSet) -> Tensors:
    """part -> its tensors as one flat array; nothing of nothing."""
    if not tensors:
        return {}
    return {
        whole.name: np.concatenate([np.ravel(tensors[spec.name]) for spec in chosen.of_part(whole.part)])
        for whole in joined_set(chosen).specs
    }


def separate(joined: Tensors, chosen: TensorSet) -> Tensors:
    """The named tensors again, in the set's order, as views of the flat ones, whose sizes have been checked."""
    offsets = dict.fromkeys(PARTS, 0)
    tensors: Tensors = {}
    for spec in chosen.specs:
        first, last = offsets[spec.part], offsets[spec.part] + _size(spec)
        tensors[spec.name] = joined[spec.part][first:last].reshape(spec.shape)
        offsets[spec.part] = last
    return tensors


def _size(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape))
