"""What the mean of a secure sum can be."""

import numpy as np
import pytest

from fedlingua.layers.summed import RISE, best_before, length, too_long


def test_the_length_of_a_mean_is_its_root_mean_square_by_rate_x_steps() -> None:
    change = np.array([0.03, -0.04, 0.0, 0.0], np.float32)
    assert length(change, np.full(5, 0.01)) == pytest.approx(0.025 / 0.05)


@pytest.mark.parametrize(
    ("own", "steps", "earlier", "said"),
    [
        (0.62, 6, [], None),  # the longest that was measured
        (0.92, 5, [], "by 5 steps up to 0.786 is taken"),  # what doubles the demo's dev loss in two rounds
        (0.75, 5, [0.2, 0.23, 0.21], "by the rounds before up to 0.447 is taken"),
        (0.44, 5, [0.1, 0.1], None),  # usual for five steps
        (0.55, 3, [0.27], None),  # controllers
        (0.6, 14, [0.4], None),
        (0.6, 14, [0.2], "by the rounds before up to 0.4 is taken"),
    ],
)
def test_a_mean_is_bounded_by_steps_and_by_earlier_rounds(own: float, steps: int, earlier: list[float], said: str | None) -> None:
    found = too_long(own, steps, earlier)
    assert said in found if said and found else found is said


def test_a_rise_of_the_dev_loss_is_seen_beside_the_best_round_and_by_the_newest_one_alone() -> None:
    assert best_before({}) is None
    assert best_before({0: 5.0, 1: 4.0, 2: 4.0 * RISE}) is None
    assert best_before({0: 5.0, 1: 4.0, 2: 4.1 * RISE}) == 1
    assert best_before({0: 5.0, 1: 9.0, 2: 5.5}) is None
    assert best_before({0: 5.0, 1: 9.0}) == 0
