"""Whole federations under every selection: real training, real messages; what leaves a site is what its rule took, and it is counted."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Joined, runs
from fedlingua.exchange.records import message_bytes, opened
from fedlingua.exchange.selected import unpack_selected
from fedlingua.exchange.state import State
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.methods import SELECTIONS
from strategies.strategy import SiteStrategy
from tests.federations import SITES
from tests.in_process import checkpoint_bytes, rounds, run
from tests.selected import counted, mask_of


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-fed", "rounds": 2, "meta.batches": 2, "meta.batch-size": 2}


@pytest.fixture
def made(config, run_once):
    """Changes of `config` -> that run, for tests that only read it."""
    same = {key: value for key, value in config.items() if key not in ("backbone", "federation", "data-dir")}
    return lambda **changes: run_once({**same, **changes})


def updates(live):
    """Replies that carry an update, in the order they came."""
    return [reply for reply in live.received if reply.metadata.message_type in (protocol.TRAIN, protocol.SEND)]


def folder_tensors(config):
    return len(build_trainable(settings_from(config)).tensor_set.specs)


@pytest.mark.parametrize("selection", SELECTIONS[1:])
def test_what_is_counted_is_what_came_and_says_itself_what_it_is(config, made, selection):
    folder, live = made(**{"send.rule": selection})
    size = folder.read("run.json")["exchanged_parameters"]
    by_site = {(reply.content["task"]["site"], reply.content["task"]["round"]): reply for reply in updates(live)}
    assert len(by_site) == 8
    for line in rounds(folder)[1:]:
        for site, record in line["sites"].items():
            arrays = opened(by_site[site, line["round"]].content.array_records[protocol.ARRAYS])
            numbers = sum(len(array) for name, array in arrays.items() if name in ("encoder", "decoder"))
            assert record["numbers_share"] == pytest.approx(numbers / size)
            assert counted(arrays)["payload"] == 4 * numbers
            replies = [r for r in live.received if r.metadata.message_type in ("train", "train.probe", "train.send", "evaluate")]
            mine = [r for r in replies if (r.content["task"]["site"], r.content["task"]["round"]) == (site, line["round"])]
            assert record["uplink_bytes"] == sum(map(message_bytes, mine))
            assert record["tensors_sent"] == round(record["tensors_share"] * folder_tensors(config))


@pytest.mark.parametrize("selection", ["dp-l", "apf", "random-g", "metasend-g", "metasend-l"])
def test_same_seed_same_bytes_for_any_nodes_and_order_of_replies(config, made, tmp_path, selection):
    first, _ = made(**{"send.rule": selection})  # on two nodes
    other, _ = run({**config, "send.rule": selection}, tmp_path / "other", 4, shuffle_seed=5)
    assert checkpoint_bytes(first) == checkpoint_bytes(other)
    assert [line.get("threshold") for line in rounds(first)] == [line.get("threshold") for line in rounds(other)]


@pytest.mark.parametrize("selection", ["fixed-g", "fixed-l"])
def test_a_fixed_threshold_takes_the_tensors_on_its_side(made, selection):
    folder, _ = made(**{"send.rule": selection, "send.fixed-threshold": "0.3"})
    told = [json.loads(line) for line in (folder.directory / "deviations.jsonl").read_text().splitlines()]
    assert sorted((one["round"], one["site"]) for one in told) == sorted((n, site) for n in (1, 2) for site in SITES)
    for one in told:
        finite = np.array([np.nan if value is None else value for value in one["deviations"]])
        chosen = np.isnan(finite) | ((finite >= 0.3) if selection == "fixed-g" else (finite < 0.3))
        share = rounds(folder)[one["round"]]["sites"][one["site"]]["tensors_share"]
        assert share == pytest.approx(chosen.mean())


def test_a_site_tells_the_threshold_that_it_sent_by(made):
    """Fixed: the setting's; random: drawn anew for each site and round."""
    found = {}
    for selection, key in (("fixed-g", {"send.fixed-threshold": "0.3"}), ("random-l", {"send.random-threshold": "unit"})):
        folder, _ = made(**{"send.rule": selection, **key})
        found[selection] = [site["theta"] for line in rounds(folder)[1:] for site in line["sites"].values()]
    assert found["fixed-g"] == [0.3] * 8
    assert len(set(found["random-l"])) == 8
    assert all(0 <= theta < 1 for theta in found["random-l"])


