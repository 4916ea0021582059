"""Whole rounds under what is longer than it should be, and under the rules to choose: what is left out, scaled down, and told."""

import json

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError
from tests.hostile.robust_table import config_of, flipped, forging, zeros
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


@pytest.mark.parametrize(
    ("rule", "optimizer"),
    [("median", "none"), ("trimmed-mean", "sgd"), ("krum", "none"), ("multi-krum", "sgd"), ("norm-clip", "none")],
)
def test_a_rule_holds_a_liar_off_by_itself(tmp_path, rule, optimizer):
    """Without a bound on lengths: the tensors stay within what the honest sites sent, or are clipped to their length."""
    more = {"aggregation": rule, "robust.max-ratio": 0.0, "server.optimizer": optimizer, "server.learning-rate": 1.0}
    config = config_of(tmp_path, FIVE, **more, **{"server.momentum": 0.0})
    folder, _ = run(
        config, tmp_path / "run", num_nodes=1, tamper=forging(("court",), lambda start, own: flipped(1e4, start, own))
    )
    honest, _ = run(config, tmp_path / "honest", num_nodes=1)
    lied, wanted = (line[1]["dev_loss"] for line in (rounds(folder), rounds(honest)))
    assert lied == pytest.approx(wanted, rel=0.02)


def test_a_cluster_with_too_few_good_updates_stays_as_it_was(tmp_path):
    config = config_of(tmp_path, FIVE, aggregation="krum")
    folder, _ = run(config, tmp_path / "run", num_nodes=1, tamper=forging(("court",), zeros))
    notes = (folder.directory / "progress.jsonl").read_text()
    assert "the encoder cluster all stays as it was: 4 good updates, and aggregation = 'krum' needs 5" in notes


def test_too_few_sites_for_a_rule_are_refused_before_the_run(tmp_path):
    config = config_of(tmp_path, FIVE, aggregation="krum", **{"robust.byzantine-sites": 2})
    with pytest.raises(ConfigError, match="needs 7 sites in every cluster, and the encoder cluster 'all' has 5: hospital, "):
        run(config, tmp_path / "run", num_nodes=1)


@pytest.mark.parametrize("keys", [{}, {"method": "model-fed", "learning-rate": 1e-3}, {"optimizer": "sgd", "learning-rate": 0.1}])
def test_every_honest_update_is_whole_where_sizes_differ_25_fold(tmp_path, keys):
    folder, _ = run(config_of(tmp_path, (300, 12, 24, 40, 80), **keys), tmp_path / "run", num_nodes=1)
    assert [line["failures"] for line in rounds(folder)] == [[], []]
    assert not any("scaled_to" in told for told in rounds(folder)[1]["sites"].values())
