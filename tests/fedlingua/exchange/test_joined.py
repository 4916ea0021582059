"""A part on the wire: its tensors end to end, in the set's order, and the same bits when they are taken apart."""

import numpy as np
import pytest

from fedlingua.errors import ExchangeError
from fedlingua.exchange.joined import join, joined_set, separate
from fedlingua.exchange.records import from_record, pack, unpack
from fedlingua.exchange.tensor_sets import TensorSet, TensorSpec

# The order of the set mixes the parts, as a model's does where an embedding stands first.
CHOSEN = TensorSet(
    "toy",
    (
        TensorSpec("d.w", (2, 2), "decoder", 0),
        TensorSpec("e.w", (1, 3), "encoder", 0),
        TensorSpec("e.b", (2,), "encoder", None),
    ),
)
TENSORS = {
    "e.b": np.array([7, -0.0], np.float32),
    "d.w": np.array([[1, 2], [3, 4]], np.float32).T,  # not contiguous
    "e.w": np.array([[0.1, 1e-45, 3e38]], np.float32),
}


def test_a_part_is_its_tensors_end_to_end() -> None:
    joined = join(TENSORS, CHOSEN)
    assert list(joined) == ["encoder", "decoder"]  # no shared tensor, no shared array
    assert joined["encoder"].tolist() == [*TENSORS["e.w"].ravel().tolist(), 7, 0]
    assert joined["decoder"].tolist() == [1, 3, 2, 4]
    assert [(spec.name, spec.shape) for spec in joined_set(CHOSEN).specs] == [("encoder", (5,)), ("decoder", (4,))]


def test_what_was_packed_is_unpacked_bit_for_bit_in_the_sets_order() -> None:
    back = unpack(pack(TENSORS, CHOSEN), CHOSEN)
    assert list(back) == CHOSEN.names
    assert {name: (a.shape, a.tobytes()) for name, a in back.items()} == {n: (a.shape, a.tobytes()) for n, a in TENSORS.items()}
    assert list(from_record(pack({}, CHOSEN))) == []
    assert separate(join(TENSORS, CHOSEN), CHOSEN).keys() == back.keys()


def test_a_part_of_another_size_is_refused_by_name() -> None:
    smaller = TensorSet("toy", CHOSEN.specs[:2])
    with pytest.raises(ExchangeError, match=r"tensor 'encoder' has shape \(3,\); wanted \(5,\)"):
        unpack(pack(TENSORS, smaller), CHOSEN)
