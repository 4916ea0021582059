"""One pass over an update's numbers: all finite, and each tensor's distance from what was sent.

The pass goes by blocks that stay in a core's cache, so each number comes from memory once, and nothing of the update's size is made.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np

from fedlingua.exchange.companions import is_companion
from fedlingua.exchange.joined import Flat, Joined, Numbers
from fedlingua.exchange.tensors import not_finite
from fedlingua.selection.masks import Selection
from strategies.cores import BLOCK, SPAN, in_order

ROW = 1024
"""Numbers whose squares are added in float32; rows are added in float64."""
SAFE = 1e-20
"""A smaller sum of squares may have lost something in float32, as one that is not finite has; both are taken in float64."""


@dataclass(frozen=True, eq=False)
class Change:
    """What an update changed, tensor by tensor in the set's order, each array (tensors,) float64.

    squares: sums of squares of the changes. largest: the largest magnitude of a change. sizes: the largest magnitude of what the site was
    given. sent: how many of its numbers the site sent. All four are 0 of a tensor of which it sent none, unless a
    projection tells of the largest, and of a companion.
    """

    squares: Numbers
    largest: Numbers
    sizes: Numbers
    sent: Numbers

    @property
    def norm(self) -> float:
        """L2, of all tensors together."""
        return math.sqrt(float(self.squares.sum()))

    @property
    def rms(self) -> Numbers:
        """(1 + tensors,) root mean squares over the numbers sent, of the whole update first; not a number where none were sent."""
        with np.errstate(invalid="ignore"):
            rms: Numbers = np.sqrt(np.append(self.squares.sum(), self.squares) / np.append(self.sent.sum(), self.sent))
        return rms


NO_CHANGE = Change(*np.zeros((4, 0)))
"""Of an update that stays with its site."""


def change_of(update: Joined, sent: Mapping[str, Flat], selection: Selection) -> Change:
    """What an update changed of the tensors that it sends. sent: part -> the numbers that the site started from.

    Raises:
        ExchangeError: names a part that holds NaN or infinity.
    """
    change = Change(*np.zeros((4, len(update.chosen.specs))))
    pieces = []
    for number, (part, first, last) in enumerate(update.places):
        change.sent[number] = selection.count_of(number, part, first, last)
        if change.sent[number]:
            pieces += [(number, part, cut, min(cut + SPAN, last)) for cut in range(first, last, SPAN)]
    # A core takes small tensors together.
    ends = accumulate(last - first for _, _, first, last in pieces)
    tasks = [
        [piece for piece, _ in group] for _, group in groupby(zip(pieces, ends, strict=True), lambda piece: piece[1] // SPAN)
    ]

    def measure(part: str, first: int, last: int) -> tuple[float, float, float]:
        """(sum of squares of the changes, largest of them, largest number sent); the first is not finite where a number is not."""
        numbers, moves = update.parts[part][first:last], np.empty(BLOCK, np.float32)
        rows, squares, largest, size = moves.reshape(-1, ROW), 0.0, 0.0, 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # found by the sum
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

    measured = in_order(lambda task: [measure(part, *cut) for _, part, *cut in task], tasks)
    for task, of_task in zip(tasks, measured, strict=True):
        for (number, part, *_), (squares, largest, size) in zip(task, of_task, strict=True):
            if not math.isfinite(squares):
                raise not_finite(part)
            if is_companion(update.chosen.specs[number].name):  # of no length that could be compared with steps
                change.sent[number] = 0
                continue
            change.squares[number] += squares
            change.largest[number] = max(change.largest[number], largest)
            change.sizes[number] = max(change.sizes[number], size)
    return change
