"""Alpha's update: its sign and size against finite differences, the best alpha of a quadratic, and what it leaves alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.training.batches import pad
from fedlingua.training.loop import train_locally
from fedlingua.training.objective import corpus_gradient, corpus_nll
from fedlingua_lab.mixtures import START, alpha_slope, alpha_step, interpolated, learn_in_mixture

HOW = Settings(batch_size=4, accumulation=2, local_epochs=2, learning_rate=1e-2, whole_steps=False)
SGD = replace(HOW, batch_size=30, accumulation=1, optimizer="sgd", learning_rate=1.0)


class Quadratic:
    """L(theta) = 1/2 |theta - best|^2 between theta and theta_i."""

    def __init__(self, federated: list[float], personal: list[float], best: list[float]) -> None:
        self.federated, self.personal = ({"w": np.array(one, np.float32)} for one in (federated, personal))
        self.best = np.array(best, np.float32)

    def loss(self, alpha: float) -> float:
        between = alpha * self.personal["w"].astype(float) + (1 - alpha) * self.federated["w"].astype(float)
        return float(0.5 * np.sum((between - self.best) ** 2))

    def gradient(self, alpha: float) -> Tensors:
        return {"w": interpolated(self.federated, self.personal, alpha)["w"] - self.best}

    def slope(self, alpha: float) -> float:
        return alpha_slope(self.gradient(alpha), self.federated, self.personal)


@pytest.fixture
def trainable(tiny_run_config) -> Trainable:
    torch.set_num_threads(1)
    return build_trainable(settings_from({**tiny_run_config, "method": "adapter-fed"}))


def moved(tensors: Tensors, by: float) -> Tensors:
    rng = np.random.default_rng(3)
    return {name: array + rng.normal(0, by, array.shape).astype(np.float32) for name, array in tensors.items()}


def test_the_slope_of_a_quadratic_is_the_one_that_finite_differences_find_and_not_its_opposite() -> None:
    one = Quadratic([0.0], [1.0], [0.995])
    by_differences = (one.loss(0.5 + 1e-4) - one.loss(0.5 - 1e-4)) / 2e-4
    assert by_differences == pytest.approx(-0.495, abs=1e-6)
    assert one.slope(0.5) == pytest.approx(-0.495, abs=1e-6)
    # FLUTE's order of arguments, its sign.
    assert alpha_slope(one.gradient(0.5), one.personal, one.federated) == pytest.approx(0.495, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_the_slope_of_a_real_model_is_the_one_that_finite_differences_find(trainable, examples, alpha) -> None:
    model, names = trainable.model, trainable.trained.names
    federated, batch = trainable.initial, pad(examples, trainable.backbone.codec)
    train_locally(model, names, [examples], trainable.backbone.codec, replace(HOW, local_epochs=8), "seed")
    personal = read_tensors(model, trainable.trained)

    def loss(value: float) -> float:
        write_tensors(model, interpolated(federated, personal, value))
        nll_sum, tokens = corpus_nll(model, [batch])
        return nll_sum / tokens

    by_differences = (loss(alpha + 0.01) - loss(alpha - 0.01)) / 0.02
    write_tensors(model, interpolated(federated, personal, alpha))
    _, _, gradient = corpus_gradient(model, names, [batch])
    assert abs(by_differences) > 0.01
    assert alpha_slope(gradient, federated, personal) == pytest.approx(by_differences, rel=0.02)


@pytest.mark.parametrize(("best", "end"), [(0.3, 0.3), (5.0, 1.0), (-5.0, 0.0)])
def test_steps_down_the_slope_reach_the_best_alpha_that_is_a_share(best: float, end: float) -> None:
    one, alpha = Quadratic([0.0], [1.0], [best]), START
    for _ in range(60):
        alpha = alpha_step(alpha, one.slope(alpha), 0.2)
    assert alpha == pytest.approx(end, abs=1e-6)


def test_a_slope_that_is_no_number_makes_alpha_none_instead_of_0(trainable, examples) -> None:
    broken = {name: np.full_like(array, np.nan) for name, array in trainable.initial.items()}
    _, alpha = learn_in_mixture(broken, trainable, [examples], HOW, 1.0, "seed")
    assert math.isnan(alpha)


def test_a_tensor_that_the_loss_does_not_reach_adds_nothing() -> None:
    one = Quadratic([0.0], [1.0], [0.5])
    other = {"v": np.ones(1, np.float32)}
    assert alpha_slope(one.gradient(0.25), {**one.federated, **other}, {**one.personal, "v": 9 * other["v"]}) == one.slope(0.25)


def by_hand(trainable: Trainable, examples, steps: int, alpha_rate: float) -> tuple[Tensors, list[float]]:
    """Algorithm 1 with plain SGD and all text a step: both take the gradient of the mixture, the own model alpha times it."""
    federated, own, path = trainable.initial, {name: array.copy() for name, array in trainable.initial.items()}, [START]
    for _ in range(steps):
        alpha = path[-1]
        write_tensors(trainable.model, interpolated(federated, own, alpha))
        batch = pad(examples, trainable.backbone.codec)
        _, _, gradient = corpus_gradient(trainable.model, trainable.trained.names, [batch])
        path.append(alpha_step(alpha, alpha_slope(gradient, federated, own), alpha_rate))
        own = {name: array - np.float32(SGD.learning_rate * alpha) * gradient.get(name, 0) for name, array in own.items()}
    return own, path


def test_the_own_model_and_alpha_learn_at_the_mixture_as_in_algorithm_1(trainable, examples) -> None:
    for module in trainable.model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    learned, alpha = learn_in_mixture(trainable.initial, trainable, [examples], replace(SGD, local_epochs=4), 50.0, "seed")
    personal, path = by_hand(trainable, examples, 4, 50.0)
    # Before its first step the own model is the federation's: no alpha is better than another.
    assert path[:2] == [START, START]
    assert path[2] != START
    assert alpha == pytest.approx(path[-1], abs=1e-4)
    change = {name: array - trainable.initial[name] for name, array in personal.items()}
    assert max(np.abs(array).max() for array in change.values()) > 1e-3
    for name, array in learned.items():
        assert np.allclose(array - trainable.initial[name], change[name], atol=2e-5), name


def test_the_same_seed_gives_the_same_mixture_and_the_federations_model_stays(trainable, examples) -> None:
    start = {name: array.tobytes() for name, array in trainable.initial.items()}
    (first, alpha), (again, alpha_again), (_, other) = (
        learn_in_mixture(trainable.initial, trainable, [examples], HOW, 1.0, seed) for seed in "aab"
    )
    assert alpha == alpha_again != other
    assert all(np.array_equal(array, again[name]) for name, array in first.items())
    assert {name: array.tobytes() for name, array in trainable.initial.items()} == start
