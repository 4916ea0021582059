"""Equations 2 and 3 and algorithm 1 of Liu et al. 2023, by hand."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedlingua.common.cores import SPAN
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import Update, UpdateFiles
from fedlingua.settings.checks import settings_from
from strategies.aggregation import mean as module
from strategies.aggregation.mean import by_loss, by_size, inner_cluster_aggregation, start_everywhere, weights_of
from strategies.strategy import SiteStrategy
from tests.means import fed_avg, fed_mean, weighted_mean

ZERO = {"w": np.zeros(2, np.float32)}


def update(site: str, value: float, num_examples: int = 1) -> Update:
    return Update(site, {"w": np.full((2,), value, np.float32)}, num_examples)


def test_fed_mean_counts_every_site_the_same():
    assert fed_mean(ZERO, [update("a", 1.0, 1), update("b", 4.0, 99)])["w"].tolist() == [2.5, 2.5]


def test_fed_avg_weighs_sites_by_their_sentences():
    assert fed_avg(ZERO, [update("a", 1.0, 1), update("b", 5.0, 3)])["w"].tolist() == [4.0, 4.0]


def test_tempered_sizes_weigh_by_their_root(run_config) -> None:
    """Of 1 and 9 sentences: 1 to 9, and at a temperature of 2, 1 to 3."""
    updates = [update("a", 1.0, 1), update("b", 5.0, 9)]
    assert by_size(updates) == [0.1, 0.9]
    assert by_size(updates, 2.0) == pytest.approx([0.25, 0.75])
    assert by_size(updates, 1e9) == pytest.approx([0.5, 0.5])
    for temperature, value in ((1.0, 4.6), (2.0, 4.0)):
        settings = settings_from({**run_config, "aggregation": "fed-avg", "sampling-temperature": temperature})
        assert weighted_mean(ZERO, updates, weights_of(settings))["w"].tolist() == pytest.approx([value] * 2)


def test_a_temperature_of_one_changes_no_bit_of_fed_avg() -> None:
    sizes = [412437, 477323, 502479, 400175, 132593658, 575559, 83963, 34104, 100762]
    assert by_size([update("a", 1.0, size) for size in sizes]) == [size / sum(sizes) for size in sizes]


def test_by_loss_a_site_counts_by_the_softmax_of_its_loss() -> None:
    updates = [replace(update(site, 1.0, 1), loss=loss) for site, loss in (("a", 1.0), ("b", 2.0), ("c", 900.0))]
    shares = [1.0, math.exp(-1), 1e-12]
    assert by_loss(updates) == pytest.approx([share / sum(shares) for share in shares], rel=1e-6, abs=0)


def test_by_loss_the_lower_loss_counts_more(run_config) -> None:
    """Losses of ln 2 and ln 4: the shares are as 1/2 to 1/4; sentences do not count."""
    updates = [replace(update(*told), loss=math.log(loss)) for told, loss in ((("a", 3.0, 1), 2), (("b", 9.0, 99), 4))]
    assert by_loss(updates) == pytest.approx([2 / 3, 1 / 3])
    weights = weights_of(settings_from({**run_config, "aggregation": "by-loss"}))
    assert weighted_mean(ZERO, updates, weights)["w"].tolist() == pytest.approx([5.0] * 2)


@pytest.mark.parametrize("rule", [fed_mean, fed_avg])
def test_rules_sum_in_float32(rule):
    assert rule(ZERO, [update("a", 1.0), update("b", 2.0)])["w"].dtype == np.float32


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
    like: Any = SimpleNamespace(tensor_set=SET, clusters=CLUSTERS)
    assert {name: float(array[0]) for name, array in SiteStrategy.model_for(like, State(state), "b").items()} == {
        "e": 2.0,
        "d": 40.0,
        "s": 300.0,
    }


def test_a_cluster_without_replies_stays_as_it_was():
    state = inner_cluster_aggregation(start(), {"c": full_update("c", 5, 50, 600)}, SET, CLUSTERS, fed_mean)
    assert state["encoder"]["G"]["e"] == 0.0
    assert state["decoder"]["T"]["d"] == 50.0


def test_a_rule_is_not_asked_about_a_part_without_tensors():
    asked = list[list[str]]()

    def first(before, members):
        asked.extend(list(update.tensors) for update in members)
        return members[0].tensors

    bare = TensorSet("bare", tuple(spec for spec in SET.specs if spec.part != "shared"))
    before = start_everywhere({name: np.zeros(1, np.float32) for name in "ed"}, bare, CLUSTERS)
    for tensors in (full_update("a", 1, 10, 100).tensors, Joined(join(full_update("a", 1, 10, 100).tensors, bare), bare)):
        state = inner_cluster_aggregation(before, {s: Update(s, tensors, 1) for s in "abc"}, bare, CLUSTERS, first)
        assert state["shared"] == {"all": {}}
        assert state["encoder"]["R"]["e"] == 1.0
    assert asked == [["e"]] * 3 + [["d"]] * 3 + [["e"]] * 3 + [["d"]] * 3


def test_the_order_of_updates_changes_no_byte():
    rng = np.random.default_rng(0)
    updates = {site: full_update(site, *rng.normal(size=3)) for site in "abc"}
    backwards = dict(reversed(updates.items()))
    first = inner_cluster_aggregation(start(), updates, SET, CLUSTERS, fed_mean)
    second = inner_cluster_aggregation(start(), backwards, SET, CLUSTERS, fed_mean)
    assert first["shared"]["all"]["s"].tobytes() == second["shared"]["all"]["s"].tobytes()
    assert first["decoder"]["T"]["d"].tobytes() == second["decoder"]["T"]["d"].tobytes()


# --- The same sum, whichever way the numbers lie -------------------------------------------------------------------------------

LONG = TensorSet(
    "long",
    (
        TensorSpec("e.weight", (3, 40_000), "encoder", 0),
        TensorSpec("d.bias", (7,), "decoder", 0),
        TensorSpec("e.bias", (5,), "encoder", 0),
        TensorSpec("d.weight", (SPAN + 9,), "decoder", 0),
    ),
)
ALL = {part: {"all": ("a", "b", "c")} for part in ("encoder", "decoder", "shared")}


def random_tensors(seed: int):
    rng = np.random.default_rng(seed)
    tensors = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in LONG.specs}
    tensors["e.bias"][:] = [-0.0, 1e-45, 3e38, -3e38, 0.0]
    return tensors


def before():
    return start_everywhere(random_tensors(99), LONG, ALL)


NAMED = {site: random_tensors(seed) for seed, site in enumerate("abc")}
SIZES = {"a": 3, "b": 11, "c": 2}


def updates_of(kind: str, folder):
    """The same three updates: named arrays, joined in memory, or joined in files."""
    joined = {site: Joined(join(tensors, LONG), LONG) for site, tensors in NAMED.items()}
    files = UpdateFiles(folder, 3, large=0)
    tensors = {
        "named": lambda site: NAMED[site],
        "joined": lambda site: joined[site],
        "in files": lambda site: files.store(site, joined[site]),
    }[kind]
    return {site: Update(site, tensors(site), SIZES[site]) for site in NAMED}


def by_definition(weights):
    """float32(w) * x, site after site, a whole tensor at a time."""
    result = {}
    for name, first in NAMED["a"].items():
        total = np.zeros(first.shape, np.float32)
        for site, weight in weights.items():
            total += np.float32(weight) * NAMED[site][name]
        result[name] = total
    return result


def assert_same_bytes(state, wanted):
    for part in ("encoder", "decoder"):
        for name, array in state[part]["all"].items():
            assert (array.dtype, array.shape, array.tobytes()) == (np.float32, wanted[name].shape, wanted[name].tobytes()), name
    assert [*state["encoder"]["all"], *state["decoder"]["all"]] == ["e.weight", "e.bias", "d.bias", "d.weight"]


@pytest.mark.parametrize("kind", ["named", "joined", "in files"])
@pytest.mark.parametrize(
    ("rule", "weights"),
    [(fed_mean, dict.fromkeys("abc", 1 / 3)), (fed_avg, {"a": 3 / 16, "b": 11 / 16, "c": 2 / 16})],
    ids=["fed-mean", "fed-avg"],
)
def test_the_sum_is_bit_for_bit_that_of_whole_tensors_site_after_site(kind, rule, weights, tmp_path):
    state = inner_cluster_aggregation(before(), updates_of(kind, tmp_path), LONG, ALL, rule)
    assert_same_bytes(state, by_definition(weights))


@pytest.mark.parametrize("kind", ["named", "joined", "in files"])
def test_no_order_of_replies_changes_a_byte(kind, tmp_path):
    wanted = by_definition(dict.fromkeys("abc", 1 / 3))
    updates = updates_of(kind, tmp_path)
    for order in itertools.permutations("abc"):
        state = inner_cluster_aggregation(before(), {site: updates[site] for site in order}, LONG, ALL, fed_mean)
        assert_same_bytes(state, wanted)


def test_the_number_of_cores_changes_no_byte(monkeypatch, tmp_path):
    updates = updates_of("joined", tmp_path)
    on_cores = module.on_cores
    for cores in (1, 2, 5):
        monkeypatch.setattr(module, "on_cores", lambda work, spans, cores=cores: on_cores(work, spans, cores))
        assert_same_bytes(
            inner_cluster_aggregation(before(), updates, LONG, ALL, fed_mean), by_definition(dict.fromkeys("abc", 1 / 3))
        )


def test_the_order_of_sites_is_the_sums():
    """Were it not, the tests above would show nothing: another order gives other bytes."""
    other = by_definition(dict.fromkeys("cba", 1 / 3))
    assert any(other[name].tobytes() != array.tobytes() for name, array in by_definition(dict.fromkeys("abc", 1 / 3)).items())


@pytest.mark.parametrize("kind", ["joined", "in files"])
def test_a_rule_of_ones_own_takes_tensors_by_name_wherever_they_lie(kind, tmp_path):
    def median(_, updates):
        return {name: np.median([u.tensors[name] for u in updates], axis=0).astype(np.float32) for name in updates[0].tensors}

    state = inner_cluster_aggregation(before(), updates_of(kind, tmp_path), LONG, ALL, median)
    assert_same_bytes(
        state,
        {n: np.median([NAMED[s][n] for s in "abc"], axis=0).astype(np.float32) for n in NAMED["a"]},
    )


@pytest.mark.parametrize("kind", ["joined", "in files"])
def test_an_update_may_not_be_written_to(kind, tmp_path):
    tensor = updates_of(kind, tmp_path)["a"].tensors["d.bias"]
    with pytest.raises(ValueError, match="read-only"):
        tensor += 1
