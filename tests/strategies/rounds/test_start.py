"""`start-from`: another federation begins with the tensors that a run's last round stored."""

import shutil

import numpy as np
import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from tests.faults.test_resume import begin, final_bytes, losses
from tests.federations import FOUR_SITES, TWO_SITES
from tests.in_process import run


@pytest.fixture
def config(least_run_config, tmp_path):
    (tmp_path / "two.toml").write_text(TWO_SITES)
    (tmp_path / "four.toml").write_text(FOUR_SITES)
    families = {"method": "adapter-families", "cluster.least": 1, "learning-rate": 0.03}
    return {**least_run_config, **families, "federation": str(tmp_path / "four.toml")}


@pytest.fixture
def first(config, tmp_path):
    """A run of two of the four sites, with encoder clusters Germanic and Slavic, and one of the decoders, all."""
    return run({**config, "federation": str(tmp_path / "two.toml")}, tmp_path / "first")[0]


def stored(folder, number):
    return folder.checkpoints.load(number).tensors


def test_a_cluster_begins_with_that_of_its_name_or_the_mean_of_all(config, first, tmp_path):
    config |= {"rounds": 1, "start-from": str(first.directory)}
    before = stored(first, 2)
    assert set(before["encoder"]) == {"Germanic", "Slavic"}
    assert len(before["decoder"]) == 1
    named = stored(run(config, tmp_path / "named")[0], 0)
    one = stored(run({**config, "method": "adapter-fed"}, tmp_path / "one")[0], 0)
    for name, germanic in before["encoder"]["Germanic"].items():
        slavic = before["encoder"]["Slavic"][name]
        np.testing.assert_array_equal(named["encoder"]["Germanic"][name], germanic)
        np.testing.assert_array_equal(named["encoder"]["Slavic"][name], slavic)
        np.testing.assert_array_equal(one["encoder"]["all"][name], germanic / 2 + slavic / 2)
    (decoder,) = before["decoder"].values()
    for cluster in named["decoder"].values():
        for name, tensor in decoder.items():
            np.testing.assert_array_equal(cluster[name], tensor)


def test_a_run_goes_on_from_anothers_model_killed_or_not_and_measures_the_backbone_first(config, first, tmp_path):
    config |= {"rounds": 3, "send.code": "4bit"}
    cold, _ = run(config, tmp_path / "cold")
    config["start-from"] = str(first.directory)
    warm, _ = run(config, tmp_path / "warm")
    assert losses(warm)[0] == losses(cold)[0]
    assert losses(warm)[1][1] < losses(cold)[1][1]
    killed = begin(config, tmp_path / "killed", protocol.TRAIN, 1)
    shutil.rmtree(first.directory)  # the first checkpoint holds what is needed of it
    resumed, _ = run({**config, "resume": True}, killed.directory)
    assert final_bytes(resumed) == final_bytes(warm)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"adapter.dim": 8}, r"has shape \(.*; wanted .*; give a run of the same backbone and added layers"),
        ({"tensor-set": "lora"}, r"tensor\(s\) that the set 'lora' does not have"),
        ({"backbone": "demo", "rounds": 1}, "its backbone, .*, is not the same as 'demo'"),
    ],
    ids=["shape", "tensor-set", "backbone"],
)
def test_tensors_that_do_not_fit_are_refused_before_a_round(config, first, tmp_path, changes, why):
    with pytest.raises(RunError, match=f"start-from = .*: .*{why}"):
        run({**config, **changes, "start-from": str(first.directory)}, tmp_path / "next")
    assert not (tmp_path / "next" / "rounds.jsonl").exists()


def test_a_run_that_stored_no_round_is_refused(config, tmp_path):
    with pytest.raises(RunError, match=r"start-from = .*nowhere.*: it has no good checkpoint"):
        run({**config, "start-from": str(tmp_path / "nowhere")}, tmp_path / "next")
