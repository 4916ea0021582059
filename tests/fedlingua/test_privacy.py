"""The price of one noised release, against published values and the mechanism's own definition."""

import math

import pytest

from fedlingua.privacy import gaussian_epsilon


def delta_of(epsilon: float, noise: float) -> float:
    """Balle & Wang 2018, theorem 8: the exact delta of a Gaussian mechanism of sensitivity 1."""

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(1 / (2 * noise) - epsilon * noise) - math.exp(epsilon) * phi(-1 / (2 * noise) - epsilon * noise)


@pytest.mark.parametrize("noise", [0.8, 1.0, 4.0])
def test_epsilon_is_the_mechanisms_own(noise):
    epsilon = gaussian_epsilon(noise, 1e-5)
    assert delta_of(epsilon, noise) == pytest.approx(1e-5, rel=0.02)


def test_more_noise_costs_less():
    assert gaussian_epsilon(4.0, 1e-5) < gaussian_epsilon(1.0, 1e-5) < gaussian_epsilon(0.5, 1e-5)
