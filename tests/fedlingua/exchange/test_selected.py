"""A selection on the wire, bit by bit, and what is not one."""

import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import join, runs
from fedlingua.exchange.records import from_record, to_record
from fedlingua.exchange.selected import Selection, everything, pack_selected, unpack_selected
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from tests.selected import counted, mask_of

Array = np.ndarray[Any, Any]

# The order of the set mixes the parts, as a model's does where an embedding stands first.
CHOSEN = TensorSet(
    "toy",
    (
        TensorSpec("d.w", (2, 2), "decoder", 0),
        TensorSpec("e.w", (1, 3), "encoder", 0),
        TensorSpec("e.b", (2,), "encoder", None),
    ),
)
NEW = {
    "e.b": np.array([7, -0.0], np.float32),
    "d.w": np.array([[1, 2], [3, 4]], np.float32).T,  # 1 3 2 4, not contiguous
    "e.w": np.array([[5, 6, 1e-45]], np.float32),
}
PREVIOUS = {name: np.full(tensor.shape, 100 + place, np.float32) for place, (name, tensor) in enumerate(NEW.items())}
SENT = runs(PREVIOUS, CHOSEN)


def by_tensor(*sent: bool) -> Selection:
    return Selection(CHOSEN, tensors=np.array(sent))


def by_number(encoder: str, decoder: str) -> Selection:
    masks = {part: np.array([bit == "1" for bit in bits]) for part, bits in (("encoder", encoder), ("decoder", decoder))}
    return Selection(CHOSEN, numbers=masks)


def listed(arrays: Mapping[str, Array]) -> dict[str, list[float]]:
    return {name: array.tolist() for name, array in arrays.items()}


def one_part(size: int) -> TensorSet:
    return TensorSet("toy", (TensorSpec("w", (size,), "shared", None),))


def test_some_tensors_travel_end_to_end_with_a_bit_a_tensor() -> None:
    """The bits go by the set's order, d.w first: 1 0 1 -> 10100000."""
    packed = pack_selected(NEW, by_tensor(True, False, True))
    assert listed(packed) == {"encoder": [7, 0], "decoder": [1, 3, 2, 4], "mask": [0b10100000]}
    assert [str(array.dtype) for array in packed.values()] == ["float32", "float32", "uint8"]


def test_a_part_that_sends_nothing_is_no_array() -> None:
    assert listed(pack_selected(NEW, by_tensor(False, True, False))) == {
        "encoder": [5, 6, NEW["e.w"][0, 2]],
        "mask": [0b01000000],
    }
    assert listed(pack_selected(NEW, by_tensor(False, False, False))) == {"mask": [0]}


def test_everything_travels_without_a_mask() -> None:
    for selection in (everything(CHOSEN), by_tensor(True, True, True), by_number("11111", "1111")):
        packed = pack_selected(NEW, selection)
        assert listed(packed) == listed(join(NEW, CHOSEN))
        assert unpack_selected(packed, CHOSEN, SENT)[1].is_everything


def test_some_numbers_travel_with_a_bit_a_number_in_joined_order() -> None:
    packed = pack_selected(NEW, by_number("01010", "1001"))
    assert listed(packed) == {"encoder": [6, 7], "mask.encoder": [0b01010000], "decoder": [1, 4], "mask.decoder": [0b10010000]}
    whole = pack_selected(NEW, by_number("11111", "0010"))
    assert listed(whole) == listed({"encoder": join(NEW, CHOSEN)["encoder"]}) | {"decoder": [2], "mask.decoder": [0b00100000]}


def test_the_smaller_of_bits_and_indices_travels() -> None:
    """96 numbers are 12 bytes of bits: two indices are 8 bytes, three are 12 and no smaller."""
    tensors, chosen = {"w": np.arange(96, dtype=np.float32)}, one_part(96)
    mask = np.zeros(96, np.bool_)
    mask[[3, 95]] = True
    packed = pack_selected(tensors, Selection(chosen, numbers={"shared": mask}))
    assert listed(packed) == {"shared": [3, 95], "indices.shared": [3, 95]}
    assert packed["indices.shared"].dtype == np.uint32
    assert counted(packed) == {"payload": 8, "mask": 0, "indices": 8}
    mask[40] = True
    packed = pack_selected(tensors, Selection(chosen, numbers={"shared": mask}))
    assert list(packed) == ["shared", "mask.shared"]
    assert counted(packed) == {"payload": 12, "mask": 12, "indices": 0}


