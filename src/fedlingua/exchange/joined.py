"""Join tensors into one flat array per part (encoder, decoder, shared), in the order of their tensor set: the form that travels.

Both sides know names, shapes and order (their fingerprints agree before tensors travel), so naming every tensor would cost 490 bytes
and two requests each for nothing. All sites of a cluster get the same object, which the SuperLink receives and stores once.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec

Numbers = np.ndarray[Any, Any]


class Flat(Protocol):
    """One part's numbers end to end, in memory or in a file; `flat[a:b]` reads those from a up to b."""

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: slice, /) -> Numbers: ...


@dataclass(frozen=True)
class Stretch:
    """A slice of a flat array: `length` numbers from `first` on, read only when they are indexed."""

    whole: Flat
    first: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, chosen: slice) -> Numbers:
        first, last, _ = chosen.indices(self.length)
        return self.whole[self.first + first : self.first + max(first, last)]


class EndToEnd:
    """Several flat arrays, indexed as one without a copy; a slice within one of them is a view."""

    def __init__(self, arrays: Sequence[Numbers]) -> None:
        self.arrays, self.ends = arrays, list(accumulate(map(len, arrays)))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, chosen: slice) -> Numbers:
        first, last, _ = chosen.indices(len(self))
        pieces = [np.empty(0, np.float32)]
        at = bisect_right(self.ends, first)
        while first < last:
            begin = self.ends[at] - len(self.arrays[at])
            pieces.append(self.arrays[at][first - begin : last - begin])
            first, at = self.ends[at], at + 1
        return pieces[1] if len(pieces) == 2 else np.concatenate(pieces)


class Joined(Mapping[str, Numbers]):
    """A set's tensors by name, backed by one flat array a part. A tensor is read when it is indexed, and is read-only."""

    def __init__(self, parts: Mapping[str, Flat], chosen: TensorSet) -> None:
        self.parts, self.chosen = dict(parts), chosen

    @cached_property
    def _places(self) -> dict[str, tuple[TensorSpec, int]]:
        """Name -> the tensor, and the index of its first number in its part."""
        return {spec.name: (spec, first) for spec, (_, first, _) in zip(self.chosen.specs, self.chosen.places, strict=True)}

    def of_part(self, part: Part) -> "Joined":
        """Return the tensors of one part."""
        held: dict[str, Flat] = {part: self.parts[part]} if part in self.parts else {}
        return Joined(held, self.chosen.in_part(part))

    def flat(self, name: str) -> Flat:
        """Return one tensor's numbers end to end; of a tensor in a file, only indexed numbers are read."""
        spec, first = self._places[name]
        return Stretch(self.parts[spec.part], first, spec.size)

    def __getitem__(self, name: str) -> Numbers:
        spec, first = self._places[name]
        tensor = self.parts[spec.part][first : first + spec.size].reshape(spec.shape)
        tensor.flags.writeable = False
        return tensor

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the tensor
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self.chosen.specs)


class Some(Mapping[str, Numbers]):
    """The tensors of a mapping that have the given names; each is read when it is indexed."""

    def __init__(self, tensors: Mapping[str, Numbers], names: Iterable[str]) -> None:
        self._tensors, self._names = tensors, dict.fromkeys(names)

    def flat(self, name: str) -> Flat:
        """Return one tensor's numbers end to end; of a tensor in a file, only indexed numbers are read."""
        return flat(self._tensors, name)

    def __getitem__(self, name: str) -> Numbers:
        if name not in self._names:
            raise KeyError(name)
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def flat(tensors: Mapping[str, Numbers], name: str) -> Flat:
    """Return one of the tensors as a flat array, without reading one that lies in a file."""
    return tensors.flat(name) if isinstance(tensors, Joined | Some) else np.ravel(tensors[name])


def joined_set(chosen: TensorSet) -> TensorSet:
    """Return the set as it travels: one flat tensor for each part that has numbers."""
    sizes = {part: sum(chosen.sizes_of(part)) for part in PARTS}
    return TensorSet(chosen.name, tuple(TensorSpec(part, (size,), part, None) for part, size in sizes.items() if size))


def runs(tensors: Mapping[str, Numbers], chosen: TensorSet) -> dict[str, list[Numbers]]:
    """Return part -> its tensors' numbers end to end, in one flat array or several; an empty dict if there are no tensors."""
    if not tensors:
        return {}
    if isinstance(tensors, Joined) and tensors.chosen == chosen:
        return {part: [flat[:]] for part, flat in tensors.parts.items()}
    parts = {part: chosen.of_part(part) for part in PARTS}
    return {part: [np.ravel(tensors[spec.name]) for spec in specs] for part, specs in parts.items() if specs}


def flat_parts(tensors: Mapping[str, Numbers], chosen: TensorSet) -> Mapping[str, Flat]:
    """Return part -> its tensors' numbers as one flat array, without a copy."""
    if isinstance(tensors, Joined) and tensors.chosen == chosen:
        return tensors.parts
    return {part: EndToEnd(pieces) for part, pieces in runs(tensors, chosen).items()}


def join(tensors: Mapping[str, Numbers], chosen: TensorSet) -> Tensors:
    """Return part -> copy of its tensors as one flat array; an empty dict if there are no tensors."""
    return {part: np.concatenate(pieces) for part, pieces in runs(tensors, chosen).items()}


BLOCK = 32 * 1024
"""Numbers in a block; two float32 blocks are 256 KiB. Half the size takes 10 % more time, in calls; twice gains nothing."""


def cuts(size: int, block: int = BLOCK) -> Iterator[slice]:
    """Yield slices of up to `block` numbers that cover `size` numbers in order."""
    for first in range(0, size, block):
        yield slice(first, min(first + block, size))
