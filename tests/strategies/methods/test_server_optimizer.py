"""The server's optimizers: held to torch's own, to the papers' formulas number by number, and in whole runs."""

import json
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError
from fedlingua.exchange.selected import Selection
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import Update
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.methods import SERVER_OPTIMIZERS
from fedlingua.settings.table import KEYS
from strategies.aggregation.mean import equally, inner_cluster_aggregation
from strategies.methods.server_optimizer import BETA1, OPTIMIZERS, SCHEDULES, Moments, ServerOptimizer, Step, pseudo_gradient
from tests.in_process import checkpoint_bytes, run
from tests.means import weighted_mean

RNG = np.random.default_rng(2022)
START = RNG.standard_normal((7, 5), np.float32)
GRADIENTS = [RNG.standard_normal((7, 5), np.float32) * np.float32(10.0 ** (number % 4 - 3)) for number in range(20)]
STEP = Step(learning_rate=3e-3, momentum=0.9, beta2=0.99, epsilon=1e-6, weight_decay=0.02)


def walked(name: str, step: Step = STEP) -> np.ndarray:
    theta, moments = START, Moments()
    for gradient in GRADIENTS:
        theta, moments = OPTIMIZERS[name](theta, gradient, moments, step)
        assert theta.dtype == np.float32
        assert {array.dtype for array in (moments.first, moments.second) if array is not None} == {np.dtype(np.float32)}
    assert moments.steps == len(GRADIENTS)
    return theta


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_equal_to_torch_on_the_same_gradients(name: str) -> None:
    parameter = torch.nn.Parameter(torch.tensor(START))
    adaptive: dict[str, Any] = {"betas": (BETA1, STEP.beta2), "eps": STEP.epsilon, "foreach": False}
    peer: torch.optim.Optimizer = {
        "sgd": lambda: torch.optim.SGD([parameter], STEP.learning_rate, STEP.momentum, weight_decay=STEP.weight_decay),
        "adam": lambda: torch.optim.Adam([parameter], STEP.learning_rate, weight_decay=STEP.weight_decay, **adaptive),
        "adamw": lambda: torch.optim.AdamW([parameter], STEP.learning_rate, weight_decay=STEP.weight_decay, **adaptive),
    }[name]()
    for gradient in GRADIENTS:
        parameter.grad = torch.tensor(gradient)
        peer.step()
    np.testing.assert_allclose(walked(name), parameter.detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("step", [STEP, replace(STEP, epsilon=0.1)], ids=["small epsilon", "large epsilon"])
def test_yogi_is_what_its_algorithm_says_number_by_number(step: Step) -> None:
    wanted = np.zeros_like(START, dtype=np.float64)
    for at in np.ndindex(START.shape):
        theta, m, v = float(START[at]), 0.0, step.epsilon**2
        for gradient in GRADIENTS:
            g = float(gradient[at]) + step.weight_decay * theta
            m = BETA1 * m + (1 - BETA1) * g
            v -= (1 - step.beta2) * g**2 * math.copysign(1, v - g**2)
            theta -= step.learning_rate * m / (math.sqrt(v) + step.epsilon)
        wanted[at] = theta
    np.testing.assert_allclose(walked("yogi", step), wanted, rtol=0, atol=1e-5)


def test_lamb_steps_as_far_as_the_tensor_is_long() -> None:
    theta, m, v = START.astype(np.float64), 0.0, 0.0
    for number, gradient in enumerate(GRADIENTS, start=1):
        m = BETA1 * m + (1 - BETA1) * gradient.astype(np.float64)
        v = STEP.beta2 * v + (1 - STEP.beta2) * gradient.astype(np.float64) ** 2
        u = (m / (1 - BETA1**number)) / (np.sqrt(v / (1 - STEP.beta2**number)) + STEP.epsilon) + STEP.weight_decay * theta
        new = theta - STEP.learning_rate * np.linalg.norm(theta) / np.linalg.norm(u) * u
        assert np.linalg.norm(new - theta) == pytest.approx(STEP.learning_rate * np.linalg.norm(theta))
        theta = new
    np.testing.assert_allclose(walked("lamb"), theta, rtol=0, atol=1e-5)
    zero, _ = OPTIMIZERS["lamb"](np.zeros_like(START), GRADIENTS[0], Moments(), STEP)
    np.testing.assert_allclose(zero, OPTIMIZERS["adam"](np.zeros_like(START), GRADIENTS[0], Moments(), STEP)[0], atol=1e-7)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("constant", [1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.9, 0.0]),
        ("cosine", [1.0, 0.5 * (1 + math.cos(math.pi * 100 / 4000)), 0.5 * (1 + math.cos(math.pi / 2))]),
        ("inverse-sqrt", [1.0, 1 / math.sqrt(101), 1 / math.sqrt(2001)]),
    ],
)
def test_schedules(name: str, shares: list[float]) -> None:
    assert [SCHEDULES[name](at, 4000) for at in (0, 100, 2000)] == pytest.approx(shares)