def test_bytes_are_counted_by_what_they_are_for() -> None:
    assert counted(pack_selected(NEW, by_tensor(True, False, True))) == {"payload": 24, "mask": 1, "indices": 0}
    assert counted(pack_selected(NEW, everything(CHOSEN))) == {"payload": 36, "mask": 0, "indices": 0}
    assert counted(pack_selected(NEW, by_number("00000", "1111"))) == {"payload": 16, "mask": 0, "indices": 0}


def test_shares_count_tensors_and_numbers() -> None:
    some = by_tensor(True, False, True)
    assert (some.share_of_tensors, some.share_of_numbers) == (2 / 3, 6 / 9)
    few = by_number("00010", "1000")  # one number of e.b, one of d.w
    assert (few.share_of_tensors, few.share_of_numbers) == (2 / 3, 2 / 9)
    assert (everything(CHOSEN).share_of_tensors, everything(CHOSEN).share_of_numbers) == (1, 1)
    for selection, all_sent, none_sent in (
        (some, False, False),
        (few, False, False),
        (everything(CHOSEN), True, False),
        (by_number("11111", "1111"), True, False),
        (by_number("11111", "1110"), False, False),
        (by_tensor(False, False, False), False, True),
        (by_number("00000", "0000"), False, True),
    ):
        assert (selection.is_everything, selection.share_of_numbers == 0) == (all_sent, none_sent)
    assert mask_of(some, "encoder").tolist() == [False, False, False, True, True]
    assert (some.count("encoder"), some.count("decoder"), few.count("encoder")) == (2, 4, 1)


@pytest.mark.parametrize(
    "selection",
    [
        by_tensor(True, False, True),
        by_tensor(False, True, False),
        by_tensor(False, False, True),
        by_tensor(True, True, True),
        by_tensor(False, False, False),
        by_number("01010", "1001"),
        by_number("11111", "0010"),
        by_number("00000", "1111"),
        by_number("00000", "0000"),
        by_number("11111", "1111"),
    ],
)
@pytest.mark.parametrize("start", ["in pieces", "in one"])
def test_the_server_rebuilds_the_update_from_the_wire_alone(selection: Selection, start: str) -> None:
    """What was sent is the site's bit for bit; a number that was not counts as the site received it."""
    wire = from_record(to_record(pack_selected(NEW, selection)))
    sent = SENT if start == "in pieces" else {part: [flat] for part, flat in join(PREVIOUS, CHOSEN).items()}
    before = {part: [piece.copy() for piece in pieces] for part, pieces in sent.items()}
    update, found = unpack_selected(wire, CHOSEN, sent)
    ours, theirs = join(NEW, CHOSEN), join(PREVIOUS, CHOSEN)
    for part in ours:
        wanted = np.where(mask_of(selection, part), ours[part], theirs[part])
        assert np.asarray(update.parts[part][:]).tobytes() == wanted.tobytes()
        assert mask_of(found, part).tolist() == mask_of(selection, part).tolist()
        assert all((now == then).all() for now, then in zip(sent[part], before[part], strict=True))
    assert [update[spec.name].shape for spec in CHOSEN.specs] == [spec.shape for spec in CHOSEN.specs]
    assert found.share_of_numbers == selection.share_of_numbers


def test_long_arrays_cost_one_copy_and_their_masks() -> None:
    """The model is 8 MB in two pieces. Packing makes what it sends; unpacking makes the update, and a byte a number for the mask."""
    size = 2**20
    chosen = TensorSet("toy", tuple(TensorSpec(name, (size,), "encoder", None) for name in ("a", "b")))
    tensors = {name: np.ones(size, np.float32) for name in chosen.names}
    mask = np.arange(2 * size) % 8 > 0
    selection = Selection(chosen, numbers={"encoder": mask})
    tracemalloc.start()
    packed = pack_selected(tensors, selection)
    assert tracemalloc.get_traced_memory()[1] < 1.1 * 8 * size
    tracemalloc.reset_peak()
    held = tracemalloc.get_traced_memory()[0]
    unpack_selected(packed, chosen, runs(tensors, chosen))
    assert tracemalloc.get_traced_memory()[1] - held < 1.3 * 8 * size
    tracemalloc.stop()


def wire(**arrays: Array | list[float]) -> dict[str, Array]:
    """Named arrays; `_` for the dot, lists as float32."""
    return {
        name.replace("_", "."): array if isinstance(array, np.ndarray) else np.array(array, np.float32)
        for name, array in arrays.items()
    }


