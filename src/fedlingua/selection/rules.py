"""Rules that select the part of an update to send: MetaSend's, and those that it is compared with.

Top-k selects single numbers, and so does adaptive freezing (`freezing.py`); all others select tensors.
"""

import math
from typing import Literal

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.coding.coder import largest
from fedlingua.exchange.joined import Numbers, runs
from fedlingua.exchange.selected import Selection, part_sizes
from fedlingua.exchange.tensors import NamedTensors, TensorSet

Keep = Literal["g", "l"]
"""Which tensors are sent: those whose deviation is at least theta ("g"), or those below it ("l")."""


def rounded(share: float, number: int) -> int:
    """Return share x number, halves rounded up."""
    return math.floor(share * number + 0.5)


def rand_send(chosen: TensorSet, rng: np.random.Generator, share: float = 0.5) -> Selection:
    """Select exactly a share of the tensors, halves rounded up, drawn at random: RandSend (MetaSend, §4.4)."""
    tensors = np.zeros(len(chosen.specs), np.bool_)
    tensors[rng.permutation(len(tensors))[: rounded(share, len(tensors))]] = True
    return Selection(chosen, tensors)


def dp(differences: Numbers, chosen: TensorSet, keep: Keep) -> Selection:
    """Select the half of the tensors that moved most ("g") or least ("l"): DP, Passban et al. 2022 as in MetaSend, §4.4.

    differences: (n_tensors,), ||new - previous||. Of an odd number "g" has one more; of equal ones, the first in the set.
    """
    moved_most = np.zeros(len(chosen.specs), np.bool_)
    moved_most[np.argsort(-differences, kind="stable")[: rounded(0.5, len(moved_most))]] = True
    return Selection(chosen, moved_most if keep == "g" else ~moved_most)


def top_k(new: NamedTensors, chosen: TensorSet, share: float = 0.5) -> Selection:
    """Select the share of all numbers that is largest in magnitude (top-k in MetaSend's journal, §IV-D and V-A).

    Judges the model's numbers, not their changes. Selects exactly the share, halves rounded up; of numbers with the smallest
    selected magnitude, the first: encoder, decoder, shared, each in joined order. NaN is selected, so that the server refuses it.
    """
    sizes = part_sizes(chosen)
    sent = np.zeros(sum(sizes.values()), np.bool_)
    pieces = [piece for part, pieces in runs(new, chosen).items() if part in sizes for piece in pieces]
    sent[largest(pieces, rounded(share, len(sent)))] = True
    parts = np.split(sent, np.cumsum(list(sizes.values()))[:-1])
    return Selection(chosen, numbers=dict(zip(sizes, parts, strict=True)))


def by_threshold(deviations: Numbers, chosen: TensorSet, theta: float, keep: Keep) -> Selection:
    """Select tensors with dev >= theta ("g"), or with dev < theta ("l"), compared in float64: MetaSend (WWW 2024), eq. 3.

    deviations: (n_tensors,), as `deviation.deviations` gives them. A changed tensor that was all zeros, as biases are at the start, has
    a deviation of inf, which the paper leaves open: here it is sent, whatever theta and side are.

    Raises:
        ExchangeError: theta is NaN.
    """
    if math.isnan(theta):
        raise ExchangeError("theta is NaN; wanted a number")
    above = deviations.astype(np.float64) >= theta
    return Selection(chosen, np.isinf(deviations) | (above if keep == "g" else ~above))


def fixed_threshold(deviations: Numbers, value: float | str) -> float:
    """Return a theta that is not learnt: `value` (0.5 in MetaSend, §5.3.1), or the median of the update's finite deviations."""
    if value != "median":
        return float(value)
    finite = _finite(deviations)
    return float(np.median(finite)) if len(finite) else 0.0


def unlearned_threshold(rule: str, deviations: Numbers, rng: np.random.Generator, value: float | str, over: str) -> float:
    """Return the theta of a rule fixed-g, -l, from `value`, or random-g, -l, drawn `over` what `random_threshold` says."""
    return fixed_threshold(deviations, value) if rule.startswith("fixed-") else random_threshold(deviations, rng, over)


def random_threshold(deviations: Numbers, rng: np.random.Generator, over: str) -> float:
    """Draw theta from 0 to 1 ("unit": MetaSend, §5.3.1), or between the least and greatest finite deviation ("range")."""
    if over == "unit":
        return float(rng.uniform())
    finite = _finite(deviations)
    return float(rng.uniform(finite.min(), finite.max())) if len(finite) else 0.0


def _finite(deviations: Numbers) -> Numbers:
    return deviations[np.isfinite(deviations)].astype(np.float64)
