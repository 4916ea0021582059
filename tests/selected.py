"""What a selection sends, and what it takes on the wire."""

from collections.abc import Mapping

import numpy as np

from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.selected import INDICES, MASK, Selection


def counted(arrays: Mapping[str, Numbers]) -> dict[str, int]:
    """Count the bytes of a packed selection by purpose: numbers ("payload"), bit masks ("mask") and indices ("indices")."""
    sizes = {"payload": 0, MASK: 0, INDICES: 0}
    for name, array in arrays.items():
        kind = name.partition(".")[0]
        sizes[kind if kind in sizes else "payload"] += array.nbytes
    return sizes


def mask_of(selection: Selection, part: str) -> Numbers:
    """Return which numbers of one part are sent, (its numbers,) bool in joined order, also of whole tensors."""
    if selection.numbers is not None:
        return selection.numbers[part]
    assert selection.tensors is not None
    chosen = selection.chosen
    return np.repeat(selection.tensors[[spec.part == part for spec in chosen.specs]], chosen.sizes_of(part))
