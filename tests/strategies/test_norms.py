"""Norm and finiteness of an update, by hand, and the same however its numbers are cut."""

import math
from typing import Any

import numpy as np
import pytest

from fedlingua.errors import ExchangeError
from strategies import norms
from strategies.norms import SPAN, change_norm

Array = np.ndarray[Any, Any]


def array(*numbers: float) -> Array:
    return np.array(numbers, dtype=np.float32)


def test_the_norm_of_a_change_is_that_of_all_parts_together() -> None:
    sent = {"x": [array(1), array(1)], "y": [array(5)]}
    assert change_norm({"x": array(3, 4), "y": array(11)}, sent) == pytest.approx(math.sqrt(4 + 9 + 36))
    assert change_norm({"x": array(1, 1), "y": array(5)}, sent) == 0


def test_the_norm_does_not_overflow_where_float32_would() -> None:
    """(3e38 - -3e38) is no float32, and its square no float32 either."""
    assert change_norm({"x": array(3e38, 0)}, {"x": [array(-3e38, 0)]}) == pytest.approx(6e38)
    assert change_norm({"x": array(1e30, 0)}, {"x": [array(0, 0)]}) == pytest.approx(1e30)


def test_the_norm_does_not_vanish_where_float32_would() -> None:
    assert change_norm({"x": array(3e-30, 4e-30)}, {"x": [array(0, 0)]}) == pytest.approx(5e-30)


def test_a_small_change_of_large_numbers_is_not_lost() -> None:
    assert change_norm({"x": array(16777216)}, {"x": [array(16777218)]}) == 2


def test_the_norm_of_many_numbers_is_that_of_float64() -> None:
    rng = np.random.default_rng(1)
    update, sent = rng.standard_normal((2, 2 * SPAN + 777), np.float32)
    exact = np.linalg.norm(update.astype(np.float64) - sent)
    assert change_norm({"x": update}, {"x": [sent]}) == pytest.approx(exact, rel=1e-7)


def test_where_the_numbers_are_cut_does_not_change_the_norm_beyond_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    update, sent = rng.standard_normal((2, SPAN + 5000), np.float32)
    whole = change_norm({"x": update}, {"x": [sent]})
    pieces = [sent[:3], sent[3:70_000], sent[70_000 : SPAN + 1], sent[SPAN + 1 :]]
    cut = change_norm({"x": update}, {"x": pieces})
    assert cut == pytest.approx(whole, rel=1e-7)
    one_core = norms.in_order
    monkeypatch.setattr(norms, "in_order", lambda work, spans: one_core(work, spans, cores=1))
    assert change_norm({"x": update}, {"x": [sent]}) == whole


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40_000, SPAN + 3])
def test_one_number_that_is_none_is_found_and_its_part_named(wrong: float, place: int) -> None:
    update, sent = np.zeros(SPAN + 4, np.float32), np.zeros(SPAN + 4, np.float32)
    update[place] = wrong
    with pytest.raises(ExchangeError, match="tensor 'decoder' holds NaN or infinity"):
        change_norm({"encoder": sent[:2], "decoder": update}, {"encoder": [sent[:2]], "decoder": [sent]})
