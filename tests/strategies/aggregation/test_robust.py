"""Each rule by hand against its paper's equation, and against Flower's own where it has one."""

import math
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
from flwr.serverapp.strategy.multikrum import compute_distances, select_multikrum
from flwr.supercore.differential_privacy import compute_clip_model_update

from fedlingua.common.errors import ConfigError
from fedlingua.exchange.joined import EndToEnd, Joined, join
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.runs.plan import check_enough, sites_needed
from fedlingua.settings.checks import settings_from
from strategies.aggregation import robust
from strategies.aggregation.cores import BLOCK
from strategies.aggregation.robust import ROBUST, krum, krum_order, median, multi_krum, norm_clip, squared_distances, trimmed_mean
from strategies.aggregation.updates import Scaled, Update, scaled
from strategies.checks.norms import Change
from strategies.checks.outliers import Verdict
from strategies.strategy import length

SET = TensorSet("set", (TensorSpec("a", (3, 50), "encoder", 0), TensorSpec("b", (BLOCK + 7,), "encoder", 1)))


def numbers(*values: float) -> Update:
    return Update("", {"w": np.array(values, np.float32)}, 1)


def random_updates(count: int, joined: bool = False) -> list[Update]:
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        tensors: Any = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in SET.specs}
        tensors["a"] *= 1 + seed % 3
        found.append(Update(str(seed), Joined(join(tensors, SET), SET) if joined else tensors, 1))
    return found


def test_a_median_by_hand() -> None:
    assert median([numbers(1, 9), numbers(2, -5), numbers(900, 7)])["w"].tolist() == [2, 7]
    assert median([numbers(1), numbers(2), numbers(4), numbers(900)])["w"].tolist() == [3]


def test_a_trimmed_mean_by_hand() -> None:
    updates = [numbers(1, -1e30), numbers(2, 3), numbers(3, 4), numbers(7, 5), numbers(1e30, 6)]
    assert trimmed_mean(updates, 1)["w"].tolist() == [4, 4]
    assert trimmed_mean(updates, 2)["w"].tolist() == [3, 4]


@pytest.mark.parametrize("joined", [False, True])
def test_median_and_trimmed_mean_are_flowers(joined: bool) -> None:
    updates = random_updates(7, joined)
    for name in SET.names:
        layers = np.stack([update.tensors[name] for update in updates])
        np.testing.assert_array_equal(median(updates)[name], np.median(layers, axis=0))
        np.testing.assert_allclose(trimmed_mean(updates, 2)[name], trim_mean(layers, 2 / 7 + 1e-9), rtol=1e-6, atol=1e-7)


def test_krum_by_hand() -> None:
    """Of five with one liar, s is over the two nearest others: of 0 it is 1 + 9, of 1 it is 1 + 4, and so on."""
    updates = [numbers(0), numbers(1), numbers(3), numbers(4), numbers(50)]
    distances = squared_distances(updates)
    assert distances[0].tolist() == [0, 1, 9, 16, 2500]
    assert krum_order(updates, 1) == [1, 2, 0, 3, 4]
    assert krum(updates, 1)["w"].tolist() == [1]
    assert multi_krum(updates, 1)["w"].tolist() == [2]  # (0 + 1 + 3 + 4) / 4


@pytest.mark.parametrize("joined", [False, True])
def test_krum_is_flowers(joined: bool) -> None:
    updates = random_updates(9, joined)
    contents = [RecordDict({"arrays": ArrayRecord([update.tensors[name] for name in SET.names])}) for update in updates]
    theirs = compute_distances([content["arrays"] for content in contents])
    np.testing.assert_allclose(squared_distances(updates), theirs, rtol=1e-4, atol=1.0)
    for liars in (1, 2, 3):
        (chosen,) = select_multikrum(contents, liars, 1)
        many = select_multikrum(contents, liars, 9 - liars)
        assert krum_order(updates, liars)[0] == contents.index(chosen)
        assert set(krum_order(updates, liars)[: 9 - liars]) == {contents.index(content) for content in many}
        np.testing.assert_array_equal(krum(updates, liars)["a"], chosen["arrays"].to_numpy_ndarrays()[0])
        mean = np.mean([content["arrays"].to_numpy_ndarrays()[1] for content in many], axis=0)
        np.testing.assert_allclose(multi_krum(updates, liars)["b"], mean, rtol=1e-5, atol=1e-6)


def test_a_small_distance_between_large_updates_is_not_lost() -> None:
    assert squared_distances([numbers(2.0**24), numbers(2.0**24 + 2)])[0, 1] == 4


def test_a_distance_has_more_digits_than_float32() -> None:
    """(2^12 + 1)^2 is 2^24 + 2^13 + 1, and its last 1 no longer in float32."""
    assert squared_distances([numbers(0, 0), numbers(2.0**12 + 1, 1)])[0, 1] == (2**12 + 1) ** 2 + 1