def settings(**given: Any) -> Any:
    return settings_from({**default_run_config(), **{KEYS.get(key, key): value for key, value in given.items()}})


def clusters(tensor: np.ndarray, other: np.ndarray) -> Any:
    return {"encoder": {"north": {"w": tensor, "b": other}, "south": {"w": tensor}}, "decoder": {}, "shared": {}}


def test_table_2s_rate_at_round_100() -> None:
    step = ServerOptimizer(settings(method="server-adam", server_schedule="linear")).step_of(100)
    assert step == Step(3e-4 * 0.9, 0.9, 0.999, 1e-8, 0.0)


def test_what_nobody_sent_makes_no_step_and_a_resumed_run_goes_on_as_if_nothing_had_happened() -> None:
    optimizer = ServerOptimizer(settings(method="server-adam"))
    state = resumed = State(clusters(START, START))

    def gradients(number: int) -> Any:
        moved = {"w": GRADIENTS[number]}
        return {"encoder": {"north": moved, "south": moved if number != 1 else {}}, "decoder": {}, "shared": {}}

    for number in range(4):
        state = replace(optimizer.step(state, gradients(number)), round=number + 1)
        assert state.tensors["encoder"]["north"]["b"] is START
    for number in range(4):
        if number == 2:
            memory = {name: tensor.copy() for name, tensor in resumed.memory.items()}
            resumed = replace(resumed, memory=memory, values=json.loads(json.dumps(resumed.values)))
        resumed = replace(optimizer.step(resumed, gradients(number)), round=number + 1)
    assert [resumed.tensors["encoder"][c]["w"].tobytes() for c in ("north", "south")] == [
        state.tensors["encoder"][c]["w"].tobytes() for c in ("north", "south")
    ]
    assert set(state.memory) == {
        f"server-optimizer/encoder/{c}/w/{kind}" for c in ("north", "south") for kind in ("first", "second")
    }
    assert state.values == {"server-optimizer": {"encoder/north/w": 4, "encoder/south/w": 3}}
    assert not np.array_equal(state.tensors["encoder"]["north"]["w"], state.tensors["encoder"]["south"]["w"])


def test_a_step_leaves_the_state_before_as_it_was() -> None:
    """So a round that is skipped needs nothing put back."""
    optimizer, before = ServerOptimizer(settings(method="server-adam")), State(clusters(START.copy(), START.copy()))
    gradients = {"encoder": {"north": {"w": GRADIENTS[0]}}, "decoder": {}, "shared": {}}
    after = optimizer.step(before, gradients)
    again = optimizer.step(before, gradients)
    assert before.tensors["encoder"]["north"]["w"].tobytes() == START.tobytes()
    assert (before.memory, before.values) == ({}, {})
    assert after.tensors["encoder"]["north"]["w"].tobytes() == again.tensors["encoder"]["north"]["w"].tobytes() != START.tobytes()


def test_sgd_at_a_rate_of_1_without_momentum_is_the_mean(four_sites: dict[str, Any], tmp_path: Any) -> None:
    config = {**four_sites, "method": "adapter-families", "rounds": 2}
    plain, _ = run(config, tmp_path / "plain")
    stepped, _ = run({**config, "server.optimizer": "sgd", "server.learning-rate": 1.0, "server.momentum": 0.0}, tmp_path / "sgd")
    for name in checkpoint_bytes(plain):
        # Only the first round: from there on, local training carries the last bit's difference further.
        wanted, got = (load_file(folder.directory / "checkpoints" / "0001" / name) for folder in (plain, stepped))
        for tensor in wanted:
            np.testing.assert_allclose(got[tensor], wanted[tensor], rtol=0, atol=1e-6)


