"""What is a site's own: layers that stay, and models that go on beside the federation's; in whole runs, killed and resumed ones too."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlingua.backbones.shared_private import rest_name
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import Direction
from fedlingua.desk.export.forms import chosen_form
from fedlingua.exchange import protocol
from fedlingua.exchange.delivery import delivered
from fedlingua.settings.checks import settings_from
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.federations import SITES
from tests.gate import cases
from tests.in_process import checkpoint_bytes, failing, rounds, run
from tests.translated_runs import translator_of_direction, translator_of_site

PRIVATE = {"private-layers": "decoder.-1"}
DITTO, MR_MTL = ({"own-model": name, "pull": 0.1} for name in ("ditto", "mr-mtl"))
LORA, SHARED = {"tensor-set": "lora"}, {"own-model": "shared-private"}
WAYS = {
    "private": PRIVATE,
    "private-lora": {**PRIVATE, **LORA},
    "prox": {"pull": 0.1},
    "ditto": DITTO,
    "ditto-lora": {**DITTO, **LORA},
    "shared-private": SHARED,
    "shared-private-lora": {**SHARED, **LORA},
    "mr-mtl": MR_MTL,
    "mr-mtl-lora": {**MR_MTL, **LORA, "aggregation": "fed-avg"},
}


@pytest.fixture
def families(four_sites):
    return {**four_sites, "method": "adapter-families", "rounds": 3, "adapter.dim": 16}


@pytest.fixture
def two_layers(tiny_backbone):
    """Of each stack, so that one can stay."""
    return {"backbone": str(tiny_backbone)}


def bytes_of(folder, which: str) -> dict[str, int]:
    return {site: record[f"{which}_bytes"] for site, record in rounds(folder)[1]["sites"].items()}


def as_bytes(tensors) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tensors.items()}


def own_tensors(folder, site: str, number: int) -> dict[str, np.ndarray]:
    return load_file(folder.directory / "sites" / site / "rounds" / f"{number:04d}-1.safetensors")


@pytest.mark.parametrize("way", cases(WAYS, {"ditto", "shared-private-lora", "mr-mtl"}))
def test_a_run_that_is_killed_in_training_and_again_while_it_measures_ends_in_the_same_bytes(families, two_layers, tmp_path, way):
    config = {**families, **(two_layers if "private-layers" in WAYS[way] else {}), **WAYS[way]}
    whole, _ = run(config, tmp_path / "whole")
    folder = begin(config, tmp_path / "killed", protocol.TRAIN, 2)
    begin({**config, "resume": True}, folder.directory, protocol.EVALUATE, 3)
    resume(config, folder, shuffle_seed=3)
    assert final_bytes(folder) == final_bytes(whole)
    assert losses(folder) == losses(whole)
    assert losses(whole)[-1][1] < losses(whole)[0][1]


def test_private_layers_differ_from_site_to_site_and_cost_no_bytes(families, two_layers, tmp_path):
    families = {**families, **two_layers}
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


def test_ditto_leaves_the_federations_model_as_it_is_without_it_and_each_site_has_another(families, tmp_path):
    config = {**families, "rounds": 2}
    plain, _ = run(config, tmp_path / "plain")
    folder, live = run({**config, **DITTO}, tmp_path / "ditto")
    assert checkpoint_bytes(folder) == checkpoint_bytes(plain)
    assert bytes_of(folder, "uplink") == bytes_of(plain, "uplink")
    assert {float(m.content["config"]["proximal-mu"]) for m in live.sent if "config" in m.content} == {0.1}
    best = folder.read("run.json")["best_round"]
    for site in SITES:
        got = delivered(folder.directory / "sites" / site)[0]
        assert as_bytes(got) == as_bytes(own_tensors(folder, site, best))
    assert losses(folder)[-1] != losses(plain)[-1]


def test_the_stronger_the_pull_the_nearer_an_own_model_is_to_the_mean(families, tmp_path):
    def distance(pull: float, model: str) -> float:
        config = {**families, "method": "adapter-fed", "rounds": 2, "batch-size": 4, "own-model": model, "pull": pull}
        folder, _ = run(config, tmp_path / f"{model}{pull}")
        mean = {}
        for file in (folder.directory / "checkpoints" / "0002").glob("*coder.*.safetensors"):
            mean |= load_file(file)
        own = own_tensors(folder, "court", 2)
        return sum(float(np.square(own[name] - mean[name]).sum()) for name in mean)

    for model in ("ditto", "mr-mtl"):
        assert distance(100.0, model) < 0.5 * distance(0.0, model)


def test_without_a_pull_mr_mtl_is_every_site_alone_and_the_server_has_their_mean(families, tmp_path):
    alone, _ = run({**families, "method": "adapter-local", "rounds": 2}, tmp_path / "alone")
    folder, _ = run({**families, "own-model": "mr-mtl", "rounds": 2}, tmp_path / "mr-mtl")
    own = {site: own_tensors(folder, site, 2) for site in SITES}
    for site in SITES:
        assert as_bytes(own[site]) == as_bytes(own_tensors(alone, site, 2))
    assert losses(folder) == losses(alone)
    for part, clusters in folder.read("clusters.json").items():
        for name, sites in clusters.items():
            for tensor, got in load_file(folder.directory / "checkpoints" / "0002" / f"{part}.{name}.safetensors").items():
                wanted = np.mean([own[site][tensor].astype(np.float64) for site in sites], axis=0)
                np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def test_an_update_is_measured_from_what_its_site_sent_last(families, tmp_path):
    """After a round that one site missed it goes on from its own, and nobody takes that for too long a way."""
    config = {**families, **MR_MTL, "rounds": 4, "quorum": 0.5}
    folder, _ = run(config, tmp_path / "run", tamper=failing("court", protocol.TRAIN, 2))
    assert [(f["site"], f["kind"]) for line in rounds(folder) for f in line["failures"]] == [("court", "failed")]
    for number, line in enumerate(rounds(folder)[2:], start=2):
        for site in line["sites"]:
            last = 1 if (site, number) == ("court", 3) else number - 1
            if (site, number) == ("court", 2) or number < 4:
                continue  # pruned
            before, after = own_tensors(folder, site, last), own_tensors(folder, site, number)
            norm = np.sqrt(sum(np.square(after[name].astype(np.float64) - before[name]).sum() for name in after))
            assert line["sites"][site]["update_norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("kind", ["adapters", "lora"])
def test_beside_its_own_a_site_has_the_mean_of_the_others_for_no_byte_of_tensors_more(families, tmp_path, kind):
    sites = ["hospital", "school", "bank"]  # court is away in round 2
    config = {**families, "method": "adapter-fed", "tensor-set": kind, "rounds": 2, "quorum": 0.5, "best-by": "last"}
    plain, _ = run(config, tmp_path / "plain")
    folder, live = run({**config, **SHARED}, tmp_path / "run", tamper=failing("court", protocol.TRAIN, 2))
    assert bytes_of(folder, "uplink") == bytes_of(plain, "uplink")
    more = [bytes_of(folder, "downlink")[site] - size for site, size in bytes_of(plain, "downlink").items()]
    assert max(more) < 200
    own = {site: own_tensors(folder, site, 2) for site in sites} | {"court": own_tensors(folder, "court", 1)}
    for site in sites:
        got = delivered(folder.directory / "sites" / site)[0]
        assert {name for name in got if ".beside." not in name} | {name for name in got if ".gate." in name} == set(own[site])
        pairs = {name: rest_name(name) for name in own[site] if rest_name(name)}
        assert set(pairs.values()) == {name for name in got if ".beside." in name and ".gate." not in name}
        for name, rest in pairs.items():
            assert got[name].tobytes() == own[site][name].tobytes()
            others = np.mean([own[other][name].astype(np.float64) for other in sites if other != site], axis=0)
            np.testing.assert_allclose(got[rest], others, rtol=0, atol=1e-6)
        assert any(got[name].any() for name in got if ".gate.weight" in name)
    # Who took no part is not in the mean, and has all of it beside its own.
    away = delivered(folder.directory / "sites" / "court")[0]
    mean = np.mean([own[site][name].astype(np.float64) for site in sites], axis=0)
    np.testing.assert_allclose(away[rest_name(name)], mean, rtol=0, atol=1e-6)
    asked = [m.content[protocol.TASK] for m in live.sent if m.metadata.message_type == protocol.FINISH]
    assert {task["site"]: [round(share, 4) for share in task["shares"]] for task in asked} == {
        **{site: [0.3333] * 3 for site in sites},
        "court": [0.0] * 3,
    }


def test_two_adapters_translate_as_they_were_delivered_and_no_form_or_direction_has_them(families, tmp_path):
    folder, _ = run({**families, **SHARED, "rounds": 1}, tmp_path / "run")
    lines = [line.split("\t") for line in (folder.directory / "sites/court/translations.tsv").read_text().splitlines()[1:]]
    translator = translator_of_site(folder.directory, "court")
    assert translator.translate([line[0] for line in lines]) == [line[3] for line in lines]
    with pytest.raises(RunError, match="own-model = 'shared-private': only a part"):
        translator_of_direction(folder.directory, Direction("de", "es"))
    with pytest.raises(RunError, match="which no form holds"):
        chosen_form("", settings_from({**families, **SHARED}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"own-model": "shared-private", "pull": 0.1}, "has the others beside it instead"),
        ({"own-model": "ditto", "method": "adapter-local"}, "nothing leaves a site"),
        ({"own-model": "ditto", "tensor-set": "full"}, "give tensor-set = one of adapters, lora$"),
        ({"own-model": "shared-private", "tensor-set": "full"}, "give tensor-set = one of adapters, lora$"),
        ({"own-model": "ditto", "private-layers": "decoder.-1"}, "give one of the two"),
        ({"own-model": "mr-mtl", "send.rule": "top-k"}, "selection top-k sends a part of it"),
        ({"own-model": "mr-mtl", "server.optimizer": "adam"}, "the mean of their models"),
        ({"own-model": "mr-mtl", "aggregation": "norm-clip"}, "the mean of their models"),
        ({"pull": 0.1, "method": "adapter-local"}, "nothing leaves a site"),
        ({"pull": 0.1, "send.rule": "metasend-g"}, "no request that tells it"),
        ({"private-layers": "decoder"}, "wanted part.layer or part.third"),
        ({"private-layers": "shared.1"}, "wanted part.layer or part.third"),
        ({"private-layers": "decoder.-1", "method": "adapter-local"}, "nothing leaves a site"),
    ],
)
def test_what_does_not_go_together_is_refused(run_config, changes, reason):
    with pytest.raises(ConfigError, match=reason):
        settings_from({**run_config, **changes})
