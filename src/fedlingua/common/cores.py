"""Work on pieces of long arrays on several cores; results keep the pieces' order, so the number of cores changes no byte."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

CORES = min(4, os.cpu_count() or 1)
"""Threads to use: numpy releases the interpreter lock while it computes; more than a few threads only wait for memory."""
BLOCK = 64 * 1024
"""Numbers processed at a time, so that three float32 blocks (768 KiB) stay in a core's cache."""
SPAN = 16 * BLOCK
"""Numbers that one core is given at a time."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def on_cores(work: Callable[[Piece], Result], pieces: Sequence[Piece], cores: int = CORES) -> list[Result]:
    """Return the result of `work` for each piece, in the order of the pieces; several threads share the work."""
    if min(cores, len(pieces)) < 2:
        return [work(piece) for piece in pieces]
    return list(_pool(cores).map(work, pieces))


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, "fold")
