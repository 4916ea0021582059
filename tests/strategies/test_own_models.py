"""What is a site's own: layers that stay, and models that go on beside the federation's; in whole runs, killed and resumed ones too."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError
from fedlingua.exchange import protocol
from fedlingua.exchange.delivery import delivered
from fedlingua.settings.checks import settings_from
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.in_process import rounds, run

PRIVATE = {"private-layers": "decoder.-1"}
WAYS = {"private": PRIVATE, "private-lora": {**PRIVATE, "tensor-set": "lora"}}


@pytest.fixture
def families(four_sites):
    return {**four_sites, "method": "adapter-families", "rounds": 3, "adapter.dim": 16}


def bytes_of(folder, which: str) -> dict[str, int]:
    return {site: record[f"{which}_bytes"] for site, record in rounds(folder)[1]["sites"].items()}


def own_tensors(folder, site: str, number: int) -> dict[str, np.ndarray]:
    return load_file(folder.directory / "sites" / site / "rounds" / f"{number:04d}-1.safetensors")


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_run_ends_in_the_same_bytes(families, tmp_path, way):
    config = {**families, **WAYS[way]}
    whole, _ = run(config, tmp_path / "whole")
    for phase, number in ((protocol.EVALUATE, 2), (protocol.TRAIN, 3)):
        folder = resume(config, begin(config, tmp_path / f"{phase}{number}", phase, number), shuffle_seed=3)
        assert final_bytes(folder) == final_bytes(whole)
        assert losses(folder) == losses(whole)
    assert losses(whole)[-1][1] < losses(whole)[0][1]


def test_private_layers_differ_from_site_to_site_and_cost_no_bytes(families, tmp_path):
    plain, _ = run({**families, "rounds": 1}, tmp_path / "plain")
    folder, _ = run({**families, **PRIVATE, "rounds": 1}, tmp_path / "private")
    for which in ("uplink", "downlink"):
        shares = [bytes_of(folder, which)[site] / size for site, size in bytes_of(plain, which).items()]
        assert max(shares) < 0.75  # three of the ten adapters stay
    decoders = [delivered(folder.directory / "sites" / site)[0] for site in ("hospital", "court")]
    for name in decoders[0]:
        stays = name.startswith("model.decoder.layers.1.")
        assert (name in own_tensors(folder, "court", 1)) == stays
        assert not stays or (decoders[0][name] != decoders[1][name]).any()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"private-layers": "decoder"}, "wanted part.layer or part.third"),
        ({"private-layers": "shared.1"}, "wanted part.layer or part.third"),
        ({"private-layers": "decoder.-1", "method": "adapter-local"}, "nothing leaves a site"),
    ],
)
def test_what_does_not_go_together_is_refused(run_config, changes, reason):
    with pytest.raises(ConfigError, match=reason):
        settings_from({**run_config, **changes})
