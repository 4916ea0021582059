"""What a packed selection takes on the wire."""

from collections.abc import Mapping

from fedlingua.exchange.joined import Numbers
from fedlingua.selection.masks import INDICES, MASK


def counted(arrays: Mapping[str, Numbers]) -> dict[str, int]:
    """Count the bytes of a packed selection by purpose: numbers ("payload"), bit masks ("mask") and indices ("indices")."""
    sizes = {"payload": 0, MASK: 0, INDICES: 0}
    for name, array in arrays.items():
        kind = name.partition(".")[0]
        sizes[kind if kind in sizes else "payload"] += array.nbytes
    return sizes
