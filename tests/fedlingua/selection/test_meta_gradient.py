"""The three estimators of MetaSend's gradient (eq. 5), against finite differences on two sites that want different things."""

import math
from functools import cache
from random import Random

import numpy as np
import pytest

from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec
from fedlingua.selection import meta_gradient
from fedlingua.selection.gates import Keep, gate, gate_slope
from fedlingua.selection.meta_gradient import (
    bytes_slope,
    direction,
    inner_product,
    mean_over_sites,
    own_slope,
    score_slope,
    soft_share,
)

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


def cross(keep: Keep, updates=UPDATES) -> float:
    towards = direction(START, updates, WEIGHTS, DEVIATIONS, THETA, TAU, keep)
    return mean_over_sites({site: inner_product(gradients(site, keep), towards) for site in "ab"}, SHARES)


def own(keep: Keep) -> float:
    answers = {
        site: own_slope(gradients(site, keep), START, UPDATES[site], WEIGHTS[site], DEVIATIONS[site], THETA, TAU, keep)
        for site in "ab"
    }
    return mean_over_sites(answers, SHARES)


# --- cross and own -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", KEEPS)
def test_cross_is_the_slope_of_the_validation_loss(keep: Keep) -> None:
    assert cross(keep) == pytest.approx(true_slope(keep), rel=1e-5)


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
    start, update = {"w": np.array([1.0], np.float32)}, {"w": np.array([3.0], np.float32)}
    towards = direction(start, {"a": update}, {"a": 0.5}, {"a": {"w": 0.5}}, 0.5, 0.1, "g")
    assert towards["w"] == pytest.approx([-2.5 * 0.5 * 2])
    assert inner_product({"w": np.array([4.0], np.float32)}, towards) == pytest.approx(-10)
    assert own_slope({"w": np.array([4.0], np.float32)}, start, update, 0.5, {"w": 0.5}, 0.5, 0.1, "g") == pytest.approx(-10)


def test_what_was_not_sent_adds_nothing_and_what_nobody_sent_does_not_travel() -> None:
    sent = {"a": {"x": UPDATES["a"]["x"]}, "b": {name: UPDATES["b"][name] for name in ("x", "y")}}
    towards = direction(START, sent, WEIGHTS, DEVIATIONS, THETA, TAU, "g")
    assert [(name, tensor.shape, tensor.dtype) for name, tensor in towards.items()] == [
        ("x", (2, 2), "float32"),
        ("y", (3,), "float32"),
    ]
    alone = direction(START, {"b": sent["b"]}, WEIGHTS, DEVIATIONS, THETA, TAU, "g")
    assert towards["y"].tobytes() == alone["y"].tobytes()
    assert direction(START, {"a": {}, "b": {}}, WEIGHTS, DEVIATIONS, THETA, TAU, "g") == {}


def test_a_tensor_that_no_theta_moves_does_not_travel() -> None:
    endless = {site: {**of_site, "z": math.inf} for site, of_site in DEVIATIONS.items()}
    assert list(direction(START, UPDATES, WEIGHTS, endless, THETA, TAU, "l")) == ["x", "y"]
    with_it, without = UPDATES["a"], {name: UPDATES["a"][name] for name in "xy"}
    of_both = [
        own_slope(gradients("a", "g"), START, tensors, 0.25, endless["a"], THETA, TAU, "g") for tensors in (with_it, without)
    ]
    assert of_both[0] == of_both[1]


def test_neither_blocks_nor_where_the_numbers_lie_change_a_byte_of_the_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = direction(START, UPDATES, WEIGHTS, DEVIATIONS, THETA, TAU, "g")
    answer = inner_product(gradients("a", "g"), whole)
    monkeypatch.setattr(meta_gradient, "BLOCK", 2)
    joined = {site: Joined(join(tensors, SET), SET) for site, tensors in UPDATES.items()}
    cut = direction(START, joined, WEIGHTS, DEVIATIONS, THETA, TAU, "g")
    assert {name: tensor.tobytes() for name, tensor in cut.items()} == {name: tensor.tobytes() for name, tensor in whole.items()}
    assert inner_product(gradients("a", "g"), Joined(join(cut, SET), SET)) == pytest.approx(answer, rel=1e-12)


def test_only_those_who_answered_count_and_one_that_is_no_number_spoils_the_slope() -> None:
    assert mean_over_sites({"a": 2.0, "b": -4.0}, {"a": 1.0, "b": 3.0}) == pytest.approx(0.5 - 3)
    assert mean_over_sites({"b": -4.0}, {"a": 1.0, "b": 3.0}) == -4.0
    assert math.isnan(mean_over_sites({"a": math.inf, "b": -math.inf}, SHARES))
    assert math.isnan(mean_over_sites({}, SHARES))
    spoilt = {"x": np.array([np.inf, 1], np.float32)}
    assert math.isnan(inner_product(spoilt, {"x": np.array([0, 1], np.float32)}))


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

SIZES = {"x": 4, "y": 3, "z": 1}


@pytest.mark.parametrize("keep", KEEPS)
def test_the_slope_of_the_bytes_is_that_of_the_share_that_soft_gates_let_through(keep: Keep) -> None:
    step = 1e-6
    shares = [soft_share(DEVIATIONS, SIZES, THETA + way * step, TAU, keep) for way in (1, -1)]
    assert bytes_slope(DEVIATIONS, SIZES, THETA, TAU, keep) == pytest.approx((shares[0] - shares[1]) / (2 * step), rel=1e-6)


def test_the_share_counts_numbers_not_tensors() -> None:
    deviations = {"a": {"x": 0.9, "y": 0.1, "z": 0.1}, "b": {"x": 0.1, "y": 0.9, "z": math.inf}}
    assert soft_share(deviations, SIZES, 0.5, 1e-3, "g") == pytest.approx((4 / 8 + 4 / 8) / 2)
    assert soft_share(deviations, SIZES, 0.5, 1e-3, "l") == pytest.approx(0.5)
    assert bytes_slope({"a": {"w": 0.5}}, {"w": 7}, 0.5, 0.1, "g") == pytest.approx(-2.5)
