"""What travels beside the tensors and is averaged as they are: Adam's state, SCAFFOLD's controls; in whole runs."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.exchange import protocol
from fedlingua.exchange.delivery import delivered
from fedlingua.exchange.joined import Joined
from fedlingua.exchange.records import from_record
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from strategies.checks.outliers import MOST_STEPS, adam_bounds
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.gate import cases
from tests.in_process import rounds, run
from tests.translated_runs import translator_of_direction

AVERAGED, SCAFFOLD = {"optimizer-state": "averaged"}, {"scaffold": True}
WAYS = {"averaged": AVERAGED, "scaffold-lora": {**SCAFFOLD, "tensor-set": "lora"}, "both": {**AVERAGED, **SCAFFOLD}}


@pytest.fixture
def families(four_sites):
    return {**four_sites, "method": "adapter-families", "rounds": 3, "adapter.dim": 16, "batch-size": 4}


def uplink(folder) -> int:
    return sum(moved["train"]["uplink_bytes"] for moved in rounds(folder)[1]["bytes"].values())


def sent(live, config, number: int) -> dict[str, dict[str, np.ndarray]]:
    """Site -> what it sent in a round, by name."""
    chosen, by_site = build_trainable(settings_from(config)).tensor_set, {}
    for reply in live.received:
        task = reply.content.config_records.get(protocol.TASK, {})
        if reply.metadata.message_type == protocol.TRAIN and task["round"] == number:
            by_site[task["site"]] = Joined(from_record(reply.content.array_records[protocol.ARRAYS]), chosen)
    return by_site


@pytest.mark.parametrize("way", cases(WAYS, {"both"}))
def test_a_killed_run_ends_in_the_same_bytes_and_learns(families, tmp_path, way):
    config = {**families, **WAYS[way]}
    whole, _ = run(config, tmp_path / "whole")
    folder = resume(config, begin(config, tmp_path / "killed", number=3), shuffle_seed=3)
    assert final_bytes(folder) == final_bytes(whole)
    assert losses(folder) == losses(whole)
    assert losses(whole)[-1][1] < losses(whole)[0][1]
    assert not [failure for line in rounds(whole) for failure in line["failures"]]


def test_an_averaged_adam_is_the_mean_of_the_sites_and_they_go_on_from_it(families, tiny_backbone, tmp_path):
    config = {**families, "backbone": str(tiny_backbone), "rounds": 2}
    plain, _ = run(config, tmp_path / "plain")
    folder, live = run({**config, **AVERAGED}, tmp_path / "averaged")
    assert uplink(folder) / uplink(plain) == pytest.approx(3, abs=0.15)
    assert rounds(folder)[1]["dev_loss"] == rounds(plain)[1]["dev_loss"]  # all begin with nothing
    assert rounds(folder)[2]["dev_loss"] != rounds(plain)[2]["dev_loss"]
    updates, clusters = sent(live, {**config, **AVERAGED}, 1), folder.read("clusters.json")["decoder"]
    for cluster, sites in clusters.items():
        for name, got in load_file(folder.directory / "checkpoints" / "0001" / f"decoder.{cluster}.safetensors").items():
            wanted = np.mean([updates[site][name].astype(np.float64) for site in sites], axis=0)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
    line, steps = rounds(folder)[1], {name: array for name, array in updates["court"].items() if name.endswith("/step")}
    assert {float(array[0]) for array in steps.values()} == {line["sites"]["court"]["steps"]}
    assert len(steps) == len(updates["court"]) / 4
    assert all((array >= 0).all() for name, array in updates["court"].items() if name.endswith("/exp_avg_sq"))
    # A site's model and the federation's are without companions.
    assert not [name for name in delivered(folder.directory / "sites" / "court")[0] if "/" in name]
    assert translator_of_direction(folder.directory, Direction("de", "fr")).translate([""]) == [""]


def test_a_control_is_the_mean_gradient_of_the_sites_last_round(families, tmp_path):
    config = {**families, "rounds": 2, "optimizer": "sgd", "learning-rate": 0.05}
    plain, _ = run(config, tmp_path / "plain")
    folder, live = run({**config, **SCAFFOLD}, tmp_path / "scaffold")
    assert uplink(folder) / uplink(plain) == pytest.approx(2, abs=0.15)  # sums and names are sent once
    assert rounds(folder)[1]["dev_loss"] == rounds(plain)[1]["dev_loss"]  # all controls begin with 0
    begun, steps = build_trainable(settings_from(config)).initial, rounds(folder)[1]["sites"]
    for site, update in sent(live, {**config, **SCAFFOLD}, 1).items():
        own = load_file(folder.directory / "sites" / site / "controls" / "0001-1.safetensors")
        assert list(own) == sorted(begun)
        for name in own:
            option_ii = (begun[name].astype(np.float64) - update[name]) / (steps[site]["steps"] * 0.05)
            np.testing.assert_allclose(own[name], option_ii, rtol=0, atol=1e-5)
            assert update[f"{name}/control"].tobytes() == own[name].tobytes()


def test_no_step_of_adam_is_bounded_lower_for_having_more_behind_it() -> None:
    bounds = adam_bounds(MOST_STEPS + 100)
    assert (np.diff(bounds[10:]) > -1e-9).all()
    assert bounds[-1] == pytest.approx(7.25, abs=0.02)


@pytest.mark.parametrize(
    "changes",
    [
        {**AVERAGED, "method": "adapter-local"},
        {**AVERAGED, "optimizer": "sgd"},
        {**SCAFFOLD, "own-model": "mr-mtl"},
        {**SCAFFOLD, "send.rule": "top-k"},
        {**AVERAGED, "server.optimizer": "adam"},
        {**SCAFFOLD, "server.extrapolation": True},
    ],
)
def test_what_could_not_be_averaged_as_it_is_is_refused(run_config, changes):
    with pytest.raises(ConfigError, match=r"beside every tensor|nothing leaves a site"):
        settings_from({**run_config, **changes})
