"""Perplexity and accuracy by hand, of sums that add up."""

import math
from dataclasses import replace

import pytest

from fedlingua.evaluation.perplexity import MaskedScores, accuracy, perplexity, split_perplexity

TWO = math.log(2)
ONE = MaskedScores(3, (TWO, 4 * TWO, 0.0, 6 * TWO), (1, 2, 1, 2), (0, 1, 1, 1), 0b1100)
"""Parts of perplexity 2, 4, 1 and 8; of 6 pieces together 11/6 bits a piece."""


def test_perplexity_is_exp_of_the_mean_over_all_pieces_and_not_a_mean_of_parts() -> None:
    assert perplexity(ONE) == pytest.approx(2 ** (11 / 6))


def test_accuracy_is_the_share_guessed() -> None:
    assert accuracy(ONE) == 3 / 6


def test_the_parts_have_a_mean_and_a_sample_deviation() -> None:
    mean, deviation = split_perplexity(ONE)
    assert mean == pytest.approx((2 + 4 + 1 + 8) / 4)
    assert deviation == pytest.approx(math.sqrt((1.75**2 + 0.25**2 + 2.75**2 + 4.25**2) / 3))


def test_an_empty_part_is_no_part() -> None:
    two = replace(ONE, nll=(TWO, 0.0, 0.0, 3 * TWO), tokens=(1, 0, 0, 1), correct=(0, 0, 0, 0))
    assert split_perplexity(two) == (pytest.approx(5.0), pytest.approx(math.sqrt(18)))
    one = replace(two, nll=(TWO, 0.0, 0.0, 0.0), tokens=(1, 0, 0, 0))
    assert split_perplexity(one) == (pytest.approx(2.0), 0.0)


def test_sums_of_two_texts_are_those_of_both_together() -> None:
    other = MaskedScores(2, (0.0, 0.0, 1.0, 0.0), (4, 0, 1, 1), (4, 0, 0, 1), 0b1010)
    both = ONE + other
    assert both == other + ONE
    assert both == MaskedScores(5, (TWO, 4 * TWO, 1.0, 6 * TWO), (5, 2, 2, 3), (4, 1, 1, 2), 0b0110)
    assert perplexity(both) == pytest.approx(math.exp((11 * TWO + 1.0) / 12))


def test_a_record_holds_what_it_was_made_of() -> None:
    record = ONE.record()
    assert record["tokens"] == [1, 2, 1, 2]
    assert set(record) == {"sentences", "nll", "tokens", "correct", "masks"}
