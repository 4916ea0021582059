"""The estimators of MetaSend's gradient (eq. 5), against finite differences on two sites that want different things."""

import math
from functools import cache
from random import Random

import numpy as np
import pytest

from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec
from fedlingua.selection.meta_gradient import (
    bounded,
    bytes_slope,
    gate_slope,
    mean_over_sites,
    own_slope,
    products,
    score_slope,
)
from fedlingua.selection.rules import Keep
from tests.soft_gates import gate

# L_j(W) = a_j / 2 |W - c_j|^2, and each site has moved towards its own c_j: what is good for one is bad for the other.
SET = TensorSet(
    "toy", (TensorSpec("x", (2, 2), "encoder", 0), TensorSpec("y", (3,), "encoder", 0), TensorSpec("z", (1,), "decoder", 0))
)
START = {
    "x": np.array([[1, -1], [0.5, 2]], np.float32),
    "y": np.array([0.2, 0.1, -0.3], np.float32),
    "z": np.array([4], np.float32),
}
WANTED = {
    "a": {"x": np.array([[3.0, -1], [0.5, 2]]), "y": np.array([1, -1, 1.0]), "z": np.array([5.0])},
    "b": {"x": np.array([[-2.0, 0], [1.5, 2]]), "y": np.array([-2, 1, 0.0]), "z": np.array([1.0])},
}
CURVATURES = {"a": 1.0, "b": 3.0}
STEPS = {"a": 0.6, "b": 0.4}
WEIGHTS = {"a": 0.25, "b": 0.75}
"""In the cluster"""
SHARES = {"a": 0.4, "b": 0.6}
"""In L_val"""
DEVIATIONS = {"a": {"x": 0.45, "y": 0.62, "z": 0.1}, "b": {"x": 0.8, "y": 0.5, "z": 0.55}}
THETA, TAU = 0.5, 0.1
KEEPS: list[Keep] = ["g", "l"]

UPDATES: dict[str, Tensors] = {
    site: {name: (start + STEPS[site] * (WANTED[site][name] - start)).astype(np.float32) for name, start in START.items()}
    for site in "ab"
}


def change(site: str, name: str):
    return UPDATES[site][name].astype(np.float64) - START[name]


def folded(theta: float, keep: Keep):
    """W_s under soft gates, a tensor that is not sent counting as before."""
    return {
        name: start + sum(WEIGHTS[k] * gate(DEVIATIONS[k][name], theta, TAU, keep) * change(k, name) for k in "ab")
        for name, start in START.items()
    }


def loss(site: str, tensors) -> float:
    return sum(CURVATURES[site] / 2 * float(np.square(tensors[name] - WANTED[site][name]).sum()) for name in START)


def validation_loss(theta: float, keep: Keep) -> float:
    return sum(SHARES[site] * loss(site, folded(theta, keep)) for site in "ab")


def true_slope(keep: Keep, step: float = 1e-5) -> float:
    return (validation_loss(THETA + step, keep) - validation_loss(THETA - step, keep)) / (2 * step)


def gradients(site: str, keep: Keep) -> Tensors:
    return {name: CURVATURES[site] * (there - WANTED[site][name]) for name, there in folded(THETA, keep).items()}


def own_of(site: str, keep: Keep) -> float:
    of_tensors = products(gradients(site, keep), START, UPDATES[site])
    return own_slope(of_tensors, WEIGHTS[site], DEVIATIONS[site], THETA, TAU, keep)


def own(keep: Keep) -> float:
    return mean_over_sites({site: own_of(site, keep) for site in "ab"}, SHARES)


# --- own -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", KEEPS)
def test_own_misses_what_each_site_does_to_the_others_and_nothing_else(keep: Keep) -> None:
    missed = sum(
        SHARES[j]
        * WEIGHTS[k]
        * float(gate_slope(DEVIATIONS[k][name], THETA, TAU, keep))
        * float((gradients(j, keep)[name] * change(k, name)).sum())
        for j, k in ("ab", "ba")
        for name in START
    )
    assert abs(missed) > 0.3 * abs(true_slope(keep))  # the sites are at odds
    assert own(keep) == pytest.approx(true_slope(keep) - missed, rel=1e-5)


def test_one_tensor_by_hand() -> None:
    """At theta itself a gate of g falls by 1 / (4 tau)."""
    start, update, gradient = ({"w": np.array([number], np.float32)} for number in (1.0, 3.0, 4.0))
    of_tensors = products(gradient, start, update)
    assert of_tensors == {"w": 8.0}
    assert own_slope(of_tensors, 0.5, {"w": 0.5}, 0.5, 0.1, "g") == pytest.approx(-2.5 * 0.5 * 8)


def test_what_has_no_deviation_adds_nothing() -> None:
    of_one = {name: DEVIATIONS["a"][name] if name == "y" else math.inf for name in START}
    of_tensors = products(gradients("a", "g"), START, UPDATES["a"])
    assert own_slope(of_tensors, 1.0, of_one, THETA, TAU, "g") == own_slope({"y": of_tensors["y"]}, 1.0, of_one, THETA, TAU, "g")


