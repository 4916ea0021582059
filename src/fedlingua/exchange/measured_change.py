"""One pass over an update's numbers: check that all are finite, and measure how far each tensor is from what the site received.

It processes blocks that fit in a core's cache, so each number is read from memory once, and no array of the update's size is allocated.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np

from fedlingua.common.cores import BLOCK, SPAN, on_cores
from fedlingua.exchange.joined import Flat, Joined, Numbers
from fedlingua.exchange.selected import Selection
from fedlingua.exchange.tensors import not_finite

ROW = 1024
"""How many squares are added in float32; the sums of such rows are added in float64."""
SAFE = 1e-20
"""A smaller sum of squares is inexact in float32, and one that is not finite has overflowed; both are summed again in float64."""


@dataclass(frozen=True, eq=False)
class Change:
    """What an update changed, tensor by tensor in the set's order, each array (tensors,) float64.

    squares: Sums of squares of the changes. largest: The largest magnitude of a change. sizes: The largest magnitude that the site
    received. sent: How many of its numbers the site sent. All four are 0 for a tensor of which nothing was sent.
    """

    squares: Numbers
    largest: Numbers
    sizes: Numbers
    sent: Numbers

    @property
    def norm(self) -> float:
        """The L2 norm of the change of all tensors together."""
        return math.sqrt(float(self.squares.sum()))

    @property
    def rms(self) -> Numbers:
        """Root mean squares over the numbers sent, (1 + tensors,), the whole update's first; NaN where nothing was sent."""
        with np.errstate(invalid="ignore"):
            rms: Numbers = np.sqrt(np.append(self.squares.sum(), self.squares) / np.append(self.sent.sum(), self.sent))
        return rms


NO_CHANGE = Change(*np.zeros((4, 0)))
"""The change of an update that the server does not see."""


def change_of(update: Joined, sent: Mapping[str, Flat], selection: Selection) -> Change:
    """Measure what an update changed in the tensors that it sends. sent: part -> the numbers that the site started from.

    Raises:
        ExchangeError: A part holds NaN or infinity; the message names it.
    """
    change = Change(*np.zeros((4, len(update.chosen.specs))))
    pieces = []
    for number, (part, first, last) in enumerate(update.chosen.places):
        change.sent[number] = selection.count_of(number, part, first, last)
        if change.sent[number]:
            pieces += [(number, part, cut, min(cut + SPAN, last)) for cut in range(first, last, SPAN)]
    # Small tensors make one task together.
    ends = accumulate(last - first for _, _, first, last in pieces)
    tasks = [
        [piece for piece, _ in group] for _, group in groupby(zip(pieces, ends, strict=True), lambda piece: piece[1] // SPAN)
    ]

    def measure(part: str, first: int, last: int) -> tuple[float, float, float]:
        """Return (sum of squares, largest change, largest number received); the sum is not finite if any number is not."""
        numbers, moves = update.parts[part][first:last], np.empty(BLOCK, np.float32)
        rows, squares, largest, size = moves.reshape(-1, ROW), 0.0, 0.0, 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # the sum shows it
            for begin in range(first, last, BLOCK):
                block = numbers[begin - first : begin - first + BLOCK]
                start, moved, filled = sent[part][begin : begin + len(block)], moves[: len(block)], -(-len(block) // ROW)
                np.subtract(block, start, out=moved)
                moves[len(block) : filled * ROW] = 0
                of_block = float(np.vecdot(rows[:filled], rows[:filled]).sum(dtype=np.float64))
                if not SAFE <= of_block < math.inf and moved.any():
                    of_block = float(np.square(block.astype(np.float64) - start).sum())
                squares += of_block
                largest = max(largest, float(moved.max()), -float(moved.min()))
                size = max(size, float(start.max()), -float(start.min()))
        return squares, largest, size

    measured = on_cores(lambda task: [measure(part, *cut) for _, part, *cut in task], tasks)
    for task, of_task in zip(tasks, measured, strict=True):
        for (number, part, *_), (squares, largest, size) in zip(task, of_task, strict=True):
            if not math.isfinite(squares):
                raise not_finite(part)
            change.squares[number] += squares
            change.largest[number] = max(change.largest[number], largest)
            change.sizes[number] = max(change.sizes[number], size)
    return change