def test_the_median_as_a_threshold_is_told_too(config, tmp_path):
    folder, _ = run({**config, "send.rule": "fixed-l", "send.fixed-threshold": "median", "rounds": 1}, tmp_path / "run")
    for told in map(json.loads, (folder.directory / "deviations.jsonl").read_text().splitlines()):
        finite = [value for value in told["deviations"] if value is not None]
        record = rounds(folder)[1]["sites"][told["site"]]
        assert record["theta"] == pytest.approx(np.median(finite), rel=1e-4)
        assert record["deviation"] == pytest.approx(np.median(finite), rel=1e-4)


@pytest.mark.parametrize("selection", ["all", "top-k", "dp-g", "random-g"])
def test_seconds_of_selecting_are_told_where_something_is_selected(made, selection):
    folder, _ = made(**({} if selection == "all" else {"send.rule": selection}))
    for site in rounds(folder)[1]["sites"].values():
        assert ("select" in site["seconds"]) == (selection != "all")
        assert ("theta" in site) == (selection == "random-g")


def test_deviations_are_against_the_sites_own_last_round_and_not_against_what_it_was_given(config, tmp_path):
    """Round 1 compares with what everybody started from, round 2 with the update that waits at the site since round 1."""
    folder, live = run({**config, "send.rule": "fixed-g", "send.fixed-threshold": "0"}, tmp_path / "run")
    sent = {(r.content["task"]["site"], r.content["task"]["round"]): r for r in updates(live)}
    told = {
        (one["site"], one["round"]): one["deviations"]
        for one in map(json.loads, (folder.directory / "deviations.jsonl").read_text().splitlines())
    }
    chosen = build_trainable(settings_from(config)).tensor_set
    first, second = (Joined(opened(sent["court", number].content.array_records[protocol.ARRAYS]), chosen) for number in (1, 2))
    wanted = [np.abs(second[name] - first[name]).sum() / np.abs(first[name]).sum() for name in chosen.names]
    assert told["court", 2] == pytest.approx(wanted, rel=1e-4)
    assert told["court", 1] != pytest.approx(wanted, rel=1e-2)


@pytest.mark.parametrize("selection", ["dp-g", "top-k"])
def test_the_next_round_is_equation_4_of_what_came_inside_each_cluster(config, tmp_path, selection):
    """By hand, number by number, from the messages alone; sites of unequal size, in clusters of their own for each part."""
    config = {**config, "method": "adapter-families", "send.rule": selection, "aggregation": "fed-avg"}
    folder, live = run({**config, "batch-size": 2}, tmp_path / "run")
    chosen = build_trainable(settings_from(config)).tensor_set
    clusters = folder.read("clusters.json")
    before, after = (folder.checkpoints.load(number).tensors for number in (1, 2))
    sizes, masks, numbers = {}, {}, {}
    for reply in updates(live):
        if reply.content["task"]["round"] == 2:
            site = reply.content["task"]["site"]
            like = SimpleNamespace(tensor_set=chosen, clusters=clusters | {"shared": {"all": SITES}})
            given = SiteStrategy.model_for(like, State(before), site)
            came, sent = unpack_selected(opened(reply.content.array_records[protocol.ARRAYS]), chosen, runs(given, chosen))
            sizes[site] = reply.content[protocol.METRICS]["num_examples"]
            numbers[site] = {name: came[name].astype(np.float64) for name in chosen.names}
            masks[site] = Joined({part: mask_of(sent, part) for part in ("encoder", "decoder")}, chosen)
    assert len(set(sizes.values())) > 1
    for spec in chosen.specs:
        for cluster, sites in clusters[spec.part].items():
            start = before[spec.part][cluster][spec.name].astype(np.float64)
            weights = {site: sizes[site] / sum(sizes[other] for other in sites) * masks[site][spec.name] for site in sites}
            moved = sum(weights[site] * (numbers[site][spec.name] - start) for site in sites)
            np.testing.assert_allclose(after[spec.part][cluster][spec.name], start + moved, rtol=0, atol=1e-6)


