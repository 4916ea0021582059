"""A site's scores of a text: sums that add up over texts and sites, and none of its words."""

from dataclasses import dataclass
from typing import Protocol


class TextSums(Protocol):
    """Sums of one text, of whatever task."""

    @property
    def sentences(self) -> int:
        """Of the text."""

    def record(self) -> dict[str, int | float | list[int] | list[float]]:
        """As a MetricRecord holds them."""


@dataclass(frozen=True)
class Scores:
    """Score sums of one text: of what the site keeps, and of the base.

    Where sites choose also those of the model that the site trained alone (None: it diverged) and of the federation's, which candidate is
    kept, and 95 % intervals of what it gains on the text over the better of base and alone, and over alone, in the task's first metric.
    """

    result: TextSums
    base: TextSums
    alone: TextSums | None = None
    federated: TextSums | None = None
    candidate: str = ""
    over_better: tuple[float, float] | None = None
    over_alone: tuple[float, float] | None = None
