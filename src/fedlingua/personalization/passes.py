"""Training at a site after the rounds: passes until the dev loss stops falling, then again from the best pass at the next rate."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedlingua.common.errors import StuckError
from fedlingua.exchange.tensors import Tensors

DIVERGED = 100.0
"""Dev loss, in nats per token, at and above which training counts as diverged; a uniform guess among a million tokens has 14."""


@dataclass(frozen=True)
class Trained:
    """The result of passes.

    Attributes:
        tensors: The tensors after pass `best`, the one with the lowest dev loss; pass 0 stands for the start.
        losses: The dev loss before the first pass and after each pass, in nats per token.
        rates: The rate of each pass.
        diverged: The rates at which training diverged.
        cut_short: Whether the time was up before the passes were.
    """

    tensors: Tensors
    best: int
    losses: tuple[float, ...]
    rates: tuple[float, ...]
    diverged: tuple[float, ...] = ()
    cut_short: bool = False

    @property
    def useless(self) -> str:
        """Why these tensors cannot be a candidate; "" if they can."""
        if self.diverged and not self.best:
            return f"diverged at {', '.join(f'{rate:g}' for rate in self.diverged)} x the learning rate"
        return "" if self.rates or not self.cut_short else "there was no time for a pass"


def train_until_dev_stops(
    start: Tensors,
    schedule: Sequence[float],
    patience: int,
    most: int,
    train: Callable[[int, float], object],
    dev_loss: Callable[[], float],
    write: Callable[[Tensors], None],
    read: Callable[[], Tensors],
    note: Callable[[str], None],
    may_go_on: Callable[[], bool] = lambda: True,
) -> Trained:
    """Train at each rate, from the best pass so far, until `patience` passes are no better (reduce on plateau).

    Args:
        start: The tensors before the first pass.
        schedule: Multiples of the run's learning rate, in order.
        patience: The number of successive passes without a lower dev loss after which the next rate is used.
        most: The most passes at all rates together.
        train: Trains the current model for one pass, given its number from 1 and its rate; StuckError means that training diverged.
        dev_loss: Measures the current model, in nats per token.
        write, read: Write tensors into the model; copy them out of it.
        may_go_on: Called before each pass; False, which means that the time is up, ends training.
    """
    write(start)
    tensors, best, losses, rates, diverged, cut_short = start, 0, [dev_loss()], list[float](), list[float](), False
    for rate in schedule:
        write(tensors)
        stale = 0
        while len(rates) < most and stale < patience:
            if not may_go_on():
                cut_short = True
                break
            rates.append(rate)
            try:
                train(len(rates), rate)
                loss = dev_loss()
            except StuckError:
                loss = math.nan
            losses.append(loss)
            note(f"pass {len(rates)} of at most {most}, rate x {rate:g}: dev loss {loss:.4f}")
            if not loss < DIVERGED:  # true if it is NaN
                diverged.append(rate)
                break
            if loss < losses[best]:
                tensors, best, stale = read(), len(rates), 0
            else:
                stale += 1
    return Trained(tensors, best, tuple(losses), tuple(rates), tuple(diverged), cut_short)