def test_only_those_who_answered_count_and_one_that_is_no_number_spoils_the_slope() -> None:
    assert mean_over_sites({"a": 2.0, "b": -4.0}, {"a": 1.0, "b": 3.0}) == pytest.approx(0.5 - 3)
    assert mean_over_sites({"b": -4.0}, {"a": 1.0, "b": 3.0}) == -4.0
    assert math.isnan(mean_over_sites({"a": math.inf, "b": -math.inf}, SHARES))
    assert math.isnan(mean_over_sites({}, SHARES))
    spoilt = {"x": np.array([np.inf, 1], np.float32)}
    still = {"x": np.zeros(2, np.float32)}
    assert math.isnan(products(spoilt, still, still)["x"])


# --- loss ----------------------------------------------------------------------------------------------------------------------


def hard_loss(theta: float) -> float:
    """L_val when tensors are sent or not, as in a round: a staircase."""
    return stair(tuple((k, name) for k in "ab" for name in START if DEVIATIONS[k][name] >= abs(theta)))


@cache
def stair(sent: tuple[tuple[str, str], ...]) -> float:
    tensors = {name: start.astype(np.float64) for name, start in START.items()}
    for k, name in sent:
        tensors[name] += WEIGHTS[k] * change(k, name)
    return sum(SHARES[site] * loss(site, tensors) for site in "ab")


@pytest.mark.parametrize("mu", [0.1, 0.5, 0.7])
def test_the_scores_mean_is_the_slope_of_the_smoothed_loss(mu: float) -> None:
    """At mu = 0.1 every fourth draw lies below 0."""
    sigma, number, step = 0.15, 20_000, 1e-3
    grid = np.arange(mu - 8 * sigma, mu + 8 * sigma, step)
    losses = np.array([hard_loss(theta) for theta in grid])

    def smoothed(centre: float) -> float:
        bell = np.exp(-np.square((grid - centre) / sigma) / 2) / (sigma * math.sqrt(2 * math.pi))
        return float((losses * bell).sum()) * step

    wanted = (smoothed(mu + 1e-3) - smoothed(mu - 1e-3)) / 2e-3
    random, baseline = Random(1), hard_loss(mu)
    drawn = [random.gauss(mu, sigma) for _ in range(number)]
    slopes = [score_slope(hard_loss(theta), baseline, theta, mu, sigma) for theta in drawn]
    error = np.std(slopes) / math.sqrt(number)
    assert abs(np.mean(slopes) - wanted) < 3 * error
    assert error < 0.1 * abs(wanted)


def test_a_score_by_hand() -> None:
    assert score_slope(loss=5, baseline=3, theta=0.7, mu=0.5, sigma=0.2) == pytest.approx(2 * 0.2 / 0.04)


# --- bytes ---------------------------------------------------------------------------------------------------------------------

SIZES = np.array([4, 3, 1])
ARRAYS = {site: np.array(list(of_site.values())) for site, of_site in DEVIATIONS.items()}


def soft_share(theta: float, keep: Keep) -> float:
    """Share of a site's numbers that soft gates let through, mean over sites."""
    return float(np.mean([SIZES @ gate(each, theta, TAU, keep) / SIZES.sum() for each in ARRAYS.values()]))


@pytest.mark.parametrize("keep", KEEPS)
def test_the_slope_of_the_bytes_is_that_of_the_share_that_soft_gates_let_through(keep: Keep) -> None:
    step = 1e-6
    wanted = (soft_share(THETA + step, keep) - soft_share(THETA - step, keep)) / (2 * step)
    assert bytes_slope(ARRAYS, SIZES, THETA, TAU, keep) == pytest.approx(wanted, rel=1e-6)


def test_the_share_counts_numbers_not_tensors() -> None:
    """At theta itself a gate falls by 1 / (4 tau); one of 4 numbers of 8 at one of two sites."""
    deviations = {"a": np.array([0.5, 9, 9]), "b": np.array([9, 9, math.inf])}
    assert bytes_slope(deviations, SIZES, 0.5, 0.1, "g") == pytest.approx(-2.5 * 4 / 8 / 2)
    assert bytes_slope({"a": np.array([0.5])}, np.array([7]), 0.5, 0.1, "l") == pytest.approx(2.5)


def test_one_huge_answer_is_bounded_by_the_median_and_keeps_its_sign() -> None:
    values = {"a": 0.1, "b": -0.3, "c": 0.2, "d": -1e18}
    assert bounded(values, 2.5) == {"a": 0.1, "b": -0.3, "c": 0.2, "d": pytest.approx(-2.5 * 0.25)}
    assert bounded(values, 0.0) == values
    assert bounded({"a": 0.1, "d": -1e18}, 1.5) == {"a": 0.1, "d": -1e18}  # of two, 1.5 times the median would be 0.75e18
    with_zeros = {"a": 0.0, "b": 0.0, "c": 0.0, "d": -1e18, "e": 0.5, "f": 0.5}
    assert bounded(with_zeros, 2.5) == {**with_zeros, "d": -1.25}
    assert bounded(dict.fromkeys("abc", 0.0), 2.5) == dict.fromkeys("abc", 0.0)
    assert bounded({}, 2.5) == {}
