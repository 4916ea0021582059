"""A site's scores of a text as sums, which can be added over texts and sites and hold no text."""

from collections.abc import Mapping
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

    If sites choose their model, also of the model that the site trained alone (None if it diverged), of the federation's, of the ensemble
    of two trained alone (None unless one was made), of the kept model or, of a kept ensemble, the best single one (single), and of what the
    gain is over (reference); the names of the kept candidate and of the reference; and the 95 % interval of the gain, in the task's first
    metric.
    """

    result: TextSums
    base: TextSums
    alone: TextSums | None = None
    federated: TextSums | None = None
    alone_ensemble: TextSums | None = None
    single: TextSums | None = None
    reference: TextSums | None = None
    candidate: str = ""
    reference_name: str = ""
    over_reference: tuple[float, float] | None = None

    def chosen(
        self, of: Mapping[str, TextSums], candidate: str, single: str, reference: str, over_reference: tuple[float, float]
    ) -> "Scores":
        """Return the same with a choice. of: Candidate -> its sums on the text, without metrics that only the result and the base have."""
        more = (of.get("alone"), of["federation"], of.get("alone ensemble"), of[single], of[reference])
        return Scores(self.result, self.base, *more, candidate, reference, over_reference)

    def of_federation(self) -> "Scores":
        """Return only the sums of the federation's model and of the base; the other models come from training without noise."""
        return Scores(self.federated or self.result, self.base)
