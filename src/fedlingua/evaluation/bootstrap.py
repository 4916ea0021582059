"""Samples of a text by the bootstrap, and their scores from the counts of each sentence (Koehn 2004)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedlingua.evaluation.text_metrics import Counts

Numbers = NDArray[np.float64]
SAMPLES, SEED = 1000, 12345
"""The same as in sacreBLEU."""


def draws(sentences: int, samples: int = SAMPLES, seed: int | Sequence[int] = SEED) -> Numbers:
    """Draw samples with replacement, as large as the text; return how often each has each sentence, (samples, sentences)."""
    rows = np.random.default_rng(seed).choice(sentences, size=(samples, sentences), replace=True)
    return np.stack([np.bincount(row, minlength=sentences) for row in rows]).astype(np.float64)


def resampled(counts: Counts, score: Callable[[Counts], float], drawn: Numbers) -> Numbers:
    """Return the score of each sample, (samples,). counts: (sentences, width). score: takes their sum, (width,)."""
    return np.array([score(total) for total in drawn @ counts])


def resampled_sums(values: Numbers, drawn: Numbers) -> Numbers:
    """Return the sum of values, (sentences,), in each sample, (samples,), the same to the last bit whatever the number of threads.

    Counts are whole numbers, so that the order in which a matrix product adds them does not matter.
    """
    sums: Numbers = np.einsum("ij,j->i", drawn, values)
    return sums
