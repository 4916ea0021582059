"""Equation 3 by hand, its two ends bit for bit, and what lies between nothing."""

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec
from fedlingua.personalization.interpolation import Alphas, interpolated_by_part, search_alphas
from fedlingua_lab.mixtures import ALPHAS, interpolated


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


def test_models_with_other_tensors_are_refused_by_name() -> None:
    with pytest.raises(ExchangeError, match="'b' is in the federation's model alone"):
        interpolated(GLOBAL, tensors(a=[1.0, 2.0]), 0.5)
    with pytest.raises(ExchangeError, match="'c' is in the site's own model alone"):
        interpolated(GLOBAL, {**OWN, **tensors(c=[1.0])}, 0.5)
    with pytest.raises(ExchangeError, match=r"'b' has shape \(1,\) in the federation's model and \(2,\) in the site's own"):
        interpolated(GLOBAL, {**OWN, **tensors(b=[1.0, 2.0])}, 0.5)


def test_each_part_has_its_own_share_and_what_is_shared_their_mean() -> None:
    specs = [TensorSpec(part, (1,), part, None) for part in ("encoder", "decoder", "shared")]
    federated, own = tensors(encoder=[0.0], decoder=[0.0], shared=[0.0]), tensors(encoder=[8.0], decoder=[8.0], shared=[8.0])
    mixed = interpolated_by_part(federated, own, {"encoder": 0.25, "decoder": 1.0}, TensorSet("full", tuple(specs)))
    assert {name: float(array[0]) for name, array in mixed.items()} == {"encoder": 2.0, "decoder": 8.0, "shared": 5.0}


def searched(best_encoder: float, best_decoder: float) -> tuple[Alphas, Alphas, int]:
    asked = []

    def loss(alphas: Alphas) -> float:
        asked.append(dict(alphas))
        return (alphas["encoder"] - best_encoder) ** 2 + (alphas["decoder"] - best_decoder) ** 2

    ends = loss({"encoder": 0.0, "decoder": 0.0}), loss({"encoder": 1.0, "decoder": 1.0})
    asked.clear()
    return *search_alphas(("encoder", "decoder"), loss, ends), len(asked)


def test_the_search_finds_one_alpha_first_and_then_one_for_each_part() -> None:
    assert searched(0.25, 0.75) == ({"encoder": 0.5, "decoder": 0.5}, {"encoder": 0.25, "decoder": 0.75}, 9)
    # The parts are not looked at where one of the two models is the best.
    assert searched(1.0, 0.9) == ({"encoder": 1.0, "decoder": 1.0}, {"encoder": 1.0, "decoder": 1.0}, 2)


def test_a_loss_that_is_no_number_is_never_the_least() -> None:
    one, each = search_alphas(("encoder",), lambda alphas: float("nan"), (2.0, 1.0))
    assert one == each == {"encoder": 1.0}
