"""Eq. 4 of MetaSend where not every site sent everything, by hand and bit for bit against FedAvg."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedlingua.common.cores import SPAN
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import Sent, Update, UpdateFiles
from strategies.aggregation import mean as module
from strategies.aggregation.mean import mean
from tests.means import fed_avg
from tests.soft_gates import gate

Array = np.ndarray[Any, Any]
Partial = Callable[[Mapping[str, Array], Sequence[Sent]], dict[str, Array]]
previous: Partial = partial(mean, missing="previous")
renormalised: Partial = partial(mean, missing="renormalise")
RULES = [previous, renormalised]


def array(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def bits(*numbers: int) -> Array:
    return np.array(numbers, bool)


# --- By hand -------------------------------------------------------------------------------------------------------------------

RECEIVED = {"x": array(1, 1), "y": array(2, 2), "z": array(0.1, 0.7)}
WHOLE = [
    Sent(0.5, {"x": array(5, 9), "y": array(4, 0)}),
    Sent(0.25, {"x": array(-3, 1)}),
    Sent(0.25, {}),
]


def test_who_did_not_send_counts_with_what_it_received() -> None:
    found = previous(RECEIVED, WHOLE)
    assert found["x"].tolist() == [0.5 * 5 + 0.25 * -3 + 0.25 * 1, 0.5 * 9 + 0.25 * 1 + 0.25 * 1]
    assert found["y"].tolist() == [0.5 * 4 + 0.5 * 2, 0.5 * 0 + 0.5 * 2]
    assert found["x"].tolist() == [1 + 0.5 * (5 - 1) + 0.25 * (-3 - 1), 1 + 0.5 * (9 - 1)]  # W_g + sum of w_k g_k dW_k


def test_those_who_sent_share_the_weights() -> None:
    found = renormalised(RECEIVED, WHOLE)
    assert found["x"] == pytest.approx([(2 * 5 + -3) / 3, (2 * 9 + 1) / 3])
    assert found["y"].tolist() == [4, 0]


MASKED = [
    Sent(0.5, {"x": array(5, np.nan)}, {"x": bits(1, 0)}),
    Sent(0.25, {"x": array(-3, np.inf), "z": array(7, np.nan)}, {"x": bits(1, 0), "z": bits(1, 0)}),
    Sent(0.25, {"z": array(3, np.nan)}, {"z": bits(1, 0)}),
]


def test_numbers_that_were_not_sent_are_not_looked_at() -> None:
    assert previous(RECEIVED, MASKED)["x"].tolist() == [0.5 * 5 + 0.25 * -3 + 0.25 * 1, 1]
    assert renormalised(RECEIVED, MASKED)["x"] == pytest.approx([(2 * 5 - 3) / 3, 1])
    assert renormalised(RECEIVED, MASKED)["z"][0] == 5


@pytest.mark.parametrize("rule", RULES)
def test_where_nobody_sent_the_numbers_stay_bit_for_bit(rule: Partial) -> None:
    thirds = [Sent(1 / 3, site.tensors, site.masks) for site in MASKED]
    found = rule(RECEIVED, thirds)
    assert found["y"].tobytes() == RECEIVED["y"].tobytes()
    assert found["x"][1] == RECEIVED["x"][1]
    assert found["z"][1] == RECEIVED["z"][1]
    assert list(found) == list(RECEIVED)


def test_whole_tensors_and_parts_of_them_meet_in_one_mean() -> None:
    sent = [Sent(0.75, {"x": array(4, 8)}), Sent(0.25, {"x": array(0, np.nan)}, {"x": bits(1, 0)})]
    assert previous(RECEIVED, sent)["x"].tolist() == [3, 0.75 * 8 + 0.25 * 1]
    assert renormalised(RECEIVED, sent)["x"].tolist() == [3, 8]


def test_what_a_single_site_sent_comes_out_as_it_was_sent() -> None:
    rng = np.random.default_rng(0)
    mine = rng.standard_normal(1000, np.float32)
    mask = rng.random(1000) < 0.5
    sent = [Sent(0.3, {"w": mine}, {"w": mask}), Sent(0.7, {})]
    assert (
        renormalised({"w": np.zeros(1000, np.float32)}, sent)["w"].tobytes()
        == np.where(mask, mine, 0).astype(np.float32).tobytes()
    )
    assert (
        renormalised({"w": np.zeros(1000, np.float32)}, [Sent(0.3, {"w": mine}), Sent(0.7, {})])["w"].tobytes() == mine.tobytes()
    )


def test_under_renormalise_a_tensor_of_one_site_says_nothing_of_theta() -> None:
    """However far its gate is open, it counts in full: why theta is learnt under `previous`, where it does not."""

    def folded(rule: Partial, theta: float) -> Array:
        opening = 0.5 * float(gate(0.5, theta, 0.1, "g"))
        others = [Sent(1 - opening, {})] if rule is previous else []
        return rule(RECEIVED, [Sent(opening, {"x": array(5, 9)}), *others])["x"]

    for theta in (0.3, 0.5, 0.7):
        assert folded(renormalised, theta).tolist() == [5, 9]
    assert folded(previous, 0.3)[0] > folded(previous, 0.5)[0] > folded(previous, 0.7)[0] > 1


# --- Bit for bit ---------------------------------------------------------------------------------------------------------------

LONG = TensorSet("long", (TensorSpec("w", (2, SPAN // 2 + 5), "encoder", 0), TensorSpec("b", (7,), "encoder", 0)))
SIZES = {"a": 3, "b": 11, "c": 2}
WEIGHTS = {site: size / 16 for site, size in SIZES.items()}


def tensors(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in LONG.specs}


START, TRAINED = tensors(9), {site: tensors(seed) for seed, site in enumerate("abc")}
MASKS = {site: {"w": np.random.default_rng(20 + seed).random(SPAN + 10) < 0.4} for seed, site in enumerate("abc")}


def as_bytes(found: dict[str, Array]) -> dict[str, tuple[Any, ...]]:
    return {name: (tensor.dtype, tensor.shape, tensor.tobytes()) for name, tensor in found.items()}


@pytest.mark.parametrize("rule", RULES)
def test_where_all_sent_all_the_mean_is_that_of_fed_avg(rule: Partial) -> None:
    wanted = fed_avg(START, [Update(site, TRAINED[site], SIZES[site]) for site in "abc"])
    assert as_bytes(rule(START, [Sent(WEIGHTS[site], TRAINED[site]) for site in "abc"])) == as_bytes(wanted)


def test_previous_is_fed_avg_of_tensors_filled_up_with_what_was_received() -> None:
    sent = [Sent(WEIGHTS["a"], {"w": TRAINED["a"]["w"]}, MASKS["a"]), Sent(WEIGHTS["b"], TRAINED["b"]), Sent(WEIGHTS["c"], {})]
    mine = np.where(MASKS["a"]["w"].reshape(START["w"].shape), TRAINED["a"]["w"], START["w"])
    filled = {"a": {"w": mine, "b": START["b"]}, "b": TRAINED["b"], "c": START}
    assert as_bytes(previous(START, sent)) == as_bytes(
        fed_avg(START, [Update(site, filled[site], SIZES[site]) for site in "abc"])
    )


def test_renormalise_is_fed_avg_of_those_who_sent() -> None:
    found = renormalised(START, [Sent(WEIGHTS["a"], TRAINED["a"]), Sent(WEIGHTS["b"], {}), Sent(WEIGHTS["c"], TRAINED["c"])])
    wanted = fed_avg(START, [Update(site, TRAINED[site], SIZES[site]) for site in "ac"])
    assert as_bytes(found) == as_bytes(wanted)


def test_a_mean_of_numbers_is_that_of_float64_rounded_once() -> None:
    found = renormalised(START, [Sent(WEIGHTS[site], TRAINED[site], MASKS[site]) for site in "abc"])["w"].ravel()
    weights = np.array([WEIGHTS[site] * MASKS[site]["w"] for site in "abc"])
    trained = np.array([TRAINED[site]["w"].ravel() for site in "abc"], np.float64)
    nobody = weights.sum(0) == 0
    assert 0.1 < nobody.mean() < 0.4
    with np.errstate(invalid="ignore"):
        wanted = np.where(nobody, START["w"].ravel(), (weights * trained).sum(0) / weights.sum(0))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("masks", [{}, MASKS], ids=["whole", "masked"])
def test_neither_cores_nor_where_the_numbers_lie_change_a_byte(
    rule: Partial, masks: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = TensorSet("long", LONG.specs[:1])
    named = {"a": TRAINED["a"], "b": {"w": TRAINED["b"]["w"]}, "c": TRAINED["c"]}
    files = UpdateFiles(tmp_path, 3, large=0)
    kept = {
        s: files.store(s, Joined(join(of_site, chosen := some if s == "b" else LONG), chosen)) for s, of_site in named.items()
    }
    wanted = as_bytes(rule(START, [Sent(WEIGHTS[site], named[site], masks.get(site, {})) for site in "abc"]))
    on_cores = module.on_cores
    monkeypatch.setattr(module, "on_cores", lambda work, spans: on_cores(work, spans, cores=1))
    assert as_bytes(rule(START, [Sent(WEIGHTS[site], kept[site], masks.get(site, {})) for site in "abc"])) == wanted
