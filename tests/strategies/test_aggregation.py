"""Equations 2 and 3 and algorithm 1 of Liu et al. 2023, by hand."""

import numpy as np
import pytest

from fedlingua.exchange.tensor_sets import TensorSet, TensorSpec
from strategies.aggregation import Update, fed_avg, fed_mean, inner_cluster_aggregation, start_everywhere, tensors_for


def update(site: str, value: float, num_examples: int = 1) -> Update:
    return Update(site, {"w": np.full((2,), value, np.float32)}, num_examples)


def test_fed_mean_counts_every_site_the_same():
    assert fed_mean([update("a", 1.0, 1), update("b", 4.0, 99)])["w"].tolist() == [2.5, 2.5]


def test_fed_avg_weighs_sites_by_their_sentences():
    assert fed_avg([update("a", 1.0, 1), update("b", 5.0, 3)])["w"].tolist() == [4.0, 4.0]


@pytest.mark.parametrize("rule", [fed_mean, fed_avg])
def test_rules_sum_in_float32(rule):
    assert rule([update("a", 1.0), update("b", 2.0)])["w"].dtype == np.float32


SET = TensorSet(
    "toy", (TensorSpec("e", (1,), "encoder", 0), TensorSpec("d", (1,), "decoder", 0), TensorSpec("s", (1,), "shared", None))
)
CLUSTERS = {
    "encoder": {"G": ("a", "b"), "R": ("c",)},
    "decoder": {"S": ("a",), "T": ("b", "c")},
    "shared": {"all": ("a", "b", "c")},
}


def full_update(site: str, e: float, d: float, s: float) -> Update:
    return Update(site, {"e": np.array([e], np.float32), "d": np.array([d], np.float32), "s": np.array([s], np.float32)}, 1)


def start():
    return start_everywhere({name: np.zeros(1, np.float32) for name in "eds"}, SET, CLUSTERS)


def test_each_part_is_averaged_in_its_own_clusters():
    updates = {"a": full_update("a", 1, 10, 100), "b": full_update("b", 3, 30, 200), "c": full_update("c", 5, 50, 600)}
    state = inner_cluster_aggregation(start(), updates, SET, CLUSTERS, fed_mean)
    assert state["encoder"]["G"]["e"] == 2.0  # (1 + 3) / 2
    assert state["encoder"]["R"]["e"] == 5.0
    assert state["decoder"]["S"]["d"] == 10.0
    assert state["decoder"]["T"]["d"] == 40.0  # (30 + 50) / 2
    assert state["shared"]["all"]["s"] == 300.0
    assert {name: float(array[0]) for name, array in tensors_for("b", state, SET, CLUSTERS).items()} == {
        "e": 2.0,
        "d": 40.0,
        "s": 300.0,
    }


def test_a_cluster_without_replies_stays_as_it_was():
    state = inner_cluster_aggregation(start(), {"c": full_update("c", 5, 50, 600)}, SET, CLUSTERS, fed_mean)
    assert state["encoder"]["G"]["e"] == 0.0
    assert state["decoder"]["T"]["d"] == 50.0


def test_the_order_of_updates_changes_no_byte():
    rng = np.random.default_rng(0)
    updates = {site: full_update(site, *rng.normal(size=3)) for site in "abc"}
    backwards = dict(reversed(updates.items()))
    first = inner_cluster_aggregation(start(), updates, SET, CLUSTERS, fed_mean)
    second = inner_cluster_aggregation(start(), backwards, SET, CLUSTERS, fed_mean)
    assert first["shared"]["all"]["s"].tobytes() == second["shared"]["all"]["s"].tobytes()
    assert first["decoder"]["T"]["d"].tobytes() == second["decoder"]["T"]["d"].tobytes()
