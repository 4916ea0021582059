"""Shares of a batch: everybody's together are the batch, and one process alone has all of it."""

import random

import pytest

from fedlingua.training.crew import ALONE, Crew


class OneOf(Crew):
    """A process that adds nothing up."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("examples", [0, 1, 5, 16])
def test_shares_are_the_batch_and_as_many_as_can_be_alike(size: int, examples: int) -> None:
    batch = random.Random(1).sample(range(100), examples)
    shares = [OneOf(number, size).share(batch) for number in range(size)]
    assert sorted(one for share in shares for one in share) == sorted(batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_alone_takes_all_and_leaves_the_sums() -> None:
    assert ALONE.share([3, 1, 2]) == [3, 1, 2]
    assert ALONE.add_up([], [(1.5, 2, 1), (0.5, 1, 1)]) == [(1.5, 2, 1), (0.5, 1, 1)]
