"""Soft gates: the threshold of MetaSend (eq. 3) as a smooth function, for the backward pass alone.

Whether a tensor is sent is a step function of theta, which has no slope to learn from. Rounds select by the step; learning uses
the slope of a sigmoid of width tau. The paper gives no form for the step from L_val to phi (eq. 5); this one is ours.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

Keep = Literal["g", "l"]
"""Which tensors are sent: those whose deviation is at least theta ("g"), or those below it ("l")."""
WIDTH = 0.1
"""tau as a share of the scale of deviations: tensors within a fifth of the scale around theta affect the slope."""

Array = np.ndarray[Any, Any]


def gate(deviations: ArrayLike, theta: float, tau: float, keep: Keep) -> Array:
    """Return how far each tensor's gate is open: float64 in 0..1, a half where the deviation is theta.

    deviations: eq. 2, >= 0; infinite for a tensor whose norm was 0, for which not theta but `send.zero-norm` decides.
    """
    distance = _beyond(deviations, theta, tau, keep)
    small = np.exp(-np.abs(distance))
    return np.where(distance < 0, small, 1.0) / (1.0 + small)


def gate_slope(deviations: ArrayLike, theta: float, tau: float, keep: Keep) -> Array:
    """Return d gate / d theta, float64: negative under "g", positive under "l", 0 where the deviation is infinite."""
    small = np.exp(-np.abs(_beyond(deviations, theta, tau, keep)))
    steepness = small / np.square(1.0 + small) / tau
    return -steepness if keep == "g" else steepness


def _beyond(deviations: ArrayLike, theta: float, tau: float, keep: Keep) -> Array:
    """Return the distance of each deviation from theta in units of tau, positive on the side that is sent."""
    distance = (np.asarray(deviations, np.float64) - theta) / tau
    return distance if keep == "g" else -distance
