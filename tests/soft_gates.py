"""The gate of which `gate_slope` in `fedlingua.selection.meta_gradient` is the slope."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from fedlingua.selection.rules import Keep


def gate(deviations: ArrayLike, theta: float, tau: float, keep: Keep) -> Any:
    """Return how far each tensor's gate is open, float64 in 0..1."""
    distance = (np.asarray(deviations, np.float64) - theta) / tau
    return expit(distance if keep == "g" else -distance)
