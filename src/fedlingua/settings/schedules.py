"""A site's learning rate from step to step: a linear warm-up, and then a schedule, as shares of the rate that is asked for."""

import math
from collections.abc import Callable


def constant(_: int, __: int, ___: int) -> float:
    """No schedule."""
    return 1.0


def linear(after: int, left: int, _: int) -> float:
    """From 1 in equal steps, so that one more would be at 0."""
    return 1 - after / left


def cosine(after: int, left: int, _: int) -> float:
    """From 1 down half a wave (Loshchilov & Hutter 2017, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * after / left))


def inverse_sqrt(after: int, _: int, warmup: int) -> float:
    """sqrt(w / s) at step s, w the last step of the warm-up (Vaswani et al. 2017, eq. 3), or 1."""
    peak = max(warmup, 1)
    return math.sqrt(peak / max(warmup + after + 1, peak))


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-sqrt": inverse_sqrt,
}
"""One line a schedule: `schedule` -> (steps since the warm-up; all steps without it; the warm-up's) -> share of the rate."""


def rate_share(schedule: str, step: int, steps: int, warmup: int) -> float:
    """Of step number `step`, from 0, of `steps`: (step + 1) / warmup in the first `warmup` steps, then the schedule's."""
    if step < warmup:
        return (step + 1) / warmup
    return SCHEDULES[schedule](step - warmup, max(steps - warmup, 1), warmup)
