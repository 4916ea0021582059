"""The privacy cost of noised sums, by Google's dp-accounting: privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022),
or Rényi moments (Mironov 2017) where sites share the noise of a sum (fedlingua/privacy/noise_shares.py).

Two texts are neighbours if one has a sentence pair, or a document, in a place that is empty in the other; the number of places is not
secret. "Sentence" stands for either here.
This module does not import torch. It imports dp-accounting, which takes a second, only for runs that need it.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

BEYOND = 100.0
"""An epsilon above this protects nothing, and its privacy loss distribution would take gigabytes of memory."""

ORDERS = (*range(2, 129), 256, 512, 1024)
"""Orders of Rényi moments; whole numbers, for which the bound on Skellam noise is proven."""
MISSED = 4e-12
"""Probability, per step, that these moments are exceeded: 1e-12 for rounding in each of three parts, 1e-12 for noise too rare to draw."""


@dataclass(frozen=True)
class Release:
    """A number of noised sums over sentences, to each of which a sentence adds at most one clip.

    noise: Its standard deviation, in clips. share: The probability that a sentence is in a sum. steps: The number of sums.
    moments: Whether only the noise's Rényi moments of whole orders are known, to be at most those of a Gaussian with `noise`.
    """

    noise: float
    share: float = 1.0
    steps: int = 1
    moments: bool = False


def epsilon_of(releases: Iterable[Release], delta: float, grid: float = 1e-4) -> float:
    """Return the joint epsilon at `delta` of releases that may depend on each other's results; inf if it protects nothing.

    Args:
        grid: The discretization interval of privacy losses; a coarser grid never gives a smaller epsilon.
    """
    steps, missed, by_moments = Counter[tuple[float, float]](), 0.0, False
    for each in releases:
        steps[each.noise, each.share] += each.steps
        missed, by_moments = missed + MISSED * each.steps * each.moments, by_moments or each.moments
    return _epsilon(tuple(sorted(steps.items())), delta - missed, grid, by_moments) if delta > missed else math.inf


@lru_cache(maxsize=256)
def _epsilon(steps: tuple[tuple[tuple[float, float], int], ...], delta: float, grid: float, by_moments: bool) -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, get_epsilon_gaussian
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    # All sums over the whole text are together one Gaussian mechanism.
    precision = sum(count / noise**2 for (noise, share), count in steps if share >= 1)
    sampled = [(noise, share, count) for (noise, share), count in steps if share < 1]
    whole = float(get_epsilon_gaussian(precision**-0.5, delta)) if precision else 0.0
    if not sampled and not by_moments:
        return whole
    if whole > BEYOND or min((noise for noise, _, _ in sampled), default=1.0) < 0.1:
        return math.inf
    accountant = RdpAccountant(ORDERS) if by_moments else PLDAccountant(value_discretization_interval=grid)
    if precision:
        accountant.compose(GaussianDpEvent(precision**-0.5))
    for noise, share, count in sampled:
        accountant.compose(PoissonSampledDpEvent(share, GaussianDpEvent(noise)), count)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=16)
def noise_for(epsilon: float, delta: float, share: float, steps: int, moments: bool = False) -> float:
    """Return the least noise, rounded up by at most 0.2 %, with which `steps` sums cost at most `epsilon` at `delta`.

    moments: As in `Release`.
    """
    from dp_accounting import get_sigma_gaussian

    of_one = get_sigma_gaussian(epsilon, delta)
    if share >= 1 and not moments:
        return float(of_one * steps**0.5 * (1 + 1e-6))

    def suffices(noise: float) -> bool:
        return epsilon_of([Release(noise, share, steps, moments)], delta, 1e-3) <= epsilon

    # Start at the central limit theorem's value (Bu et al. 2020, theorem 5); the exact one is close.
    high = of_one * steps**0.5 if share >= 1 else math.log1p((of_one * share) ** -2 / steps) ** -0.5
    while not suffices(high):
        high *= 1.05
    low = high / 1.05
    while suffices(low):
        low, high = low / 1.05, low
    while high > 1.002 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return float(high)


def signature_epsilon(noise: float, delta: float, signatures: int = 1) -> float:
    """Return the epsilon of releasing `signatures` private signatures together.

    A signature is a sum over sentences of vectors with norm at most C, plus Gaussian noise of standard deviation noise x C. Neighbouring
    texts differ in one sentence, which is replaced, so the sum changes by at most 2 C: the noise multiplier is noise / 2. For k signatures
    with independent noise, the sensitivity is sqrt(k) times as large. The number of sentences is not secret.
    """
    # Imported here: the import takes a second, and only runs with private signatures need it.
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(noise / 2 / signatures**0.5, delta))
