"""What noised sums cost in privacy, by Google's dp-accounting: privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022).

Two texts are neighbours if one has a sentence pair more, where the other has nothing in its place: how many places there are is no secret.
Imports no torch, and dp-accounting, which takes a second, only for runs that need it.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

BEYOND = 100.0
"""An epsilon that protects nothing; distributions of larger ones would take gigabytes."""


@dataclass(frozen=True)
class Release:
    """So many noised sums over sentences, each of which adds at most one clip. noise: its standard deviation, in clips. share: probability
    with which a sentence is in a sum."""

    noise: float
    share: float = 1.0
    steps: int = 1


def epsilon_of(releases: Iterable[Release], delta: float, grid: float = 1e-4) -> float:
    """Return the epsilon at `delta` of all of them together, whichever depends on the results of others; inf if beyond any use.

    grid: of the losses that a distribution is over; on a coarser one it is never less.
    """
    steps = Counter[tuple[float, float]]()
    for each in releases:
        steps[each.noise, each.share] += each.steps
    return _epsilon(tuple(sorted(steps.items())), delta, grid)


@lru_cache(maxsize=256)
def _epsilon(steps: tuple[tuple[tuple[float, float], int], ...], delta: float, grid: float) -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, get_epsilon_gaussian
    from dp_accounting.pld import PLDAccountant

    # Sums over all sentences are together one Gaussian mechanism.
    precision = sum(count / noise**2 for (noise, share), count in steps if share >= 1)
    sampled = [(noise, share, count) for (noise, share), count in steps if share < 1]
    whole = float(get_epsilon_gaussian(precision**-0.5, delta)) if precision else 0.0
    if not sampled:
        return whole
    if whole > BEYOND or min(noise for noise, _, _ in sampled) < 0.1:
        return math.inf
    accountant = PLDAccountant(value_discretization_interval=grid)
    if precision:
        accountant.compose(GaussianDpEvent(precision**-0.5))
    for noise, share, count in sampled:
        accountant.compose(PoissonSampledDpEvent(share, GaussianDpEvent(noise)), count)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=16)
def noise_for(epsilon: float, delta: float, share: float, steps: int) -> float:
    """Return the least noise, to 0.2 % and never less, with which so many sums cost at most `epsilon` at `delta`."""
    from dp_accounting import get_sigma_gaussian

    of_one = get_sigma_gaussian(epsilon, delta)
    if share >= 1:
        return float(of_one * steps**0.5 * (1 + 1e-6))

    def suffices(noise: float) -> bool:
        return epsilon_of([Release(noise, share, steps)], delta, 1e-3) <= epsilon

    # Where the central limit theorem has it (Bu et al. 2020, theorem 5), or close by.
    high = math.log1p((of_one * share) ** -2 / steps) ** -0.5
    while not suffices(high):
        high *= 1.05
    low = high / 1.05
    while suffices(low):
        low, high = low / 1.05, low
    while high > 1.002 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return float(high)
