"""One attack, and what came of it: the rows of the tables in `experiments/results/hostile.md`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """held: nothing was obeyed, moved or ended. said: the words of whoever refused, or the figure that shows it, in one line."""

    held: bool
    said: str


@dataclass(frozen=True)
class Attack:
    """name: unique, a test's id and the row's first column. play: carry it out against the real code in an empty folder."""

    name: str
    play: Callable[[Path], Outcome]
