"""Top-k: the numbers of largest magnitude over a whole set, exactly k of them, found without sorting.

The bits of a float32 without its sign ascend with its magnitude. So the k-th largest is found by counting: how many numbers share
their upper 15 bits, then, among those with the k-th's, how many share the lower 16. Two passes find it, a third marks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from fedlingua.exchange.joined import Numbers, runs
from fedlingua.exchange.tensors import TensorSet
from fedlingua.selection.blocks import BLOCK, cuts
from fedlingua.selection.masks import Selection, part_sizes
from fedlingua.selection.rules import rounded

_NO_SIGN = np.uint32(0x7FFFFFFF)
_COUNTED = 16 * BLOCK
"""Numbers counted at a time, so that adding up 65,536 counts weighs little."""


def top_k(new: Mapping[str, Numbers], chosen: TensorSet, share: float = 0.5) -> Selection:
    """The share of all numbers that is largest in magnitude (top-k in MetaSend's journal, §IV-D and V-A): the model's, not its change's.

    Exactly so many, halves up. Of numbers with the magnitude at which it ends, the first: encoder, decoder, shared, each in joined order.
    """
    pieces = {part: pieces for part, pieces in runs(new, chosen).items() if part in part_sizes(chosen)}
    masks = {part: np.zeros(size, np.bool_) for part, size in part_sizes(chosen).items()}
    if wanted := rounded(share, chosen.num_parameters):
        least, ties = _kth_largest(lambda block: (bits for part in pieces for bits in _bits(pieces[part], block)), wanted)
        for part, mask in masks.items():
            first = 0
            for bits in _bits(pieces[part], BLOCK):
                marked = mask[first : first + len(bits)]
                np.greater(bits, least, out=marked)
                if ties:
                    equal = np.flatnonzero(bits == least)[:ties]
                    marked[equal] = True
                    ties -= len(equal)
                first += len(bits)
    return Selection(chosen, numbers=masks)


def _kth_largest(blocks: Callable[[int], Iterator[Numbers]], wanted: int) -> tuple[np.uint32, int]:
    """Bits of the magnitude that comes at place `wanted` from the top, and how many of that very magnitude are wanted."""
    counts = sum((np.bincount(bits >> 16, minlength=1 << 15) for bits in blocks(_COUNTED)), np.zeros(1 << 15, np.int64))
    upper, wanted = _place_from_top(counts, wanted)
    counts = np.zeros(1 << 16, np.int64)
    for bits in blocks(_COUNTED):
        counts += np.bincount(bits[bits >> 16 == upper] & 0xFFFF, minlength=1 << 16)
    lower, wanted = _place_from_top(counts, wanted)
    return np.uint32(upper << 16 | lower), wanted


def _place_from_top(counts: Numbers, wanted: int) -> tuple[int, int]:
    """The value where the count from the largest value down reaches `wanted`, and how many of that value are wanted."""
    down = np.cumsum(counts[::-1])
    place = int(np.searchsorted(down, wanted))
    return len(counts) - 1 - place, wanted - int(down[place] - counts[::-1][place])


def _bits(pieces: Sequence[Numbers], block: int) -> Iterator[Numbers]:
    """The magnitudes' bits of arrays that lie end to end, (at most `block`,) uint32 at a time."""
    for piece in pieces:
        for cut in cuts(len(piece), block):
            yield piece[cut].view(np.uint32) & _NO_SIGN
