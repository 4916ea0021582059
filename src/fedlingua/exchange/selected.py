"""Which part of a tensor set is sent, and its form on the wire: numbers end to end as in `exchange.joined`, and their masks.

    everything        one float32 array a part
    some tensors      one float32 array for each part that sends any; `mask`: one bit a tensor, in the set's order
    some numbers      the same; for each part that does not send all, whichever is smaller: `mask.<part>`, one bit a number in joined
                      order, or `indices.<part>`, ascending uint32

Bits are packed as `np.packbits` does, the last byte filled up with zeros.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import Joined, Numbers, cuts, join, joined_set, runs
from fedlingua.exchange.tensors import Tensors, TensorSet

MASK, INDICES = "mask", "indices"


@dataclass(frozen=True, eq=False)
class Selection:
    """The tensors of a set that are sent, or its single numbers that are sent; exactly one of the two is given.

    tensors: (n_tensors,) bool, in the set's order. numbers: part -> (its numbers,) bool, in joined order, for each part that has any.
    """

    chosen: TensorSet
    tensors: Numbers | None = None
    numbers: Mapping[str, Numbers] | None = None

    def __post_init__(self) -> None:
        assert (self.tensors is None) != (self.numbers is None)
        if self.tensors is not None:
            assert (self.tensors.dtype, self.tensors.shape) == (np.bool_, (len(self.chosen.specs),))
        if self.numbers is not None:
            forms = {part: (mask.dtype, mask.shape) for part, mask in self.numbers.items()}
            assert forms == {part: (np.bool_, (size,)) for part, size in part_sizes(self.chosen).items()}

    def count(self, part: str) -> int:
        """Return how many numbers of one part are sent."""
        return sum(count for (count,) in self.shapes_of(part))

    def count_of(self, number: int, part: str, first: int, last: int) -> int:
        """Return how many numbers of the set's tensor `number` are sent; it spans those from `first` up to `last` of its part."""
        if self.numbers is not None:
            return int(np.count_nonzero(self.numbers[part][first:last]))
        assert self.tensors is not None
        return last - first if self.tensors[number] else 0

    def shapes_of(self, part: str) -> list[tuple[int, ...]]:
        """Return for each tensor of a part the shape of its selected numbers: (count,)."""
        places = [(number, *place) for number, place in enumerate(self.chosen.places) if place[0] == part]
        return [(self.count_of(*place),) for place in places]

    @property
    def share_of_numbers(self) -> float:
        """Return the share of numbers that are sent, 0-1."""
        sizes = part_sizes(self.chosen)
        return sum(map(self.count, sizes)) / max(1, sum(sizes.values()))

    @property
    def share_of_tensors(self) -> float:
        """Return the share of tensors from which anything is sent; 1 minus it is MetaSend's "tensor saving" (WWW 2024, §4.2).

        For a selection of single numbers the journal's table III gives 1 minus the share of numbers under the same name.
        """
        return self.num_tensors / max(1, len(self.chosen.specs))

    @property
    def num_tensors(self) -> int:
        """Return the number of tensors from which anything is sent."""
        if self.tensors is not None:
            return int(np.count_nonzero(self.tensors))
        assert self.numbers is not None
        masks = Joined(self.numbers, self.chosen)
        return sum(bool(masks[name].any()) for name in masks)

    @property
    def is_everything(self) -> bool:
        masks = [self.tensors] if self.tensors is not None else (self.numbers or {}).values()
        return all(bool(mask.all()) for mask in masks)


def everything(chosen: TensorSet) -> Selection:
    """Select all tensors of a set."""
    return Selection(chosen, tensors=np.ones(len(chosen.specs), np.bool_))


def part_sizes(chosen: TensorSet) -> dict[str, int]:
    """Return part -> how many numbers it has, for each part that has any."""
    return {spec.part: spec.shape[0] for spec in joined_set(chosen).specs}


def pack_selected(tensors: Mapping[str, Numbers], selection: Selection) -> Tensors:
    """Return the selected part of an update as named arrays for the wire; only what is sent is copied."""
    chosen = selection.chosen
    if selection.is_everything:
        return _filled(join(tensors, chosen))
    if selection.tensors is not None:
        sent = TensorSet(chosen.name, tuple(compress(chosen.specs, selection.tensors)))
        return _filled(join(tensors, sent)) | {MASK: np.packbits(selection.tensors)}
    assert selection.numbers is not None
    packed: Tensors = {}
    for part, pieces in runs(tensors, chosen).items():
        if part in selection.numbers:
            packed |= _packed_part(part, pieces, selection.numbers[part])
    return packed


def unpack_selected(
    arrays: Mapping[str, Numbers], chosen: TensorSet, sent: Mapping[str, Sequence[Numbers]]
) -> tuple[Joined, Selection]:
    """Return the update made from the wire's arrays, and the selection; a number that was not sent has the value in `sent`.

    sent: part -> what the site started from, as `joined.runs` gives it. A part that was sent whole shares the memory of
    `arrays`; a part from which nothing was sent may share that of `sent`. A selection of all numbers is returned as one of all
    tensors. The numbers are not checked to be finite.

    Raises:
        ExchangeError: An array is unknown, missing or of another form than its mask says; names it.
    """
    selection = selection_of(arrays, chosen)
    parts: dict[str, Numbers] = {}
    for part, size in part_sizes(chosen).items():
        assert sum(map(len, sent[part])) == size
        count = selection.count(part)
        payload = _payload(part, arrays, count)
        if count == size:
            parts[part] = payload
        else:
            parts[part] = sent[part][0] if count == 0 and len(sent[part]) == 1 else np.concatenate(sent[part])
        if 0 < count < size:
            _put(payload, parts[part], selection, part)
    return Joined(parts, chosen), selection