def test_a_tensor_that_no_site_sent_has_no_pseudo_gradient() -> None:
    chosen = TensorSet("full", (TensorSpec("w", (7, 5), "encoder", None), TensorSpec("b", (7, 5), "encoder", None)))
    update = Update("x", {"w": START + 1, "b": START}, 10, Selection(chosen, np.array([True, False])))
    assert set(pseudo_gradient({"w": START, "b": START}, [update], partial(weighted_mean, by=equally))) == {"w"}


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS[1:])
def test_what_no_site_has_changed_stays_bit_for_bit(name: str) -> None:
    """A third of a number, three times, is seldom the number: the mean's rounding must not become a step."""
    chosen = TensorSet("full", (TensorSpec("w", (7, 5), "encoder", None), TensorSpec("b", (7, 5), "encoder", None)))
    together: Any = {"encoder": {"all": ("x", "y", "z")}, "decoder": {"all": ()}, "shared": {"all": ()}}
    changed = np.zeros(START.shape, bool)
    changed[2] = True
    given: Any = {"encoder": {"all": {"w": START, "b": START}}, "decoder": {}, "shared": {}}
    updates = {
        site: Update(site, {"w": np.where(changed, START + number, START), "b": START}, 10)
        for number, site in enumerate("xyz", start=1)
    }
    combine = partial(weighted_mean, by=equally)
    gradients = inner_cluster_aggregation(given, updates, chosen, together, partial(pseudo_gradient, combine=combine))
    np.testing.assert_allclose(gradients["encoder"]["all"]["w"][2], -2.0, rtol=1e-6)
    state = ServerOptimizer(settings(method=f"server-{name}")).step(State(given), gradients).tensors["encoder"]["all"]
    assert (state["w"] == START).tolist() == (~changed).tolist()
    assert state["b"].tobytes() == START.tobytes()


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS[1:])
def test_a_first_step_goes_against_the_pseudo_gradient_by_the_servers_rate(
    name: str, four_sites: dict[str, Any], tmp_path: Any
) -> None:
    """Of two runs whose first rounds see the same updates, the one with an optimizer goes the same way, as far as it says itself."""
    config = {**four_sites, "method": "adapter-fed", "rounds": 1, "send.rule": "dp-g"}
    plain, _ = run({**config, "server.optimizer": "none"}, tmp_path / "plain")
    rate = {"server.optimizer": name, "server.learning-rate": 0.01}
    stepped, _ = run({**config, **rate}, tmp_path / "stepped")
    assert "server-optimizer" in stepped.checkpoints.load(1).values["strategy"]
    begun, mean, got = (
        load_file(folder.directory / "checkpoints" / number / "encoder.all.safetensors")
        for folder, number in ((plain, "0000"), (plain, "0001"), (stepped, "0001"))
    )
    moved = [tensor for tensor in begun if not np.array_equal(begun[tensor], mean[tensor])]
    assert moved
    for tensor in begun:
        step, towards = got[tensor] - begun[tensor], mean[tensor] - begun[tensor]
        if tensor not in moved:
            assert not step.any()
        elif name == "sgd":
            np.testing.assert_allclose(step, 0.01 * towards, atol=1e-7)
        else:
            assert np.sum(step * towards) > 0
            assert name in ("lamb", "yogi") or np.abs(step).max() == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "adapter-local", "server_optimizer": "adam"}, "nothing leaves a site"),
        ({"method": "metasend-g", "server_optimizer": "adam"}, "learns its threshold from what it does to the sites' mean"),
        ({"method": "server-adam", "server_beta2": 1.0}, "server.beta2 = 1"),
        ({"method": "server-adam", "server_epsilon": 0.0}, "too small; wanted more than 0"),
        ({"method": "server-adma"}, "did you mean 'server-adam'"),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(**given)


def test_settings_of_another_optimizer_change_no_runs_hash() -> None:
    adam, sgd = settings(method="server-adam"), settings(method="server-sgd")
    assert settings(method="server-adam", server_momentum=0.5).hash() == adam.hash()
    assert settings(method="server-sgd", server_momentum=0.5).hash() != sgd.hash()
    assert settings(server_learning_rate=1.0).hash() == settings().hash()
    assert settings(method="server-adam", server_learning_rate=1.0).hash() != adam.hash()
