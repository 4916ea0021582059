"""Top-k: select exactly k numbers of largest magnitude over a whole tensor set, without sorting."""

import numpy as np

from fedlingua.exchange.joined import runs
from fedlingua.exchange.tensors import NamedTensors, TensorSet
from fedlingua.selection.masks import Selection, part_sizes
from fedlingua.selection.rules import rounded

_NO_SIGN = np.uint32(0x7FFFFFFF)
"""Mask of a float32's bits but its sign: they ascend with the magnitude, and NaN is above all, so it is sent and refused."""


def top_k(new: NamedTensors, chosen: TensorSet, share: float = 0.5) -> Selection:
    """Select the share of all numbers that is largest in magnitude (top-k in MetaSend's journal, §IV-D and V-A).

    Judges the model's numbers, not their changes. Selects exactly the share, halves rounded up; of numbers with the smallest
    selected magnitude, the first: encoder, decoder, shared, each in joined order.
    """
    sizes = part_sizes(chosen)
    pieces = [piece for part, pieces in runs(new, chosen).items() if part in sizes for piece in pieces]
    magnitudes = np.concatenate([piece.view(np.uint32) & _NO_SIGN for piece in pieces])
    sent = np.zeros(len(magnitudes), np.bool_)
    if wanted := rounded(share, len(magnitudes)):
        least = np.partition(magnitudes, len(magnitudes) - wanted)[-wanted]
        np.greater(magnitudes, least, out=sent)
        sent[np.flatnonzero(magnitudes == least)[: wanted - np.count_nonzero(sent)]] = True
    parts = np.split(sent, np.cumsum(list(sizes.values()))[:-1])
    return Selection(chosen, numbers=dict(zip(sizes, parts, strict=True)))
