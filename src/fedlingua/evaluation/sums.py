"""A site's scores of a text as sums, which can be added over texts and sites and hold no text."""

from dataclasses import dataclass
from typing import Protocol


class TextSums(Protocol):
    """Score sums of one text, of any task."""

    @property
    def sentences(self) -> int:
        """Number of the text's sentences."""

    def record(self) -> dict[str, int | float | list[int] | list[float]]:
        """Return the content of a MetricRecord."""


@dataclass(frozen=True)
class Scores:
    """Score sums of one text, of the model that the site keeps (result) and of the untrained backbone (base).

    If sites choose their model, also of the model that the site trained alone (None if it diverged) and of the federation's; the name
    of the kept candidate; and 95 % intervals of its gain over the better of base and alone, and over alone, in the task's first metric.
    """

    result: TextSums
    base: TextSums
    alone: TextSums | None = None
    federated: TextSums | None = None
    candidate: str = ""
    over_better: tuple[float, float] | None = None
    over_alone: tuple[float, float] | None = None

    def of_federation(self) -> "Scores":
        """Return only the sums of the federation's model and of the base; the other models come from training without noise."""
        return Scores(self.federated or self.result, self.base)
