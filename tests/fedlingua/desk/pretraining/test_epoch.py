"""What an epoch sees of texts of different sizes."""

from collections import Counter
from random import Random

import pytest

from fedlingua.desk.pretraining.material import epoch, epoch_sizes

TEXTS = [[("big", number) for number in range(800)], [], [("small", number) for number in range(8)]]


def test_shares_are_sizes_to_the_power_of_one_over_the_temperature() -> None:
    """800 and 8 at a temperature of 2: sqrt(100) : 1 of 808."""
    assert epoch_sizes([800, 8], 2.0) == [round(808 * 10 / 11), round(808 / 11)] == [735, 73]
    assert epoch_sizes([800, 8], 1.0) == [800, 8]
    assert epoch_sizes([800, 8], 1e9) == [404, 404]


def test_no_text_is_left_out_however_small() -> None:
    assert epoch_sizes([10**6, 1], 1.0) == [10**6, 1]
    assert min(epoch_sizes([10**6] * 50 + [1], 1.05)) >= 1


def test_an_epoch_has_the_shares_that_it_should() -> None:
    drawn = Counter(text for text, _ in epoch(TEXTS, 2.0, Random(1)))
    assert drawn == {"big": 735, "small": 73}


def test_at_a_temperature_of_one_every_example_is_seen_once_and_nothing_is_drawn() -> None:
    rng = Random(1)
    before = rng.getstate()
    assert epoch(TEXTS, 1.0, rng) == [*TEXTS[0], *TEXTS[2]]
    assert rng.getstate() == before


def test_examples_of_one_text_are_seen_alike_often() -> None:
    """73 of 8: each nine times, one of them ten times; 735 of 800: none twice."""
    times = Counter(epoch(TEXTS, 2.0, Random(1)))
    assert sorted(times[one] for one in TEXTS[2]) == [9] * 7 + [10]
    assert {times[one] for one in TEXTS[0]} == {0, 1}


def test_the_generator_decides_what_is_drawn_and_epochs_differ() -> None:
    rng = Random(1)
    first, second = epoch(TEXTS, 2.0, rng), epoch(TEXTS, 2.0, rng)
    assert first == epoch(TEXTS, 2.0, Random(1))
    assert first != second


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_of_no_text_there_is_nothing_to_see(temperature: float) -> None:
    assert epoch([[], []], temperature, Random(1)) == []
