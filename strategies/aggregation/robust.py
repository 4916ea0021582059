"""Robust aggregation rules, under which a few lying sites cannot decide a cluster's result: pure functions of its updates."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from fedlingua.exchange.joined import Flat, Numbers
from fedlingua.exchange.tensors import NamedTensors
from strategies.aggregation.cores import BLOCK, SPAN, on_cores
from strategies.aggregation.mean import each_number, mean
from strategies.aggregation.updates import Update

Rule = Callable[[Sequence[Update]], NamedTensors]
"""The updates of a cluster's sites, with the tensors of one part alone -> the part's new tensors."""


def median(updates: Sequence[Update]) -> NamedTensors:
    """Return the coordinate-wise median in float32 (of an even number, the middle two's mean): Yin et al. 2018, definition 1."""
    return _by_number(updates, lambda numbers: np.median(numbers, axis=0))


def trimmed_mean(updates: Sequence[Update], liars: int) -> NamedTensors:
    """Return the coordinate-wise mean in float32 without the `liars` largest and as many smallest values: Yin et al. 2018,
    definition 2, with beta = liars / sites.
    """

    def mean_of_the_rest(numbers: Numbers) -> Numbers:
        ordered = np.partition(numbers, (liars, len(numbers) - liars - 1), axis=0)
        rest: Numbers = ordered[liars : len(numbers) - liars].mean(axis=0)
        return rest

    return _by_number(updates, mean_of_the_rest)


def krum(updates: Sequence[Update], liars: int) -> NamedTensors:
    """Return the update closest to its n - liars - 2 nearest others, in squared L2 distance: Blanchard et al. 2017, §4."""
    return _mean_of(updates, krum_order(updates, liars)[:1])


def multi_krum(updates: Sequence[Update], liars: int) -> NamedTensors:
    """Return the plain mean of the n - liars updates that Krum ranks first: Multi-Krum (Blanchard et al. 2017, m = n - f)."""
    return _mean_of(updates, krum_order(updates, liars)[: len(updates) - liars])


def krum_order(updates: Sequence[Update], liars: int) -> list[int]:
    """Rank updates by s(i) = sum over the n - liars - 2 nearest others j of |V_i - V_j|^2; return their places, lowest s first,
    equal ones in federation order.
    """
    distances = squared_distances(updates)
    scores = [float(np.sort(np.delete(row, i))[: len(updates) - liars - 2].sum()) for i, row in enumerate(distances)]
    return sorted(range(len(updates)), key=lambda i: (scores[i], i))


def squared_distances(updates: Sequence[Update]) -> Numbers:
    """Return (sites, sites) float64, summed from differences, because products lose small distances between large updates."""
    total = np.zeros((len(updates), len(updates)))

    def add(arrays: Sequence[Flat]) -> Numbers:
        for first in range(0, len(arrays[0]), BLOCK):
            numbers = np.stack([array[first : first + BLOCK] for array in arrays]).astype(np.float64)
            for i in range(1, len(arrays)):
                total[i, :i] += np.square(numbers[:i] - numbers[i]).sum(axis=1)
        return np.empty(len(arrays[0]), np.float32)

    each_number(updates, add)
    return total + total.T


def norm_clip(norms: Mapping[str, float], bound: float) -> dict[str, float]:
    """Return site -> 1 / max(1, |update| / M) where this shortens the update: norm clipping, Sun et al. 2019. bound: M; 0 takes
    the median of the round's norms.
    """
    most = bound or (float(np.median(list(norms.values()))) if norms else 0.0)
    return {site: most / norm for site, norm in norms.items() if norm > most}


ROBUST: dict[str, Callable[[int], Rule]] = {
    "median": lambda _: median,
    "trimmed-mean": lambda liars: partial(trimmed_mean, liars=liars),
    "krum": lambda liars: partial(krum, liars=liars),
    "multi-krum": lambda liars: partial(multi_krum, liars=liars),
}
"""`aggregation` -> the rule, made with `robust.byzantine-sites`; one line for each rule."""


def _by_number(updates: Sequence[Update], choose: Callable[[Numbers], Numbers]) -> NamedTensors:
    """Apply `choose`, (sites, n) -> (n,), to all numbers, block by block, so that arrays in files are never in memory as a whole."""

    def chosen(arrays: Sequence[Flat]) -> Numbers:
        total = np.empty(len(arrays[0]), np.float32)

        def fold(span: int) -> None:
            for first in range(span, min(span + SPAN, len(total)), BLOCK):
                total[first : first + BLOCK] = choose(np.stack([array[first : first + BLOCK] for array in arrays]))

        on_cores(fold, range(0, len(total), SPAN))
        return total

    return each_number(updates, chosen)


def _mean_of(updates: Sequence[Update], places: Sequence[int]) -> NamedTensors:
    chosen = [updates[place] for place in sorted(places)]
    return mean(chosen[0].tensors, [update.sent(1 / len(chosen)) for update in chosen])
