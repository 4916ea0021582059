"""The difference of two systems' scores by a paired bootstrap (Koehn 2004).

p equals sacreBLEU's to the last digit, except where the two systems never differ: here it is 1, in sacreBLEU 1/1001. sacreBLEU's
`significance.PairedTest` gives only p: no interval of the difference, no mean over sites, and no metric but its own. It also counts every
text anew.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlingua.evaluation.bootstrap import Numbers, resampled
from fedlingua.evaluation.text_metrics import Counts


@dataclass(frozen=True)
class Difference:
    """The difference of two systems' scores. low, high: 95 % interval of second minus first over the samples. p: as sacreBLEU computes
    it, which is too small: between equally good systems it is below 0.05 in a tenth of cases. All None if there are no samples.
    """

    first: float
    second: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def value(self) -> float:
        """Second minus first."""
        return self.second - self.first

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def difference(first: float, second: float, of_first: Numbers, of_second: Numbers) -> Difference:
    """Compare two systems by their scores and by those of the same samples, (samples,)."""
    differences = of_second - of_first
    ordered = np.sort(differences)
    cut = len(ordered) // 40
    spread = np.abs(differences)
    by_chance = int(np.sum(spread - spread.mean() > abs(second - first))) if spread.any() else len(ordered)
    return Difference(first, second, float(ordered[cut]), float(ordered[-cut - 1]), (by_chance + 1) / (len(ordered) + 1))


def paired(first: Counts, second: Counts, score: Callable[[Counts], float], drawn: Numbers) -> Difference:
    """Compare two systems by their counts, (sentences, width), of the same sentences."""
    samples = [resampled(counts, score, drawn) for counts in (first, second)]
    return difference(score(first.sum(axis=0)), score(second.sum(axis=0)), *samples)
