"""A part on the wire: its tensors end to end, in the set's order, and the same bits when they are taken apart."""

from typing import Any

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import Joined, Some, flat, join, joined_set, runs
from fedlingua.exchange.records import from_record, pack, unpack
from fedlingua.exchange.tensors import TensorSet, TensorSpec

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
    assert Joined(join(TENSORS, CHOSEN), CHOSEN).keys() == back.keys()


def test_a_part_of_another_size_is_refused_by_name() -> None:
    smaller = TensorSet("toy", CHOSEN.specs[:2])
    with pytest.raises(ExchangeError, match=r"tensor 'encoder' has shape \(3,\); wanted \(5,\)"):
        unpack(pack(TENSORS, smaller), CHOSEN)


def test_taken_apart_and_joined_again_nothing_is_copied() -> None:
    joined = join(TENSORS, CHOSEN)
    again = runs(dict(Joined(joined, CHOSEN)), CHOSEN)
    assert {part: np.concatenate(pieces).tolist() for part, pieces in again.items()} == {p: joined[p].tolist() for p in joined}
    assert all(np.shares_memory(piece, joined[part]) for part in joined for piece in again[part])
    assert runs({}, CHOSEN) == {}


def test_a_joined_set_gives_its_tensors_by_name_and_by_part() -> None:
    tensors = Joined(join(TENSORS, CHOSEN), CHOSEN)
    assert list(tensors) == CHOSEN.names
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {n: TENSORS[n].tolist() for n in CHOSEN.names}
    assert list(tensors.of_part("encoder")) == ["e.w", "e.b"]
    assert tensors.of_part("encoder")["e.b"].tolist() == [7, 0]
    assert list(tensors.of_part("shared")) == []
    with pytest.raises(KeyError):
        tensors["shared"]


def test_some_of_the_tensors_are_looked_up_and_read_only_when_asked_for() -> None:
    class Unread(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise AssertionError(f"{name} was read")

    some = Some(Unread(x=1, y=2, z=3), ["z", "x"])
    assert (list(some), len(some), "y" in some, "x" in some) == (["z", "x"], 2, False, True)
    with pytest.raises(KeyError):
        some["y"]
    with pytest.raises(AssertionError, match="x was read"):
        some["x"]


def test_a_tensor_of_a_part_is_read_by_the_stretch() -> None:
    joined = Joined(join(TENSORS, CHOSEN), CHOSEN)
    for name, tensor in TENSORS.items():
        for one in (joined.flat(name), flat(TENSORS, name)):
            assert len(one) == tensor.size
            assert one[0:9].tobytes() == np.ravel(tensor).tobytes()
            assert one[1:2].tobytes() == np.ravel(tensor)[1:2].tobytes()
            assert len(one[2:1]) == 0
