"""Updates whose changes count in part: worked out block by block when they are folded, so that none is ever in memory a second time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedlingua.exchange.joined import Flat, Joined, Numbers
from strategies.aggregation import Update


@dataclass(frozen=True, eq=False)
class Scaled:
    """start + factor x (numbers - start) in float32, at a factor of 1 the numbers. factors: (tensors,) of a part; edges: (tensors + 1,)."""

    numbers: Flat
    start: Flat
    edges: Numbers
    factors: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, chosen: slice) -> Numbers:
        first, last, _ = chosen.indices(len(self))
        each = np.repeat(self.factors, np.diff(np.clip(self.edges, first, max(first, last))))
        numbers, start = self.numbers[first:last], self.start[first:last]
        return np.where(each == 1, numbers, start + each * (numbers - start))


def scaled_down(update: Update, start: Mapping[str, Flat], factors: Numbers) -> Update:
    """The update with so much of each tensor's change. start: part -> what the site started from. factors: (tensors,), 0-1."""
    tensors = update.tensors
    assert isinstance(tensors, Joined), "as updates come off the wire"
    parts: dict[str, Flat] = {}
    for part, flat in tensors.parts.items():
        at = [number for number, (where, *_) in enumerate(tensors.places) if where == part]
        edges = np.array([*(tensors.places[number][1] for number in at), len(flat)])
        parts[part] = Scaled(flat, start[part], edges, factors[at].astype(np.float32))
    return replace(update, tensors=Joined(parts, tensors.chosen))
