"""Who trains a model together: one process alone, or several that each take a share of every batch.

All of a crew draw the same steps from the same seed, hold the same parameters, and add up their gradients before every step of the same
optimiser: each then takes the very step that one process would have taken, but for the order in which floats are added, and dropout.
"""

from collections.abc import Sequence
from typing import TypeVar

from torch import nn

T = TypeVar("T")
Sums = tuple[float, int, int]
"""(nll_sum, predicted tokens, examples) of one batch."""


class Crew:
    """One process alone: takes all of every batch, and has nobody to add up with. number: of this process, from 0; size: of the crew."""

    number = 0
    size = 1

    def share(self, batch: Sequence[T]) -> Sequence[T]:
        """This process's part of a batch: every size-th example, since neighbours are of like length. May be empty."""
        return batch[self.number :: self.size]

    def add_up(self, parameters: Sequence[nn.Parameter], sums: list[Sums]) -> list[Sums]:
        """Put the crew's whole gradient in the place of this process's own, and give the sums of a step over the whole crew."""
        return sums


ALONE = Crew()
