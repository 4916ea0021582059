"""What both sides of a secure sum know: the counters that are summed beside the tensors, and numbers that show whether masks cancelled."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlingua.exchange.joined import Numbers

COUNTERS_PART = "counters"
"""Name of the array of counters in a reply: masked over all sites of the run."""
COUNTERS = ("sites", "steps", "num_examples", "num_tokens", "nll_sum", "cut")
"""The counters in their order: 1, the sums of training, and how many numbers were beyond their scale."""
CHECKS = 4
"""How many ones follow a part's levels; they add up to the number of sites only if all masks have cancelled."""
_LOSS = COUNTERS.index("nll_sum")
_FRACTION = 2.0**20


def counted(sums: Mapping[str, Any]) -> Numbers:
    """Return a site's counters: (6,) uint64; a loss to 20 bits after the point. What private training does not tell is 0."""
    values = [1, *(float(sums.get(name, 0)) for name in COUNTERS[1:])]
    values[_LOSS] *= _FRACTION
    return np.array([round(value) for value in values], np.uint64)


def totals(counters: Numbers) -> dict[str, float]:
    """Return the sums that unmasked counters stand for, by name."""
    values = dict(zip(COUNTERS, (float(value) for value in counters), strict=True))
    return {**values, "nll_sum": values["nll_sum"] / _FRACTION}
