"""The second filter's network by finite differences, and what it does to a selection."""

import numpy as np
import pytest

from fedlingua.selection.second_filter import NEURONS, SIZE, drawn, keep_probability, network_gradient

MAGNITUDES = np.array([0.0, 1e-4, 0.01, 0.02, 0.5, 3.0], np.float32)


def test_it_begins_by_leaving_everything_in() -> None:
    for seed in range(20):
        assert (keep_probability(drawn(seed), MAGNITUDES) >= 0.5).mean() > 0.8
    assert drawn(1).tobytes() == drawn(1).tobytes() != drawn(2).tobytes()


def test_one_neuron_by_hand() -> None:
    network = np.zeros(SIZE, np.float32)
    network[0], network[NEURONS], network[2 * NEURONS], network[-1] = -1.0, 0.5, 2.0, -3.0
    # 0.01: input 0, hidden 0.5, output -2; 0 and 1e-9: input -2, hidden 2.5, output 2; 10: input 1, hidden 0, output -3
    told = keep_probability(network, np.array([0.01, 0.0, 1e-9, 10.0], np.float32))
    assert told == pytest.approx([1 / (1 + np.exp(-output)) for output in (-2, 2, 2, -3)], rel=1e-6)


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    network, slopes = drawn(3).astype(np.float64), rng.normal(size=len(MAGNITUDES))
    found = network_gradient(network, MAGNITUDES, slopes)
    for place in range(SIZE):
        step = np.zeros(SIZE)
        step[place] = 1e-6
        up, down = (float(slopes @ keep_probability(network + sign * step, MAGNITUDES)) for sign in (1, -1))
        assert found[place] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-8)
