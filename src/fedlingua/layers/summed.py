"""What the mean of a secure sum can be. No single site's part of it can be checked, and one that lies may add any number to it.

Measured over the demo's sites and models of random weights, with adapters: the root mean square change of honest means of five sites was
0.1 to 0.62 of rate x steps, at 5 to 37 steps, which is rate x steps^e with e up to 0.73 (0.82 for single sites: outliers.py). Between two
rounds it grew by a third at most, that of controllers, which begin closed, to twice its length, and the dev loss rose by nothing.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from fedlingua.exchange.joined import Numbers

STEEPEST, USUAL = 0.85, 0.5
"""The largest e of an honest mean; and the one up to which it may always come, that of steps each in a random direction."""
LONGER = 2.0
"""How many times as long as in the earlier rounds a mean may be that is longer than usual, by rate x steps."""
RISE = 1.2
"""How many times as high as the lowest one before the dev loss after a round may be."""


def length(change: Numbers, rates: Numbers) -> float:
    """Return the root mean square of a mean change, as a share of rate x steps. rates: of each step of a site, (steps,)."""
    return math.sqrt(float(np.square(change, dtype=np.float64).mean())) / float(rates.sum())


def too_long(own: float, steps: int, earlier: Sequence[float]) -> str | None:
    """Return why no honest sites can have moved so far in their steps, or None. own, earlier: as `length` returns them."""
    most, by = steps ** (STEEPEST - 1), f"{steps} steps"
    if earlier and (by_rounds := max(LONGER * median(earlier), steps ** (USUAL - 1))) < most:
        most, by = by_rounds, "the rounds before"
    return (
        f"it moves by {own:.3g} of rate x steps (root mean square), and by {by} up to {most:.3g} is taken" if own > most else None
    )


def best_before(losses: Mapping[int, float]) -> int | None:
    """Return the round with the lowest dev loss, if the one after the last round is so much higher that it cannot be by chance."""
    best = min(losses, key=lambda number: (losses[number], number), default=None)
    return best if best is not None and losses[max(losses)] > RISE * losses[best] else None
