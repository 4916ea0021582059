"""The price of one private signature, against the mechanism's own definition."""

import math

import pytest

from fedlingua.clustering.privacy import signature_epsilon


def delta_of(epsilon: float, noise: float) -> float:
    """Balle & Wang 2018, theorem 8: the exact delta of a Gaussian mechanism of deviation `noise` and sensitivity 2."""

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(1 / noise - epsilon * noise / 2) - math.exp(epsilon) * phi(-1 / noise - epsilon * noise / 2)


@pytest.mark.parametrize("noise", [0.8, 2.0, 8.0])
def test_epsilon_is_the_mechanisms_own(noise):
    epsilon = signature_epsilon(noise, 1e-5)
    assert delta_of(epsilon, noise) == pytest.approx(1e-5, rel=0.02)


def test_more_noise_costs_less():
    assert signature_epsilon(8.0, 1e-5) < signature_epsilon(2.0, 1e-5) < signature_epsilon(0.5, 1e-5)


@pytest.mark.parametrize("number", [2, 5])
def test_several_signatures_together_cost_what_their_sum_in_all_dimensions_does(number):
    """A Gaussian mechanism in several blocks is one whose sensitivity is the root of the sum of squares."""
    epsilon = signature_epsilon(4.0, 1e-5, number)
    assert delta_of(epsilon, 4.0 / math.sqrt(number)) == pytest.approx(1e-5, rel=0.02)
    assert signature_epsilon(4.0, 1e-5) < epsilon < number * signature_epsilon(4.0, 1e-5)
