"""The second filter at the server: one Adam step with the mean of the sites' gradients, and state that goes on where it stopped."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from fedlingua.selection.learned_threshold import SecondFilter
from fedlingua.selection.second_filter import KEPT_FROM, SIZE, drawn, keep_probability, network_gradient

RNG = np.random.default_rng(7)
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 4.0}


def gradients() -> dict[str, list[float]]:
    return {site: list(map(float, RNG.standard_normal(SIZE))) for site in WEIGHTS}


def test_a_step_is_adams_with_the_weighted_mean_of_the_gradients() -> None:
    given = gradients()
    parameter = torch.nn.Parameter(torch.tensor(drawn(5)))
    parameter.grad = torch.tensor(sum(WEIGHTS[s] / 8 * np.array(given[s]) for s in WEIGHTS), dtype=torch.float32)
    torch.optim.Adam([parameter], lr=0.01, foreach=False).step()
    model = SecondFilter(5, 0.01)
    assert model.step(given, WEIGHTS) == (True, [])
    np.testing.assert_allclose(model.network, parameter.detach().numpy(), rtol=0, atol=1e-7)


def test_long_gradients_are_bounded_and_the_weights_are_shared_among_those_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms of 2, 2 and 200: the last counts as 1.5 times the median, and what is no number not at all."""
    means = []
    monkeypatch.setattr(SecondFilter, "_descend", lambda _, gradients: means.append(gradients[0].numpy()))
    unit = np.full(SIZE, SIZE**-0.5)
    given = {"a": [*2 * unit], "b": [*2 * unit], "c": [*-200 * unit], "d": [math.nan] * SIZE}
    assert SecondFilter(5, 0.01).step(given, {**WEIGHTS, "d": 8.0}, 1.5) == (True, ["d"])
    np.testing.assert_allclose(means, [(1 * 2 + 3 * 2 - 4 * 3) / 8 * unit], rtol=1e-6)


@pytest.mark.parametrize("number", [math.nan, 1e22, 1e300])
def test_a_gradient_that_is_no_number_or_has_no_square_is_left_out_and_named(number: float) -> None:
    given = gradients()
    bad = {**given, "b": [number, *given["b"][1:]]}
    model, without = SecondFilter(5, 0.01), SecondFilter(5, 0.01)
    assert model.step(bad, WEIGHTS) == (True, ["b"])
    assert without.step({site: given[site] for site in "ac"}, WEIGHTS) == (True, [])
    assert model.network.tobytes() == without.network.tobytes()
    assert model.step({"b": bad["b"]}, WEIGHTS) == (False, ["b"])
    assert model.network.tobytes() == without.network.tobytes()


@pytest.mark.parametrize("stop", [0, 2])
def test_after_a_stop_it_goes_on_as_if_there_had_been_none(stop: int, tmp_path: Path) -> None:
    steps: list[Mapping[str, list[float]]] = [gradients() for _ in range(4)]
    whole, first, second = SecondFilter(5, 0.01), SecondFilter(5, 0.01), SecondFilter(6, 0.01)
    for given in steps:
        whole.step(given, WEIGHTS)
    for given in steps[:stop]:
        first.step(given, WEIGHTS)
    save_file(first.tensors(), tmp_path / "state.safetensors")
    second.load(load_file(tmp_path / "state.safetensors"))
    for given in steps[stop:]:
        second.step(given, WEIGHTS)
    assert second.network.tobytes() == whole.network.tobytes()


@pytest.mark.parametrize("price", [1e-3, 1.0, 1000.0])
def test_how_soon_it_filters_is_a_matter_of_its_rate_and_not_of_its_price(price: float) -> None:
    """Adam's steps are as long whatever the gradient: at a rate of 0.001 nothing is left out for 150 rounds, at 0.1 something after 5."""
    magnitudes = np.logspace(-4, 0, 40)
    for rate, number, filters in ((1e-3, 150, False), (0.1, 5, True)):
        model = SecondFilter(2022, rate)
        for _ in range(number):
            gradient = network_gradient(model.network, magnitudes, np.full(40, price / 40))
            model.step({"a": list(map(float, gradient))}, WEIGHTS)
        assert bool((keep_probability(model.network, magnitudes) < KEPT_FROM).any()) == filters
