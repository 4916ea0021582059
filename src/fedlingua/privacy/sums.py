"""Conventions of both sides of a secure sum: the counters summed beside the tensors, and the check that all masks cancelled."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlingua.exchange.joined import Numbers

COUNTERS_PART = "counters"
"""Name of the array of counters in a reply; its masks cancel in the sum over all sites of the run."""
COUNTERS = ("sites", "steps", "num_examples", "num_tokens", "nll_sum", "cut")
"""The counters in order: 1 for the site itself, the sums of its training, and how many numbers were clipped to their scale."""
CHECKS = 4
"""Number of ones appended to a part's levels; they sum to the number of sites only if all masks cancelled."""
_LOSS = COUNTERS.index("nll_sum")
_FRACTION = 2.0**20


def counted(sums: Mapping[str, Any]) -> Numbers:
    """Return a site's counters, (6,) uint64, the loss with 20 fractional bits. Sums that private training does not report are 0."""
    values = [1, *(float(sums.get(name, 0)) for name in COUNTERS[1:])]
    values[_LOSS] *= _FRACTION
    return np.array([round(value) for value in values], np.uint64)


def totals(counters: Numbers) -> dict[str, float]:
    """Decode unmasked counters into sums by name."""
    values = dict(zip(COUNTERS, (float(value) for value in counters), strict=True))
    return {**values, "nll_sum": values["nll_sum"] / _FRACTION}
