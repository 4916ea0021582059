"""Learning-rate schedules of a site's training: a linear warm-up, then a schedule, both as shares of the configured rate."""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "constant": lambda after, left, warmup: 1.0,
    # Falls in equal steps, so that one more step would reach 0.
    "linear": lambda after, left, warmup: 1 - after / left,
    # Along half a cosine wave: Loshchilov & Hutter 2017, without restarts.
    "cosine": lambda after, left, warmup: 0.5 * (1 + math.cos(math.pi * after / left)),
    # sqrt(w / s) at step s, where w is the last step of the warm-up or 1: Vaswani et al. 2017, eq. 3.
    "inverse-sqrt": lambda after, left, warmup: math.sqrt(max(warmup, 1) / (warmup + after + 1)),
}
"""Name -> schedule, a function of (steps since the warm-up, steps after the warm-up in all, warm-up steps) to a share."""


def rate_share(schedule: str, step: int, steps: int, warmup: int) -> float:
    """Return the share of the rate at `step` (from 0) of `steps`: (step + 1) / warmup in the warm-up, then the schedule's."""
    if step < warmup:
        return (step + 1) / warmup
    return SCHEDULES[schedule](step - warmup, max(steps - warmup, 1), warmup)
