"""Rates by hand: what share of the rate each of a few steps has."""

import math

import pytest

from fedlingua.settings.schedules import SCHEDULES, rate_share


def shares(schedule: str, steps: int, warmup: int) -> list[float]:
    return [rate_share(schedule, step, steps, warmup) for step in range(steps)]


@pytest.mark.parametrize(
    ("schedule", "warmup", "wanted"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1]),
        ("linear", 0, [1, 0.75, 0.5, 0.25]),
        ("linear", 2, [0.5, 1, 1, 0.5]),
        ("cosine", 0, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
        ("cosine", 2, [0.5, 1, 1, 0.5]),
        ("inverse-sqrt", 0, [1, math.sqrt(1 / 2), math.sqrt(1 / 3), 0.5]),
        ("inverse-sqrt", 2, [0.5, 1, math.sqrt(2 / 3), math.sqrt(2 / 4)]),
    ],
)
def test_shares_by_hand(schedule: str, warmup: int, wanted: list[float]) -> None:
    assert shares(schedule, 4, warmup) == pytest.approx(wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_warm_up_longer_than_all_steps_only_rises(schedule: str) -> None:
    assert shares(schedule, 3, 10) == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_share_is_negative_or_above_one(schedule: str) -> None:
    assert all(0 <= rate_share(schedule, step, 5, 2) <= 1 for step in range(5))
    assert rate_share(schedule, 0, 1, 0) == 1
