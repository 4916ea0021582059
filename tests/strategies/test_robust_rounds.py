"""Whole rounds under what is longer than it should be, and under the rules to choose: what is left out, scaled down, and told."""

import json

import numpy as np
import pytest

from tests.hostile.robust_table import config_of, flipped, forging
from tests.in_process import rounds, run

FIVE = (40,) * 5


def longer(times):
    return lambda start, trained: start + np.float32(times) * (trained - start)


@pytest.mark.fault("refused")
def test_whose_update_is_left_out_ends_no_run_and_is_not_set_aside(tmp_path):
    """Under the default quorum of all sites, and for more rounds than bad replies are allowed."""
    config = config_of(tmp_path, FIVE, rounds=3, **{"robust.max-bad-replies": 1})
    folder, _ = run(
        config, tmp_path / "run", num_nodes=1, tamper=forging(("court",), lambda start, own: flipped(90.0, start, own))
    )
    told = [[(each["site"], each["phase"], each["kind"]) for each in line["failures"]] for line in rounds(folder)]
    assert told == [[], *[[("court", "train", "refused")]] * 3]
    assert all("court" in line["sites"] and "dev_loss" in line["sites"]["court"] for line in rounds(folder))


def test_an_update_that_is_too_long_counts_in_part_and_is_told(tmp_path):
    """SGD has no reach of its own: what goes 2.2 times as far as the others' lead to expect counts as 2 times."""
    config = config_of(tmp_path, FIVE, optimizer="sgd", **{"learning-rate": 0.1, "robust.max-ratio": 2.5})
    honest, _ = run(config, tmp_path / "honest", num_nodes=1)
    assert [line["failures"] for line in rounds(honest)] == [[], []]
    lengths = {site: told["update_norm"] for site, told in rounds(honest)[1]["sites"].items()}
    others = sorted(length for site, length in lengths.items() if site != "court")[2]
    times = 2.2 * others / lengths["court"]
    folder, _ = run(config, tmp_path / "run", num_nodes=1, tamper=forging(("court",), longer(times)))
    (failure,) = rounds(folder)[1]["failures"]
    assert (failure["site"], failure["kind"]) == ("court", "scaled")
    assert failure["reason"].startswith("scaled down: it changes what it sends by ")
    assert rounds(folder)[1]["sites"]["court"]["scaled_to"] <= 2 / 2.2 + 1e-3
    events = [json.loads(line) for line in (folder.directory / "progress.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events if event["event"] == "failure"] == ["scaled"]


FLOWERS = "flwr.serverapp.strategy"
RULES = {
    "FedMedian": {"strategy": f"{FLOWERS}:FedMedian"},
    "FedTrimmedAvg": {"strategy": f"{FLOWERS}:FedTrimmedAvg(beta=0.2)"},
    "Krum": {"strategy": f"{FLOWERS}:Krum(num_malicious_nodes=1)"},
    "MultiKrum": {"strategy": f"{FLOWERS}:MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4)"},
    "norm-clip": {"aggregation": "norm-clip"},
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_a_liar_off_by_itself(tmp_path, rule):
    """Without a bound on lengths: the tensors stay within what the honest sites sent, or are clipped to their length."""
    config = config_of(tmp_path, FIVE, **{**RULES[rule], "robust.max-ratio": 0.0})
    folder, _ = run(
        config, tmp_path / "run", num_nodes=1, tamper=forging(("court",), lambda start, own: flipped(1e4, start, own))
    )
    honest, _ = run(config, tmp_path / "honest", num_nodes=1)
    lied, wanted = (line[1]["dev_loss"] for line in (rounds(folder), rounds(honest)))
    assert lied == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize("keys", [{}, {"method": "model-fed", "learning-rate": 1e-3}, {"optimizer": "sgd", "learning-rate": 0.1}])
def test_every_honest_update_is_whole_where_sizes_differ_25_fold(tmp_path, keys):
    folder, _ = run(
        config_of(tmp_path, (300, 12, 24, 40, 80), **{"group-by-length": False, **keys}), tmp_path / "run", num_nodes=1
    )
    assert [line["failures"] for line in rounds(folder)] == [[], []]
    assert not any("scaled_to" in told for told in rounds(folder)[1]["sites"].values())
