"""One pass over an update's numbers: is every one finite, and how far did they move from what was sent.

The pass goes by blocks that stay in a core's cache, so each number comes from memory once, and nothing of the update's size is made.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import not_finite
from strategies.cores import BLOCK, SPAN, in_order

ROW = 1024
"""Numbers whose squares are added in float32; rows are added in float64."""
SAFE = 1e-20
"""A smaller sum of squares may have lost something in float32, as one that is not finite has; both are taken in float64."""


def change_norm(parts: Mapping[str, Numbers], sent: Mapping[str, Sequence[Numbers]]) -> float:
    """L2 norm of what an update changed.

    parts: its flat float32 arrays. sent: part -> what the site started from, as `joined.runs` gives it.

    Raises:
        ExchangeError: names a part that holds NaN or infinity.
    """
    spans = [(part, first) for part, flat in parts.items() for first in range(0, len(flat), SPAN)]
    measured = in_order(lambda span: _measure_span(parts[span[0]], sent[span[0]], span[1]), spans)
    squares = 0.0
    for (part, _), of_span in zip(spans, measured, strict=True):
        if not math.isfinite(of_span):
            raise not_finite(part)
        squares += of_span
    return math.sqrt(squares)


def _measure_span(flat: Numbers, sent: Sequence[Numbers], first: int) -> float:
    """Sum of squares of the changes; not finite where a number is not."""
    change = np.empty(BLOCK, np.float32)
    rows, sums, numbers = change.reshape(-1, ROW), [], flat[first : first + SPAN]
    with np.errstate(over="ignore", invalid="ignore"):  # found by the sum
        for begin, start in _blocks(sent, first, first + len(numbers)):
            np.subtract(numbers[begin : begin + len(start)], start, out=change[: len(start)])
            filled = -(-len(start) // ROW)
            if len(start) < filled * ROW:
                change[len(start) : filled * ROW] = 0
            sums.append(np.vecdot(rows[:filled], rows[:filled]))
        squares = float(np.concatenate(sums).sum(dtype=np.float64))
        if not SAFE <= squares < math.inf:
            squares = sum(
                float(np.square(numbers[begin : begin + len(start)].astype(np.float64) - start).sum())
                for begin, start in _blocks(sent, first, first + len(numbers))
            )
    return squares


def _blocks(runs: Sequence[Numbers], first: int, last: int) -> Iterator[tuple[int, Numbers]]:
    """The numbers from `first` up to `last` of arrays that lie end to end, at most a block at a time; how far from `first` each begins."""
    offset = 0
    for run in runs:
        begin, end = max(first - offset, 0), min(last - offset, len(run))
        for cut in range(begin, end, BLOCK):
            yield offset + cut - first, run[cut : min(cut + BLOCK, end)]
        offset += len(run)
