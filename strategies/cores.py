"""Work on long arrays, piece by piece on several cores; results come in the order of the pieces, so the number of cores changes no byte."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

CORES = min(4, os.cpu_count() or 1)
"""numpy lets other threads run while it counts; more than a few of them wait for memory."""
BLOCK = 64 * 1024
"""Numbers at a time, so that three blocks of them stay in a core's cache: 768 KiB."""
SPAN = 16 * BLOCK
"""Numbers that one core takes at a time."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def in_order(work: Callable[[Piece], Result], pieces: Sequence[Piece], cores: int = CORES) -> list[Result]:
    """What `work` makes of each piece."""
    if min(cores, len(pieces)) < 2:
        return [work(piece) for piece in pieces]
    return list(_pool(cores).map(work, pieces))


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, "fold")
