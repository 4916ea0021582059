"""Norm, finiteness and digest of an update, by hand, and the same however its numbers are cut."""

import math
from typing import Any

import numpy as np
import pytest

from fedlingua.errors import ExchangeError
from strategies import measures
from strategies.measures import SPAN, measure

Array = np.ndarray[Any, Any]


def array(*numbers: float) -> Array:
    return np.array(numbers, dtype=np.float32)


def norm(parts: dict[str, Array], sent: dict[str, list[Array]]) -> float:
    return measure(parts, sent).norm


def test_the_norm_of_a_change_is_that_of_all_parts_together() -> None:
    sent = {"x": [array(1), array(1)], "y": [array(5)]}
    assert norm({"x": array(3, 4), "y": array(11)}, sent) == pytest.approx(math.sqrt(4 + 9 + 36))
    assert norm({"x": array(1, 1), "y": array(5)}, sent) == 0


def test_the_norm_does_not_overflow_where_float32_would() -> None:
    """(3e38 - -3e38) is no float32, and its square no float32 either."""
    assert norm({"x": array(3e38, 0)}, {"x": [array(-3e38, 0)]}) == pytest.approx(6e38)
    assert norm({"x": array(1e30, 0)}, {"x": [array(0, 0)]}) == pytest.approx(1e30)


def test_the_norm_does_not_vanish_where_float32_would() -> None:
    assert norm({"x": array(3e-30, 4e-30)}, {"x": [array(0, 0)]}) == pytest.approx(5e-30)


def test_a_small_change_of_large_numbers_is_not_lost() -> None:
    assert norm({"x": array(16777216)}, {"x": [array(16777218)]}) == 2


def test_the_norm_of_many_numbers_is_that_of_float64() -> None:
    rng = np.random.default_rng(1)
    update, sent = rng.standard_normal((2, 2 * SPAN + 777), np.float32)
    exact = np.linalg.norm(update.astype(np.float64) - sent)
    assert norm({"x": update}, {"x": [sent]}) == pytest.approx(exact, rel=1e-7)


def test_where_the_numbers_are_cut_changes_neither_norm_nor_digest_beyond_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    update, sent = rng.standard_normal((2, SPAN + 5000), np.float32)
    whole = measure({"x": update}, {"x": [sent]})
    pieces = [sent[:3], sent[3:70_000], sent[70_000 : SPAN + 1], sent[SPAN + 1 :]]
    cut = measure({"x": update}, {"x": pieces})
    assert cut.digest == whole.digest
    assert cut.norm == pytest.approx(whole.norm, rel=1e-7)
    one_core = measures.in_order
    monkeypatch.setattr(measures, "in_order", lambda work, spans: one_core(work, spans, cores=1))
    assert measure({"x": update}, {"x": [sent]}) == whole


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40_000, SPAN + 3])
def test_one_number_that_is_none_is_found_and_its_part_named(wrong: float, place: int) -> None:
    update, sent = np.zeros(SPAN + 4, np.float32), np.zeros(SPAN + 4, np.float32)
    update[place] = wrong
    with pytest.raises(ExchangeError, match="tensor 'decoder' holds NaN or infinity"):
        measure({"encoder": sent[:2], "decoder": update}, {"encoder": [sent[:2]], "decoder": [sent]})


def test_a_digest_is_of_the_numbers_in_their_order() -> None:
    def digest(*numbers: float) -> str:
        return measure({"x": array(*numbers)}, {"x": [np.zeros(len(numbers), np.float32)]}).digest

    assert digest(1, 2) == digest(1, 2)
    assert len({digest(1, 2), digest(2, 1), digest(1, 2, 0), digest(1, np.nextafter(np.float32(2), np.float32(3)))}) == 4


def test_a_digest_does_not_depend_on_what_was_sent() -> None:
    """A replayed update is measured against the next round's tensors."""
    one, other = (measure({"x": array(1, 2)}, {"x": [array(start, 0)]}) for start in (5, 7))
    assert one.digest == other.digest
    assert one.norm != other.norm
