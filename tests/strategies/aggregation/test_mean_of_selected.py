"""Eq. 4 of MetaSend where not every site sent everything, by hand and bit for bit against FedAvg."""

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

Array = np.ndarray[Any, Any]


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
    found = mean(RECEIVED, WHOLE)
    assert found["x"].tolist() == [0.5 * 5 + 0.25 * -3 + 0.25 * 1, 0.5 * 9 + 0.25 * 1 + 0.25 * 1]
    assert found["y"].tolist() == [0.5 * 4 + 0.5 * 2, 0.5 * 0 + 0.5 * 2]
    assert found["x"].tolist() == [1 + 0.5 * (5 - 1) + 0.25 * (-3 - 1), 1 + 0.5 * (9 - 1)]  # W_g + sum of w_k g_k dW_k


MASKED = [
    Sent(0.5, {"x": array(5, np.nan)}, {"x": bits(1, 0)}),
    Sent(0.25, {"x": array(-3, np.inf), "z": array(7, np.nan)}, {"x": bits(1, 0), "z": bits(1, 0)}),
    Sent(0.25, {"z": array(3, np.nan)}, {"z": bits(1, 0)}),
]


def test_numbers_that_were_not_sent_are_not_looked_at() -> None:
    assert mean(RECEIVED, MASKED)["x"].tolist() == [0.5 * 5 + 0.25 * -3 + 0.25 * 1, 1]


def test_where_nobody_sent_the_numbers_stay_bit_for_bit() -> None:
    thirds = [Sent(1 / 3, site.tensors, site.masks) for site in MASKED]
    found = mean(RECEIVED, thirds)
    assert found["y"].tobytes() == RECEIVED["y"].tobytes()
    assert found["x"][1] == RECEIVED["x"][1]
    assert found["z"][1] == RECEIVED["z"][1]
    assert list(found) == list(RECEIVED)


def test_whole_tensors_and_parts_of_them_meet_in_one_mean() -> None:
    sent = [Sent(0.75, {"x": array(4, 8)}), Sent(0.25, {"x": array(0, np.nan)}, {"x": bits(1, 0)})]
    assert mean(RECEIVED, sent)["x"].tolist() == [3, 0.75 * 8 + 0.25 * 1]


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


def test_where_all_sent_all_the_mean_is_that_of_fed_avg() -> None:
    wanted = fed_avg(START, [Update(site, TRAINED[site], SIZES[site]) for site in "abc"])
    assert as_bytes(mean(START, [Sent(WEIGHTS[site], TRAINED[site]) for site in "abc"])) == as_bytes(wanted)


def test_the_mean_is_fed_avg_of_tensors_filled_up_with_what_was_received() -> None:
    sent = [Sent(WEIGHTS["a"], {"w": TRAINED["a"]["w"]}, MASKS["a"]), Sent(WEIGHTS["b"], TRAINED["b"]), Sent(WEIGHTS["c"], {})]
    mine = np.where(MASKS["a"]["w"].reshape(START["w"].shape), TRAINED["a"]["w"], START["w"])
    filled = {"a": {"w": mine, "b": START["b"]}, "b": TRAINED["b"], "c": START}
    assert as_bytes(mean(START, sent)) == as_bytes(fed_avg(START, [Update(site, filled[site], SIZES[site]) for site in "abc"]))


@pytest.mark.parametrize("masks", [{}, MASKS], ids=["whole", "masked"])
def test_neither_cores_nor_where_the_numbers_lie_change_a_byte(
    masks: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = TensorSet("long", LONG.specs[:1])
    named = {"a": TRAINED["a"], "b": {"w": TRAINED["b"]["w"]}, "c": TRAINED["c"]}
    files = UpdateFiles(tmp_path, 3, large=0)
    kept = {
        s: files.store(s, Joined(join(of_site, chosen := some if s == "b" else LONG), chosen)) for s, of_site in named.items()
    }
    wanted = as_bytes(mean(START, [Sent(WEIGHTS[site], named[site], masks.get(site, {})) for site in "abc"]))
    on_cores = module.on_cores
    monkeypatch.setattr(module, "on_cores", lambda work, spans: on_cores(work, spans, cores=1))
    assert as_bytes(mean(START, [Sent(WEIGHTS[site], kept[site], masks.get(site, {})) for site in "abc"])) == wanted