def _filled(arrays: Tensors) -> Tensors:
    return {name: array for name, array in arrays.items() if array.size}


def _packed_part(part: str, pieces: Sequence[Numbers], mask: Numbers) -> Tensors:
    count, size = int(np.count_nonzero(mask)), len(mask)
    packed: Tensors = {part: _taken(pieces, mask, count)} if count else {}
    if count < size:
        bitmap_bytes = -(-size // 8)
        if 4 * count < bitmap_bytes and size <= 2**32:
            packed[f"{INDICES}.{part}"] = np.flatnonzero(mask).astype(np.uint32)
        else:
            packed[f"{MASK}.{part}"] = np.packbits(mask)
    return packed


def _taken(pieces: Sequence[Numbers], mask: Numbers, count: int) -> Numbers:
    """Return the numbers that the mask selects of arrays that lie end to end."""
    taken, filled, offset = np.empty(count, np.float32), 0, 0
    for piece in pieces:
        for cut in cuts(len(piece)):
            numbers = piece[cut][mask[offset + cut.start : offset + cut.stop]]
            taken[filled : filled + len(numbers)] = numbers
            filled += len(numbers)
        offset += len(piece)
    return taken


def _put(payload: Numbers, flat: Numbers, selection: Selection, part: str) -> None:
    """Write the numbers sent of a part to their places in `flat`."""
    if selection.numbers is not None:
        flat[selection.numbers[part]] = payload
        return
    assert selection.tensors is not None
    taken = 0
    for of_part, first, last in compress(selection.chosen.places, selection.tensors):
        if of_part == part:
            flat[first:last] = payload[taken : taken + last - first]
            taken += last - first


def selection_of(arrays: Mapping[str, Numbers], chosen: TensorSet) -> Selection:
    """Read the selection from the masks; raise ExchangeError for an unknown array, or masks both of tensors and of numbers."""
    sizes = part_sizes(chosen)
    of_numbers = {f"{kind}.{part}" for kind in (MASK, INDICES) for part in sizes}
    known = [*sizes, MASK, *sorted(of_numbers)]
    if unknown := sorted(set(arrays) - set(known)):
        raise ExchangeError(f"got an array {unknown[0]!r}; wanted {', '.join(known)}")
    given = sorted(of_numbers & set(arrays))
    if MASK in arrays:
        if given:
            raise ExchangeError(f"got {MASK!r} beside {given[0]!r}; wanted a mask of tensors or masks of numbers")
        return Selection(chosen, tensors=_bits(MASK, arrays[MASK], len(chosen.specs)))
    if given:
        return Selection(chosen, numbers={part: _mask_of_part(part, arrays, size) for part, size in sizes.items()})
    return everything(chosen)


def _mask_of_part(part: str, arrays: Mapping[str, Numbers], size: int) -> Numbers:
    mask, indices = f"{MASK}.{part}", f"{INDICES}.{part}"
    if mask in arrays and indices in arrays:
        raise ExchangeError(f"got {mask!r} beside {indices!r}; wanted one of the two")
    if mask in arrays:
        return _bits(mask, arrays[mask], size)
    if indices in arrays:
        return _bits_of_indices(indices, arrays[indices], size)
    return np.ones(size, np.bool_)


def _bits(name: str, packed: Numbers, size: int) -> Numbers:
    _check_form(name, packed, np.uint8)
    if len(packed) != -(-size // 8):
        raise ExchangeError(f"{name!r} has {len(packed)} bytes; wanted {-(-size // 8)}, for {size} bits")
    if size % 8 and packed[-1] & (0xFF >> size % 8):
        raise ExchangeError(f"{name!r} has bits set past its end; wanted {size} bits and zeros")
    return np.unpackbits(packed, count=size).view(np.bool_)


def _bits_of_indices(name: str, indices: Numbers, size: int) -> Numbers:
    _check_form(name, indices, np.uint32)
    if not (indices[1:] > indices[:-1]).all():
        raise ExchangeError(f"{name!r} does not ascend; wanted each number's place once, in order")
    if len(indices) and indices[-1] >= size:
        raise ExchangeError(f"{name!r} has a place {indices[-1]}; wanted less than {size}")
    bits = np.zeros(size, np.bool_)
    bits[indices] = True
    return bits


def _payload(part: str, arrays: Mapping[str, Numbers], count: int) -> Numbers:
    if part not in arrays:
        if count:
            raise ExchangeError(f"array {part!r} is missing; wanted {count} numbers, by what is selected")
        return np.empty(0, np.float32)
    _check_form(part, arrays[part], np.float32)
    if len(arrays[part]) != count or not count:
        raise ExchangeError(f"array {part!r} has {len(arrays[part])} numbers; wanted {count or 'no array'}, by what is selected")
    return arrays[part]


def _check_form(name: str, array: Numbers, dtype: type[np.generic]) -> None:
    if array.dtype != dtype:
        raise ExchangeError(f"array {name!r} is {array.dtype}; wanted {np.dtype(dtype)}")
    if array.ndim != 1:
        raise ExchangeError(f"array {name!r} has shape {array.shape}; wanted one dimension")