@pytest.mark.parametrize("rule", [*ROBUST])
def test_cores_and_the_order_of_sites_change_no_byte(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = random_updates(7)
    whole = ROBUST[rule](1)(updates)
    backwards = ROBUST[rule](1)(updates[::-1])
    one_core = robust.on_cores
    monkeypatch.setattr(robust, "on_cores", lambda work, spans: one_core(work, spans, cores=1))
    alone = ROBUST[rule](1)(updates)
    assert [tensor.tobytes() for tensor in whole.values()] == [tensor.tobytes() for tensor in alone.values()]
    np.testing.assert_allclose(whole["b"], backwards["b"], rtol=1e-5, atol=1e-6)


def test_norms_are_clipped_to_m_or_to_the_median() -> None:
    assert norm_clip({"a": 1.0, "b": 2.0, "c": 8.0}, 4.0) == {"c": 0.5}
    assert norm_clip({"a": 1.0, "b": 2.0, "c": 8.0}, 0.0) == {"c": 0.25}
    assert norm_clip({}, 0.0) == norm_clip({"a": 0.0}, 0.0) == {}


def test_a_clipped_update_is_flowers() -> None:
    rng = np.random.default_rng(3)
    start = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in SET.specs}
    update = random_updates(1, joined=True)[0]
    theirs = [np.array(update.tensors[name]) for name in SET.names]
    norm = math.sqrt(sum(float(np.square(mine - start[name]).sum()) for name, mine in zip(SET.names, theirs, strict=True)))
    factors = np.full(2, norm_clip({"a": norm}, 5.0)["a"])
    clipped = scaled(update, {"encoder": EndToEnd([start["a"].ravel(), start["b"]])}, factors)
    compute_clip_model_update(theirs, [start[name] for name in SET.names], 5.0)
    for name, wanted in zip(SET.names, theirs, strict=True):
        np.testing.assert_allclose(clipped.tensors[name], wanted, rtol=1e-4, atol=1e-5)


def test_each_parts_tensors_are_scaled_by_their_own_factors() -> None:
    chosen = TensorSet("two", (TensorSpec("e", (2,), "encoder", 0), TensorSpec("d", (2,), "decoder", 0)))
    start = {part: np.zeros(2, np.float32) for part in ("encoder", "decoder")}
    update = Update("a", Joined({part: np.ones(2, np.float32) for part in start}, chosen), 1)
    halved = scaled(update, start, np.array([1.0, 0.5])).tensors
    assert {name: tensor.tolist() for name, tensor in halved.items()} == {"e": [1, 1], "d": [0.5, 0.5]}


def test_a_tensor_that_is_taken_whole_keeps_its_bytes() -> None:
    start = EndToEnd([np.array([0.1, 0.2], np.float32), np.array([0.3, 0.4, 0.5], np.float32)])
    own = np.array([1.1, 1.2, 1.3, 1.4, 1.5], np.float32)
    halved = Scaled(own, start, start, np.array([0, 3, 5]), np.array([1.0, 0.5], np.float32))
    assert halved[0:3].tolist() == own[:3].tolist()
    assert halved[2:5].tolist() == pytest.approx([1.3, 0.9, 1.0])
    assert (len(halved), len(halved[4:2])) == (5, 0)


# --- How many sites a rule needs ---------------------------------------------------------------------------------------------

CLUSTERS: Any = {"encoder": {"Slavic": ("bank", "farm")}, "decoder": {"all": ("a", "b", "c", "d", "bank", "farm")}}


@pytest.mark.parametrize(
    ("rule", "liars", "wanted"),
    [("median", 4, 3), ("trimmed-mean", 2, 5), ("krum", 1, 5), ("multi-krum", 2, 7), ("norm-clip", 1, 1), ("fed-avg", 1, 1)],
)
def test_a_rule_is_refused_where_a_cluster_has_too_few_sites(run_config: Any, rule: str, liars: int, wanted: int) -> None:
    settings = settings_from({**run_config, "aggregation": rule, "robust.byzantine-sites": liars})
    assert sites_needed(settings) == wanted
    if wanted > 2:
        with pytest.raises(ConfigError, match=rf"needs {wanted} sites .* the encoder cluster 'Slavic' has 2: bank, farm; "):
            check_enough(settings, CLUSTERS)
    else:
        check_enough(settings, CLUSTERS)


@pytest.mark.parametrize("rule", [*ROBUST])
def test_a_rule_that_compares_all_numbers_is_refused_with_a_selection(run_config: Any, rule: str) -> None:
    config = {**run_config, "aggregation": rule, "method": "adapter-fed"}
    with pytest.raises(ConfigError, match="selection top-k leaves some out"):
        settings_from({**config, "send.rule": "top-k"})
    with pytest.raises(ConfigError, match="nothing leaves a site"):
        settings_from({**config, "method": "adapter-local"})
    settings_from({**config, "server.optimizer": "adam"})
    settings_from({**config, "aggregation": "norm-clip", "send.rule": "top-k"})


def test_an_update_that_was_scaled_down_already_is_clipped_by_the_norm_that_it_has_then() -> None:
    change = Change(np.array([64.0, 36.0]), *[np.ones(2)] * 3)
    assert length(change, None) == 10.0
    assert length(change, Verdict("too long", np.array([0.5, 0.0]))) == 4.0