def bits(*numbers: int) -> Array:
    return np.array(numbers, np.uint8)


def places(*numbers: int) -> Array:
    return np.array(numbers, np.uint32)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (wire(), r"'encoder' is missing; wanted 5 numbers"),
        (wire(encoder=[1] * 5), r"'decoder' is missing; wanted 4 numbers"),
        (wire(encoder=[1] * 5, decoder=[1] * 4, shared=[1]), r"got an array 'shared'; wanted encoder, decoder, mask, indices"),
        (wire(encoder=[1] * 5, decoder=[1] * 4, mask_shared=bits(0)), r"got an array 'mask.shared'"),
        (wire(encoder=[1] * 5, decoder=[1] * 5), r"'decoder' has 5 numbers; wanted 4"),
        (wire(encoder=np.ones(5), decoder=[1] * 4), r"'encoder' is float64; wanted float32"),
        (wire(encoder=np.ones(5, ">f4"), decoder=[1] * 4), r"'encoder' is >f4; wanted float32"),
        (wire(encoder=np.ones((5, 1), np.float32), decoder=[1] * 4), r"'encoder' has shape \(5, 1\); wanted one dimension"),
        (wire(decoder=[1] * 4, mask=bits(0b11000000)), r"'encoder' is missing; wanted 3 numbers"),
        (wire(encoder=[1] * 4, decoder=[1] * 4, mask=bits(0b11000000)), r"'encoder' has 4 numbers; wanted 3"),
        (wire(encoder=[1], decoder=[1] * 4, mask=bits(0b10000000)), r"'encoder' has 1 numbers; wanted no array"),
        (wire(encoder=[], decoder=[1] * 4, mask=bits(0b10000000)), r"'encoder' has 0 numbers; wanted no array"),
        (wire(decoder=[1] * 4, mask=bits(0b10010000)), r"'mask' has bits set past its end; wanted 3 bits"),
        (wire(decoder=[1] * 4, mask=bits(0b10000000, 0)), r"'mask' has 2 bytes; wanted 1, for 3 bits"),
        (wire(decoder=[1] * 4, mask=bits()), r"'mask' has 0 bytes; wanted 1"),
        (wire(decoder=[1] * 4, mask=np.array([True, False, False])), r"'mask' is bool; wanted uint8"),
        (wire(decoder=[1] * 4, mask=bits(128).reshape(1, 1)), r"'mask' has shape \(1, 1\)"),
        (wire(decoder=[1] * 4, mask=bits(128), mask_encoder=bits(0)), r"got 'mask' beside 'mask.encoder'"),
        (wire(decoder=[1] * 4, mask=bits(128), indices_encoder=places()), r"got 'mask' beside 'indices.encoder'"),
        (wire(decoder=[1] * 4, mask_encoder=bits(0), indices_encoder=places()), r"got 'mask.encoder' beside 'indices.encoder'"),
        (wire(mask_encoder=bits(0)), r"'decoder' is missing; wanted 4 numbers"),
        (wire(encoder=[1], decoder=[1] * 4, mask_encoder=bits(0b11000000)), r"'encoder' has 1 numbers; wanted 2"),
        (wire(encoder=[1], decoder=[1] * 4, mask_encoder=bits(0b10000001)), r"'mask.encoder' has bits set past its end"),
        (wire(encoder=[1, 2], decoder=[1] * 4, indices_encoder=places(2, 2)), r"'indices.encoder' does not ascend"),
        (wire(encoder=[1, 2], decoder=[1] * 4, indices_encoder=places(2, 1)), r"'indices.encoder' does not ascend"),
        (
            wire(encoder=[1, 2], decoder=[1] * 4, indices_encoder=places(0, 5)),
            r"'indices.encoder' has a place 5; wanted less than 5",
        ),
        (wire(encoder=[1, 2], decoder=[1] * 4, indices_encoder=places(0)), r"'encoder' has 2 numbers; wanted 1"),
        (
            wire(encoder=[1], decoder=[1] * 4, indices_encoder=places(0).astype(np.int64)),
            r"'indices.encoder' is int64; wanted uint32",
        ),
    ],
)
def test_what_is_no_packed_selection_is_refused_by_name(arrays: dict[str, Array], told: str) -> None:
    with pytest.raises(ExchangeError, match=told):
        unpack_selected(arrays, CHOSEN, SENT)
