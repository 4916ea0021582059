"""LoRA-SB, (IA)^3 and layer norms in whole runs: clusters by part, models of a site's own, killed and resumed."""

from typing import Any

import pytest
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.in_process import rounds, run

WAYS: dict[str, dict[str, Any]] = {
    "lora-sb": {
        "method": "adapter-families",
        "cluster.parts": "decoder",
        "lora.targets": "q_proj,k_proj,v_proj,out_proj,fc1,fc2",
    },
    "ia3": {"method": "adapter-fed", "own-model": "ditto", "pull": 0.1},
    "norms": {"method": "adapter-fed", "own-model": "mr-mtl", "pull": 0.1},
}


@pytest.fixture
def config(four_sites):
    return {**four_sites, "rounds": 3, "batch-size": 4}


@pytest.mark.parametrize("name", WAYS)
def test_a_killed_run_ends_in_the_same_bytes_and_learns(config, tmp_path, name):
    config = {**config, **WAYS[name], "tensor-set": name}
    whole, _ = run(config, tmp_path / "whole")
    folder = resume(config, begin(config, tmp_path / "killed", number=3), shuffle_seed=3)
    assert final_bytes(folder) == final_bytes(whole)
    assert losses(folder) == losses(whole)
    assert losses(whole)[-1][1] < losses(whole)[0][1]
    assert not [failure for line in rounds(whole) for failure in line["failures"]]


def test_a_round_of_lora_sb_is_kilobytes_and_its_parts_are_averaged_apart(config, tmp_path):
    config = {**config, **WAYS["lora-sb"], "tensor-set": "lora-sb", "rounds": 1}
    folder, _ = run(config, tmp_path / "run")
    chosen = build_trainable(settings_from(config)).tensor_set
    # An encoder layer of 6 matrices and a decoder layer of 10, 8 x 8 numbers in each.
    assert chosen.num_parameters == 16 * 64
    for moved in rounds(folder)[1]["bytes"].values():
        assert 4 * chosen.num_parameters < moved["train"]["uplink_bytes"] < 4 * chosen.num_parameters + 3000
    clusters = folder.read("clusters.json")
    assert (len(clusters["encoder"]), len(clusters["decoder"])) == (1, 2)
    for part, named in clusters.items():
        for cluster in named:
            got = load_file(folder.directory / "checkpoints" / "0001" / f"{part}.{cluster}.safetensors")
            assert list(got) == sorted(spec.name for spec in chosen.of_part(part))
            assert all(array.shape == (8, 8) and array.any() for array in got.values())


@pytest.mark.parametrize("name", WAYS)
def test_signatures_are_gradients_of_adapters_alone(run_config, name):
    with pytest.raises(ConfigError, match=r"takes the gradient of an adapter.* give tensor-set = 'adapters'"):
        settings_from({**run_config, "method": "adapter-gradients", "tensor-set": name})