def test_a_site_forgets_all_but_the_last_two_rounds(config, tmp_path):
    folder, _ = run({**config, "send.rule": "dp-g", "rounds": 4}, tmp_path / "run")
    assert sorted(file.stem for file in (folder.directory / "sites/court/rounds").glob("*")) == ["0002-1", "0003-1", "0004-1"]


def test_what_nobody_sends_stays_to_the_bit(config, tmp_path):
    """Under a threshold that no tensor reaches, nothing moves once no tensor is zero."""
    config = {**config, "send.rule": "fixed-g", "send.fixed-threshold": "1e30"}
    folder, live = run(config, tmp_path / "run")
    last_round = updates(live)[len(updates(live)) // 2 :]
    assert all(not set(opened(r.content.array_records[protocol.ARRAYS])) & {"encoder", "decoder"} for r in last_round)
    first, last = (folder.checkpoints.load(number).tensors for number in (1, 2))
    for part in ("encoder", "decoder"):
        assert all((first[part]["all"][name] == last[part]["all"][name]).all() for name in first[part]["all"])


def test_scores_say_what_was_saved(config, made, tmp_path):
    folder, _ = run({**config, "send.rule": "top-k", "send.share": 0.25}, tmp_path / "run")
    scores = folder.read("scores.json")
    assert scores["number_saving"] == pytest.approx(0.75, abs=0.001)
    assert 0 <= scores["tensor_saving"] < 0.75
    everything, _ = made()
    assert "number_saving" not in everything.read("scores.json")
    assert scores["uplink_bytes_per_round"] < everything.read("scores.json")["uplink_bytes_per_round"]


def test_pmfl_is_all_of_the_full_model_for_everybody(four_sites, tmp_path):
    config = {**four_sites, "rounds": 1, "learning-rate": 1e-3, "aggregation": "fed-avg"}
    pmfl, _ = run({**config, "method": "pmfl"}, tmp_path / "pmfl")
    fed, _ = run({**config, "method": "model-fed"}, tmp_path / "fed")
    assert checkpoint_bytes(pmfl) == checkpoint_bytes(fed)


@pytest.mark.parametrize("method", ["dp-g", "top-k", "metasend-l"])
def test_a_methods_name_is_its_selection_of_the_full_model(four_sites, tmp_path, method):
    config = {**four_sites, "method": method, "rounds": 1, "learning-rate": 1e-3, "meta.batches": 1}
    folder, _ = run(config, tmp_path / "run")
    run_json = folder.read("run.json")
    assert run_json["exchanged_parameters"] == run_json["backbone"]["parameters"]
    assert 0 < folder.read("scores.json")["number_saving"] < 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"method": "adapter-local", "send.rule": "dp-g"}, "under method adapter-local nothing leaves a site"),
        ({"send.rule": "dp"}, "dp-g"),
        ({"send.rule": "top-k", "send.share": 0.0}, "too small; wanted more than 0 and at most 1"),
        ({"send.rule": "fixed-g", "send.fixed-threshold": "half"}, "wanted a number"),
        ({"send.rule": "fixed-g", "send.fixed-threshold": "-1"}, "wanted a number"),
        ({"send.rule": "metasend-g", "strategy": "strategies.methods.fed_mean:FedMean"}, "rounds of two phases"),
    ],
)
def test_what_a_selection_cannot_do_is_refused_before_training(config, tmp_path, change, told):
    with pytest.raises(ConfigError, match=told):
        run({**config, **change}, tmp_path / "run")
