"""Paired bootstrap of two systems' scores, from the counts of each sentence (Koehn 2004).

p equals sacreBLEU's to the last digit, except where the two systems never differ: here it is 1, in sacreBLEU 1/1001. sacreBLEU's
`significance.PairedTest` gives p alone: no interval of the difference, no mean over sites and no metric but its own; and it counts every
text anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlingua.evaluation.text_metrics import Counts

Numbers = NDArray[np.float64]
SAMPLES, SEED = 1000, 12345
"""sacreBLEU's."""


@dataclass(frozen=True)
class Difference:
    """Second minus first. low, high: its 95 % interval over samples. p: how often a difference as large comes about by chance. None of
    these where there is nothing to draw samples of.
    """

    first: float
    second: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def value(self) -> float:
        """By how much the second scores higher."""
        return self.second - self.first


def draws(sentences: int, samples: int = SAMPLES, seed: int | Sequence[int] = SEED) -> Numbers:
    """(samples, sentences): how often each sentence is drawn, as many times as there are sentences, with replacement."""
    rows = np.random.default_rng(seed).choice(sentences, size=(samples, sentences), replace=True)
    return np.stack([np.bincount(row, minlength=sentences) for row in rows]).astype(np.float64)


def resampled(counts: Counts, score: Callable[[Counts], float], drawn: Numbers) -> Numbers:
    """The score of each sample, (samples,). counts: (sentences, width); score: of their sum."""
    return np.array([score(total) for total in drawn @ counts])


def difference(first: float, second: float, of_first: Numbers, of_second: Numbers) -> Difference:
    """Of two scores, and of the same samples of both systems."""
    differences = of_second - of_first
    ordered = np.sort(differences)
    cut = len(ordered) // 40
    spread = np.abs(differences)
    by_chance = int(np.sum(spread - spread.mean() > abs(second - first))) if spread.any() else len(ordered)
    return Difference(first, second, float(ordered[cut]), float(ordered[-cut - 1]), (by_chance + 1) / (len(ordered) + 1))


def paired(first: Counts, second: Counts, score: Callable[[Counts], float], drawn: Numbers) -> Difference:
    """Of two systems that translated the same sentences."""
    samples = [resampled(counts, score, drawn) for counts in (first, second)]
    return difference(score(first.sum(axis=0)), score(second.sum(axis=0)), *samples)
