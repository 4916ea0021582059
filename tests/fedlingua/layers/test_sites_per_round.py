"""Rounds that some of the sites train in: who is asked, what counts, what stays, and that all of it resumes."""

from collections import defaultdict
from itertools import islice
from typing import Any

import pytest
from flwr.app import Message
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.exchange import protocol
from fedlingua.layers.drawn_sites import draws
from fedlingua.runs.plan import check_enough
from fedlingua.settings.checks import settings_from
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.federations import SITES
from tests.gate import cases
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run

PAIRS = {"hospital": "Germanic", "court": "Germanic", "school": "Slavic", "bank": "Slavic"}
"""Site -> its encoder cluster; the decoder clusters have the same sites."""


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-families", "rounds": 4, "sites-per-round": 2}


def asked(live: InProcessGrid) -> dict[str, dict[int, set[str]]]:
    """Kind of message -> round -> the sites that got one."""
    kinds: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for message in live.sent:
        if task := message.content.config_records.get(protocol.TASK):
            kinds[message.metadata.message_type][int(task["round"])].add(str(task["site"]))
    return kinds


def test_those_drawn_train_and_all_are_measured_and_asked_at_the_end(config, tmp_path):
    folder, live = run(config, tmp_path / "run")
    clusters: Any = {"encoder": folder.read("clusters.json")["encoder"], "decoder": folder.read("clusters.json")["decoder"]}
    wanted = list(islice(draws(SITES, clusters, 2, int(config["seed"])), 4))
    kinds = asked(live)
    assert kinds[protocol.TRAIN] == dict(enumerate(wanted, start=1))
    assert kinds[protocol.EVALUATE] == {number: set(SITES) for number in range(5)}
    assert list(kinds[protocol.FINISH].values()) == [set(SITES)]
    assert [line.get("drawn") for line in rounds(folder)] == [None, *([s for s in SITES if s in sites] for sites in wanted)]
    assert all({PAIRS[site] for site in sites} == {"Germanic", "Slavic"} for sites in wanted)
    for line in rounds(folder):
        assert {site for site, figures in line["sites"].items() if "train_loss" in figures} == set(line.get("drawn", ()))
        assert {site for site, figures in line["sites"].items() if "dev_loss" in figures} == set(SITES)
    scores = folder.read("scores.json")
    assert scores["total_bytes"]["up"] > 2 * scores["uplink_bytes_per_round"] > 4 * scores["exchanged_parameters"]


@pytest.mark.usefixtures("all_checkpoints")
def test_a_cluster_of_which_nobody_was_drawn_keeps_its_tensors(config, tmp_path):
    folder, _ = run({**config, "sites-per-round": 1, "server.optimizer": "adam"}, tmp_path / "run")
    seen = set()
    for line in rounds(folder)[2:]:
        (site,) = line["drawn"]
        seen.add(PAIRS[site])
        for cluster in ("Germanic", "Slavic"):
            before, after = (
                load_file(folder.directory / "checkpoints" / f"{number:04d}" / f"encoder.{cluster}.safetensors")
                for number in (line["round"] - 1, line["round"])
            )
            assert all((before[name] == after[name]).all() for name in after) == (cluster != PAIRS[site])
    assert seen == {"Germanic", "Slavic"}


def test_rounds_of_all_sites_are_the_rounds_without_the_option(config, tmp_path):
    plain, _ = run({**config, "sites-per-round": 0}, tmp_path / "plain")
    for every in (4, 0.99):
        assert checkpoint_bytes(run({**config, "sites-per-round": every}, tmp_path / str(every))[0]) == checkpoint_bytes(plain)


@pytest.mark.parametrize(("share", "sites"), [(0.0, 9), (0.3, 3), (1 / 3, 3), (0.01, 1), (0.99, 9), (1.0, 1), (4.0, 4)])
def test_a_number_below_one_is_a_share_and_rounded_up(run_config, share, sites):
    assert settings_from({**run_config, "sites-per-round": share}).sites_drawn(9) == sites


def test_same_seed_same_bytes_for_any_nodes_and_order_of_replies(config, tmp_path):
    whole, _ = run(config, tmp_path / "whole")
    for nodes, shuffle in ((1, 1), (4, 2)):
        folder, _ = run(config, tmp_path / str(nodes), nodes, shuffle_seed=shuffle)
        assert checkpoint_bytes(folder) == checkpoint_bytes(whole)


