"""A site's optimizer: one step of each by hand, and a state that comes back bit for bit."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn

from fedlingua.training.optimizers import OPTIMIZERS, Numbers, optimizer_state, restore_optimizer

START, GRADIENT, RATE, DECAY, EPSILON = 2.0, 0.5, 0.1, 0.25, 1e-3


def parameter(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value]))


def stepped(name: str, gradients: list[float], decay: float) -> float:
    trained = parameter(START)
    optimizer = OPTIMIZERS[name]([trained], RATE, decay, EPSILON)
    for gradient in gradients:
        trained.grad = torch.tensor([gradient])
        optimizer.step()
    return float(trained.detach())


def test_sgd_steps_against_the_gradient_with_the_decay_in_it() -> None:
    assert stepped("sgd", [GRADIENT], 0.0) == pytest.approx(START - RATE * GRADIENT)
    assert stepped("sgd", [GRADIENT], DECAY) == pytest.approx(START - RATE * (GRADIENT + DECAY * START))


def test_sgd_has_no_momentum() -> None:
    """Manoel et al. 2022: the sites' SGD is stateless."""
    assert stepped("sgd", [GRADIENT, 0.0], 0.0) == stepped("sgd", [GRADIENT], 0.0)


def test_adamw_decays_beside_the_gradient_and_adam_in_it() -> None:
    """The first step: both moments are the gradient's own, once their bias is corrected."""
    moved = RATE * GRADIENT / (GRADIENT + EPSILON)
    assert stepped("adamw", [GRADIENT], DECAY) == pytest.approx(START - RATE * DECAY * START - moved)
    inside = GRADIENT + DECAY * START
    assert stepped("adam", [GRADIENT], DECAY) == pytest.approx(START - RATE * inside / (inside + EPSILON))
    assert stepped("adam", [GRADIENT], 0.0) == pytest.approx(START - moved)


def test_adams_second_step_remembers_the_first() -> None:
    first, second = GRADIENT, -0.25
    mean = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.9**2)
    square = (0.999 * 0.001 * first**2 + 0.001 * second**2) / (1 - 0.999**2)
    after_one = START - RATE * first / (first + EPSILON)
    assert stepped("adam", [first, second], 0.0) == pytest.approx(after_one - RATE * mean / (math.sqrt(square) + EPSILON))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_is_kept_goes_on_as_if_nothing_had_been(name: str) -> None:
    def at_once() -> dict[str, nn.Parameter]:
        trained = parameters()
        optimizer = OPTIMIZERS[name](list(trained.values()), RATE, DECAY, EPSILON)
        for number in range(4):
            step(optimizer, trained, number)
        return trained

    trained, kept = parameters(), dict[str, Numbers]()
    for number in range(4):
        optimizer = OPTIMIZERS[name](list(trained.values()), RATE, DECAY, EPSILON)
        restore_optimizer(optimizer, trained, kept)
        step(optimizer, trained, number)
        kept = optimizer_state(optimizer, trained)
    for key, value in at_once().items():
        assert trained[key].detach().numpy().tobytes() == value.detach().numpy().tobytes()
    assert all(array.dtype == np.float32 and array.ndim for array in kept.values())


def test_a_state_is_told_by_parameter_and_what_it_is() -> None:
    trained = parameters()
    optimizer = OPTIMIZERS["adam"](list(trained.values()), RATE, 0.0, EPSILON)
    assert optimizer_state(optimizer, trained) == {}
    step(optimizer, trained, 0)
    state = optimizer_state(optimizer, trained)
    assert set(state) == {f"{name}/{what}" for name in trained for what in ("step", "exp_avg", "exp_avg_sq")}
    assert state["layer.weight/step"].tolist() == [1.0]
    np.testing.assert_allclose(state["layer.weight/exp_avg"], 0.1 * trained["layer.weight"].grad.numpy(), rtol=1e-6)


def test_what_was_kept_is_no_view_of_what_goes_on() -> None:
    trained = parameters()
    optimizer = OPTIMIZERS["adam"](list(trained.values()), RATE, 0.0, EPSILON)
    step(optimizer, trained, 0)
    kept = optimizer_state(optimizer, trained)
    before = {key: value.copy() for key, value in kept.items()}
    other = OPTIMIZERS["adam"](list(trained.values()), RATE, 0.0, EPSILON)
    restore_optimizer(other, trained, kept)
    for _ in range(2):
        step(optimizer, trained, 1)
        step(other, trained, 1)
    assert all(np.array_equal(kept[key], before[key]) for key in kept)


def parameters() -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()}


SHAPES: Mapping[str, tuple[int, ...]] = {"layer.weight": (3, 2), "layer.bias": (3,)}


def step(optimizer: torch.optim.Optimizer, trained: Mapping[str, nn.Parameter], number: int) -> None:
    generator = torch.Generator().manual_seed(100 + number)
    for one in trained.values():
        one.grad = torch.randn(one.shape, generator=generator)
    optimizer.step()
