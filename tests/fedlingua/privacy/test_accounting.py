"""Epsilon beside dp-accounting's own distributions, and noise that keeps to what was asked."""

import math

import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from fedlingua.privacy.accounting import Release, epsilon_of, noise_for, signature_epsilon


@pytest.mark.parametrize(("noise", "share", "steps"), [(0.8, 0.01, 50), (1.1, 0.1, 160), (2.0, 0.5, 20), (5.0, 0.3, 40)])
def test_epsilon_is_that_of_the_distribution_of_sampled_sums(noise: float, share: float, steps: int) -> None:
    whole = from_gaussian_mechanism(noise, sampling_prob=share).self_compose(steps)  # add-or-remove
    for delta in (1e-5, 1e-6):
        assert epsilon_of([Release(noise, share, steps)], delta) == pytest.approx(whole.get_epsilon_for_delta(delta), abs=1e-6)


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (2.68, 20), (8.92, 20), (3.0, 5)])
def test_epsilon_of_sums_over_all_sentences_is_both_the_distributions_and_the_closed_form(noise: float, steps: int) -> None:
    found = epsilon_of([Release(noise, 1.0, steps)], 1e-5)
    assert found == pytest.approx(from_gaussian_mechanism(noise).self_compose(steps).get_epsilon_for_delta(1e-5), abs=1e-6)
    assert found == pytest.approx(get_epsilon_gaussian(noise / steps**0.5, 1e-5), rel=1e-12)


def test_different_releases_compose_and_their_order_is_nothing() -> None:
    all_of = [Release(2.0), Release(3.0, 0.2, 10), Release(4.0, 1.0, 2), Release(3.0, 0.2, 5)]
    whole = from_gaussian_mechanism((1 / 4 + 2 / 16) ** -0.5)
    wanted = whole.compose(from_gaussian_mechanism(3.0, sampling_prob=0.2).self_compose(15)).get_epsilon_for_delta(1e-5)
    assert epsilon_of(all_of, 1e-5) == epsilon_of(all_of[::-1], 1e-5) == pytest.approx(wanted, abs=1e-6)
    assert epsilon_of(all_of, 1e-5) < sum(epsilon_of([each], 1e-5) for each in all_of)
    assert epsilon_of([], 1e-5) == 0.0


def test_k_signatures_of_half_the_noise_over_the_root_of_k_cost_what_clustering_says() -> None:
    assert epsilon_of([Release(2.0 / 2 / 2**0.5)], 1e-5) == signature_epsilon(2.0, 1e-5, 2)


@pytest.mark.parametrize(("epsilon", "share", "steps"), [(8.0, 1.0, 20), (1.0, 1.0, 3), (8.0, 0.1, 100), (2.0, 0.05, 40)])
def test_the_noise_costs_what_is_asked_at_most_and_hardly_less(epsilon: float, share: float, steps: int) -> None:
    noise = noise_for(epsilon, 1e-5, share, steps)
    assert epsilon_of([Release(noise, share, steps)], 1e-5) <= epsilon
    assert epsilon_of([Release(noise / 1.003, share, steps)], 1e-5) > epsilon


def test_noise_that_hides_nothing_has_a_price_beyond_any_budget_and_no_distribution_is_made() -> None:
    assert epsilon_of([Release(0.001)], 1e-5) > 1e5
    assert epsilon_of([Release(0.001), Release(1.0, 0.1)], 1e-5) == epsilon_of([Release(0.01, 0.1)], 1e-5) == float("inf")


def test_to_hide_a_whole_site_of_twelve_takes_hundreds_of_clips() -> None:
    noise = get_sigma_gaussian(8.0, 1e-5) * 20**0.5
    assert noise == pytest.approx(2.7, abs=0.05)
    assert (noise / 12, noise / 12 * 8.06e6**0.5) == (pytest.approx(0.22, abs=0.005), pytest.approx(635, abs=1))


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


@pytest.mark.parametrize(("epsilon", "delta", "steps"), [(8.0, 1e-5, 20), (1.0, 1e-6, 3), (2.0, 1e-5, 200)])
def test_noise_known_by_its_moments_costs_what_is_asked_and_a_tenth_more_than_gaussian_noise_at_most(
    epsilon: float, delta: float, steps: int
) -> None:
    noise = noise_for(epsilon, delta, 1.0, steps, moments=True)
    assert 0.995 * epsilon < epsilon_of([Release(noise, 1.0, steps, True)], delta) <= epsilon
    assert 1 < noise / noise_for(epsilon, delta, 1.0, steps) < 1.1
    assert epsilon_of([Release(noise, 1.0, steps, True)], delta) > epsilon_of([Release(noise, 1.0, steps)], delta)


def test_moments_are_those_of_whole_orders_at_what_is_left_of_delta() -> None:
    def of(delta: float) -> float:
        """Canonne et al. 2020, proposition 12, for the moments a / 2 z^2 of z = 3 and 5 steps."""
        return min(5 * a / 18 + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in (*range(2, 129), 256, 512, 1024))

    assert epsilon_of([Release(3.0, 1.0, 5, True)], 1e-5) == pytest.approx(of(1e-5), rel=1e-6)
    assert epsilon_of([Release(3.0, 1.0, 5, True)], 5e-11) == pytest.approx(of(3e-11), rel=1e-9)  # 4e-12 a step are missed
    assert epsilon_of([Release(3.0, 1.0, 5, True)], 2e-11) == math.inf


def test_where_one_release_is_known_by_its_moments_all_are_accounted_so() -> None:
    shared, own = Release(3.0, 1.0, 5, True), Release(2.0, 0.2, 10)
    both = epsilon_of([shared, own], 1e-5)
    assert both > epsilon_of([Release(3.0, 1.0, 5), own], 1e-5)
    assert (
        max(epsilon_of([each], 1e-5) for each in (shared, own)) < both < 1.2 * sum(epsilon_of([e], 1e-5) for e in (shared, own))
    )