WAYS = {
    "residuals": {"send.code": "4bit", "best-by": "last"},
    "measured seldom": {"send.code": "4bit top 0.5", "evaluate-every": 3},
    "Adam kept": {"optimizer-state": "kept"},
    "last own tensors": {"send.rule": "fixed-g", "send.fixed-threshold": "median"},
    "freezing": {"send.rule": "apf", "server.optimizer": "adam"},
    "controllers": {"tensor-set": "controllers", "learning-rate": 0.001},
    "pull": {"pull": 0.1},
    "gradients": {"method": "adapter-gradients", "signature.adapter": "encoder.0.self_attn"},
    "stock": {"method": "adapter-fed", "strategy": "flwr.serverapp.strategy:FedAdam", "send.code": "4bit"},
}


@pytest.mark.parametrize("way", cases(WAYS, {"residuals", "last own tensors", "controllers", "gradients"}))
def test_a_killed_run_ends_in_the_same_bytes_and_no_site_fails(config, tmp_path, way):
    config = {**config, **WAYS[way]}
    whole, live = run(config, tmp_path / "whole")
    folder = resume(config, begin(config, tmp_path / "killed", number=3, answered=True), shuffle_seed=3)
    assert final_bytes(folder) == final_bytes(whole)
    assert losses(folder) == losses(whole)
    assert not [failure for line in rounds(whole) for failure in line["failures"]]
    assert all(len(sites) == 2 for sites in asked(live)[protocol.TRAIN].values())


def test_what_is_a_sites_own_goes_on_from_the_round_that_it_last_trained_in(config, tmp_path):
    _, live = run({**config, "rounds": 6, "optimizer-state": "kept"}, tmp_path / "run")
    last = dict.fromkeys(SITES, 0)
    for message in live.sent:
        if message.metadata.message_type == protocol.TRAIN:
            task = message.content[protocol.TASK]
            assert task["own"][0] == last[str(task["site"])]
            last[str(task["site"])] = int(task["round"])
    assert sorted(last.values()) == [5, 5, 6, 6]


def test_a_site_that_sat_out_is_given_a_copy_and_one_that_holds_the_last_round_a_change(config, tmp_path):
    """Measured after every third round alone, a site has missed what came in between."""
    _, live = run({**config, "send.code": "4bit", "evaluate-every": 3, "rounds": 5}, tmp_path / "run")
    holds, given_to = dict.fromkeys(SITES, 0), []
    for message in live.sent:
        kind = message.metadata.message_type
        if kind in (protocol.TRAIN, protocol.EVALUATE) and message.content[protocol.TASK]["round"]:
            task = message.content[protocol.TASK]
            number = int(task["round"]) - (kind == protocol.TRAIN)
            dtypes = {array.dtype for array in message.content[protocol.ARRAYS].values()}
            missed = number - holds[str(task["site"])]
            assert dtypes == {0: set(), 1: {"uint8"}}.get(missed, {"float32"})
            given_to.append(missed)
            holds[str(task["site"])] = number
    assert {*given_to} == {0, 1, 2, 3}


def test_the_quorum_is_of_those_drawn(config, tmp_path):
    first = sorted(next(draws(SITES, _clusters(), 2, int(config["seed"]))))

    def both_fail(request: Message, reply: Message) -> Message:
        for site in first:
            reply = failing(site, protocol.TRAIN, 1)(request, reply)
        return reply

    half = {**config, "quorum": 0.5, "robust.max-bad-replies": 0}
    folder, _ = run(half, tmp_path / "one of two", tamper=failing(first[0], protocol.TRAIN, 1))
    assert [failure["site"] for failure in rounds(folder)[1]["failures"]] == [first[0]]
    with pytest.raises(RunError, match=r"round 1, train: 0 of 2 sites answered well, quorum = 0.5 needs 1"):
        run(half, tmp_path / "none", tamper=both_fail)
    folder, live = run({**half, "below-quorum": "go-on"}, tmp_path / "skipped", tamper=both_fail)
    assert [line["dev_loss"] is None for line in rounds(folder)] == [False, True, False, False, False]
    assert [len(sites) for sites in asked(live)[protocol.TRAIN].values()] == [2, 2, 2, 2]


def _clusters() -> Any:
    named = {name: [site for site in SITES if PAIRS[site] == name] for name in ("Germanic", "Slavic")}
    return {"encoder": named, "decoder": named}


def test_more_sites_than_there_are_are_refused(run_config):
    settings = settings_from({**run_config, "sites-per-round": 5})
    with pytest.raises(ConfigError, match="sites-per-round = 5, and the federation has 4 sites"):
        check_enough(settings, 4)
