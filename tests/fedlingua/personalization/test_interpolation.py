"""Equation 3 by hand, its two ends bit for bit, and what lies between nothing."""

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.exchange.tensors import Tensors
from fedlingua.personalization.interpolation import ALPHAS, interpolated


def tensors(**values: list[float]) -> Tensors:
    return {name: np.array(value, np.float32) for name, value in values.items()}


GLOBAL, OWN = tensors(a=[0.0, 4.0], b=[-0.0]), tensors(a=[8.0, 0.0], b=[1.0])


def test_a_quarter_of_the_own_model_is_equation_3_by_hand() -> None:
    found = interpolated(GLOBAL, OWN, 0.25)
    assert found["a"].tolist() == [0.25 * 8 + 0.75 * 0, 0.25 * 0 + 0.75 * 4]
    assert found["b"].tolist() == [0.25]
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("alpha", "wanted"), [(0.0, GLOBAL), (1.0, OWN)])
def test_at_its_ends_it_is_one_of_the_two_models_bit_for_bit(alpha: float, wanted: Tensors) -> None:
    found = interpolated(GLOBAL, OWN, alpha)
    assert {name: array.tobytes() for name, array in found.items()} == {name: array.tobytes() for name, array in wanted.items()}
    found["a"][0] = 99.0
    assert wanted["a"][0] != 99.0


def test_there_are_21_values_from_0_to_1_evenly_apart() -> None:
    assert len(ALPHAS) == 21
    assert (ALPHAS[0], ALPHAS[18], ALPHAS[-1]) == (0.0, 0.9, 1.0)
    assert np.allclose(np.diff(ALPHAS), 0.05)


@pytest.mark.parametrize("alpha", [-0.01, 1.01, float("nan"), float("inf")])
def test_an_alpha_that_is_no_share_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="wanted a share of the site's own model: 0"):
        interpolated(GLOBAL, OWN, alpha)


def test_models_with_other_tensors_are_refused_by_name() -> None:
    with pytest.raises(ExchangeError, match="'b' is in the federation's model alone"):
        interpolated(GLOBAL, tensors(a=[1.0, 2.0]), 0.5)
    with pytest.raises(ExchangeError, match="'c' is in the site's own model alone"):
        interpolated(GLOBAL, {**OWN, **tensors(c=[1.0])}, 0.5)
    with pytest.raises(ExchangeError, match=r"'b' has shape \(1,\) in the federation's model and \(2,\) in the site's own"):
        interpolated(GLOBAL, {**OWN, **tensors(b=[1.0, 2.0])}, 0.5)
