"""Passes until the dev loss stops: on made-up losses, and what is stored of them."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedlingua.common.errors import RunError, StuckError
from fedlingua.exchange.tensors import Tensors
from fedlingua.personalization.passes import Trained, train_until_dev_stops


class Made:
    """A model whose one number is where it stands; each pass moves it by the rate. loss: of where it stands."""

    def __init__(self, loss: Callable[[float], float]) -> None:
        self.loss, self.at, self.trained = loss, 0.0, list[tuple[int, float, float]]()

    def train(self, number: int, rate: float) -> None:
        self.trained.append((number, rate, self.at))
        self.at += rate

    def run(self, rates: Sequence[float], patience: int, most: int, may_go_on: Callable[[], bool] = lambda: True) -> Trained:
        return train_until_dev_stops(
            *({"w": np.array([self.at])}, rates, patience, most, self.train, lambda: self.loss(self.at), self.write, self.read),
            note=lambda line: None,
            may_go_on=may_go_on,
        )

    def write(self, tensors: Tensors) -> None:
        self.at = float(tensors["w"][0])

    def read(self) -> Tensors:
        return {"w": np.array([self.at])}


def test_a_rate_ends_with_the_patience_and_the_next_goes_on_from_the_best() -> None:
    made = Made(lambda at: abs(at - 2.25))
    trained = made.run((1.0, 0.25), patience=2, most=20)
    assert [number for number, _, _ in made.trained] == list(range(1, 8))
    assert [rate for _, rate, _ in made.trained] == [1.0] * 4 + [0.25] * 3
    assert made.trained[4] == (5, 0.25, 2.0)
    assert (trained.best, trained.tensors["w"][0], len(trained.rates)) == (5, 2.25, 7)
    assert trained.losses == pytest.approx((2.25, 1.25, 0.25, 0.75, 1.75, 0.0, 0.25, 0.5))


def test_passes_are_bounded_over_all_rates_and_by_the_clock() -> None:
    assert Made(lambda at: -at).run((1.0, 0.5), 1, most=3).rates == (1.0, 1.0, 1.0)
    assert not Made(lambda at: -at).run((1.0, 0.5), 1, most=3).cut_short
    clock = iter([True, False, False])
    trained = Made(lambda at: -at).run((1.0, 0.5), 1, 3, lambda: next(clock))
    assert (trained.rates, trained.cut_short, trained.useless) == ((1.0,), True, "")
    assert Made(lambda at: -at).run((1.0,), 1, 3, lambda: False).useless == "there was no time for a pass"


def test_where_no_pass_helps_the_start_stays() -> None:
    trained = Made(lambda at: at).run((1.0, 0.3), 2, 9)
    assert (trained.best, trained.tensors["w"][0], trained.useless) == (0, 0.0, "")
    assert trained.rates == (1.0, 1.0, 0.3, 0.3)


def test_a_pass_with_an_equal_dev_loss_is_no_better() -> None:
    trained = Made(lambda at: 1.0).run((1.0,), 2, 9)
    assert (trained.best, len(trained.rates)) == (0, 2)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e3])
def test_what_diverges_ends_its_rate_and_is_named(wrong: float) -> None:
    def loss(at: float) -> float:
        return wrong if at >= 1 else 1 - at

    trained = Made(loss).run((1.0, 0.25), 1, 9)
    assert trained.rates[:2] == (1.0, 0.25)
    assert (trained.diverged, trained.useless, trained.tensors["w"][0]) == ((1.0, 0.25), "", 0.75)
    useless = Made(lambda at: wrong if at else 1.0).run((1.0, 0.3), 2, 9)
    assert useless.useless == "diverged at 1, 0.3 x the learning rate"
    assert len(useless.rates) == 2


def test_a_training_that_moves_nothing_counts_as_diverged_and_one_that_fails_does_not() -> None:
    def fails(error: RunError) -> Trained:
        def train(number: int, rate: float) -> None:
            raise error

        start = {"w": np.zeros(1)}
        return train_until_dev_stops(
            *(start, (1.0,), 1, 5, train, lambda: 1.0, lambda _: None, lambda: start), note=lambda _: None
        )

    assert fails(StuckError("an epoch did not move it")).useless == "diverged at 1 x the learning rate"
    with pytest.raises(RunError, match="ended by signal 9"):
        fails(RunError("a process was ended by signal 9"))
