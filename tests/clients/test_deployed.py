"""A node with a site file: it reads its own text alone, and no path of the server's machine means anything to it."""

import json
import re

import pytest

from fedlingua.consent.site_file import SITE_FILE
from fedlingua.desk.deployment.audited import verify
from fedlingua.exchange.trainable import build_trainable
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from strategies.server_app import run_federation
from tests.deployed_sites import ROOMY
from tests.in_process import InProcessGrid, checkpoint_bytes, run

SITES = {"hospital": ("de-fr", 60), "court": ("nl-es", 50), "school": ("pl-sv", 55)}
SPLIT = '[split]\nmode = "shared-side"\nkey = "three"\ntrain = 0.6\ndev = 0.2\ntest = 0.2\n'


class Machines(InProcessGrid):
    """Three nodes with a site file each, and a run config whose paths lie on the server's machine only."""

    def __init__(self, config, folders, tamper=None):
        super().__init__(config, len(folders), tamper=tamper)
        self.folders = folders
        elsewhere = folders[0].parent / "a folder of another machine"
        places = {"federation": "federation.toml", "run-dir": "runs/1", "data-dir": "data"}
        self.run_config = {**config, **{key: str(elsewhere / place) for key, place in places.items()}}

    def node_config(self, node):
        return {SITE_FILE: str(self.folders[node - 100] / "site.toml")}


@pytest.fixture
def sites(tmp_path):
    """A folder for each site, with its file."""
    folders = []
    for name, (direction, sentences) in SITES.items():
        folder = tmp_path / f"machine of {name}"
        folder.mkdir()
        corpus = f'phrasebook = "{name}"\nsentences = {sentences}\n'
        text = (
            f'[[site]]\nname = "{name}"\ndirection = "{direction}"\n{corpus}[server]\naddress = "server:9092"\ninsecure = true\n'
        )
        (folder / "site.toml").write_text(text)
        folders.append(folder)
    return folders


@pytest.fixture
def config(least_run_config, tmp_path):
    return {**least_run_config, "deadline.phase-s": 30.0, "backbone": least_run_config["backbone"]}


def federation(tmp_path, corpora: bool):
    """The federation file: the server's, without corpora, or that of a simulation of the same sites."""
    text = SPLIT
    for name, (direction, sentences) in SITES.items():
        text += f'[[site]]\nname = "{name}"\ndirection = "{direction}"\n'
        text += f'phrasebook = "{name}"\nsentences = {sentences}\n' if corpora else ""
    file = tmp_path / f"{'simulated' if corpora else 'server'}.toml"
    file.write_text(text)
    return str(file)


def deploy(config, sites, tmp_path, name="deployed") -> RunFolder:
    """A run on three machines, in one process."""
    given = {**config, "federation": federation(tmp_path, corpora=False), "run-dir": str(tmp_path / name)}
    settings, folder = settings_from(given), RunFolder(tmp_path / name)
    backbones = f'[backbones]\n"{config["backbone"]}" = "{config["backbone"]}"\n'
    for site in sites:  # the backbone is a directory, so each site says where it lies
        file = site / "site.toml"
        if backbones not in file.read_text():
            file.write_text(f"{file.read_text()}{ROOMY}{backbones}")
    with folder.held():
        folder.open(settings, 1)
        run_federation(Machines(given, sites), settings, folder)
        folder.close("completed")
    return folder


@pytest.mark.parametrize(
    ("method", "tensor_set", "code"),
    [
        ("adapter-families", "", "none"),
        ("adapter-families", "", "4bit"),
        ("adapter-local", "", "none"),
        ("model-fed", "", "none"),
        ("model-fed", "", "4bit rank 4"),
        ("adapter-fed", "controllers", "none"),
        ("adapter-fed", "lora", "none"),
    ],
)
def test_a_deployed_run_ends_in_the_bytes_of_its_simulation(config, sites, tmp_path, method, tensor_set, code):
    config = {**config, "method": method, "tensor-set": tensor_set, "send.code": code}
    deployed = deploy(config, sites, tmp_path)
    simulated, _ = run({**config, "federation": federation(tmp_path, corpora=True)}, tmp_path / "simulated")
    assert checkpoint_bytes(deployed) == checkpoint_bytes(simulated)
    assert deployed.read("scores.json")["sites"] == simulated.read("scores.json")["sites"]
    whole_model = method == "model-fed" or tensor_set == "controllers"
    file = "model.safetensors" if whole_model else "adapter/adapter.safetensors"
    identity = deployed.read("run.json")["id"]
    for folder, name in zip(sites, SITES, strict=True):
        delivered = folder / "state" / "runs" / identity / name
        assert (delivered / file).read_bytes() == (simulated.directory / "sites" / name / file).read_bytes()
        assert json.loads((delivered / "delivered.json").read_text())["site"] == name
        own = json.loads((delivered / f"scores-{name}.json").read_text())[name]
        known = deployed.read("scores.json")["sites"][name]
        assert (own["bleu"], own["base_bleu"]) == (known["bleu"], known["base_bleu"])


def test_letters_that_the_tokenizer_lacks_are_told_in_the_run_and_by_a_deployed_site_in_its_own_log_alone(
    config, sites, tmp_path, caplog
):
    said = r"fr: \d+ of \d+ sentences have characters that the tokenizer of backbone '.*' lacks, so that they are lost: .*x"
    simulated, _ = run({**config, "rounds": 1, "federation": federation(tmp_path, corpora=True)}, tmp_path / "simulated")
    assert any(re.match(said, text) for text in simulated.read("run.json")["warnings"])
    assert not caplog.records
    deployed = deploy({**config, "rounds": 1}, sites, tmp_path)
    assert any(re.match(said, record.getMessage()) for record in caplog.records)
    assert "lacks, so" not in "".join(file.read_text() for file in deployed.directory.glob("*.json*"))


def test_a_deployed_run_that_is_given_more_rounds_ends_in_the_bytes_of_a_simulation_of_as_many(config, sites, tmp_path):
    config = {**config, "method": "adapter-families", "send.code": "4bit"}
    deploy({**config, "rounds": 1}, sites, tmp_path)
    extended = deploy({**config, "rounds": 2, "resume": True}, sites, tmp_path)
    simulated, _ = run({**config, "rounds": 2, "federation": federation(tmp_path, corpora=True)}, tmp_path / "simulated")
    assert checkpoint_bytes(extended) == checkpoint_bytes(simulated)
    assert extended.read("scores.json")["sites"] == simulated.read("scores.json")["sites"]


def test_deployed_sites_sum_securely_as_simulated_ones_and_show_no_figure_of_their_own(config, sites, tmp_path):
    config = {**config, "method": "adapter-fed", "privacy.sum": "secure"}
    deployed = deploy(config, sites, tmp_path)
    simulated, _ = run({**config, "federation": federation(tmp_path, corpora=True)}, tmp_path / "simulated")
    assert checkpoint_bytes(deployed) == checkpoint_bytes(simulated)
    scores = deployed.read("scores.json")
    assert scores["sites"] == simulated.read("scores.json")["sites"]
    assert [*scores["sites"]] == ["all sites"]
    shown, _ = run({**config, "privacy.scores": "sites", "federation": federation(tmp_path, corpora=True)}, tmp_path / "shown")
    assert scores["macro_chrf"] == pytest.approx(shown.read("scores.json")["macro_chrf"], abs=1e-5)
    travel = len(build_trainable(settings_from(config)).tensor_set.specs)
    for folder, name in zip(sites, SITES, strict=True):
        logged = {line["asked"].partition(",")[0]: line["tensors"] for line in verify(folder / "state")[0]}
        assert (logged["train"], logged["evaluate"], logged["evaluate.finish"]) == (travel, 0, 0)
        assert (folder / "state" / "runs" / deployed.read("run.json")["id"] / name / f"scores-{name}.json").is_file()


def test_sites_take_part_in_two_runs_at_once_and_neither_sees_the_other(config, sites, tmp_path, monkeypatch):
    """All of the second run comes between two messages of the first one's round 1."""
    several = [{**config, "method": "adapter-fed", "seed": 1}, {**config, "method": "model-fed", "seed": 2}]
    alone = [deploy(each, sites, tmp_path, f"alone-{at}") for at, each in enumerate(several)]
    between = []

    def interrupted(live, message, answer=Machines._run):
        if not between and message.metadata.message_type == "train" and message.content["task"]["site"] == "court":
            between.append("begun")
            between.append(deploy(several[1], sites, tmp_path, "together-1"))
        return answer(live, message)

    monkeypatch.setattr(Machines, "_run", interrupted)
    together = [deploy(several[0], sites, tmp_path, "together-0"), between[1]]
    for one, other in zip(alone, together, strict=True):
        assert checkpoint_bytes(one) == checkpoint_bytes(other)
        assert one.read("scores.json")["sites"] == other.read("scores.json")["sites"]


def test_a_deployed_site_keeps_the_translations_of_its_simulation_in_its_own_state(config, sites, tmp_path):
    config = {**config, "method": "adapter-families", "keep-translations": 2}
    deployed = deploy(config, sites, tmp_path)
    simulated, _ = run({**config, "federation": federation(tmp_path, corpora=True)}, tmp_path / "simulated")
    identity = deployed.read("run.json")["id"]
    for folder, name in zip(sites, SITES, strict=True):
        here, there = (
            {file.name: file.read_bytes() for file in (site / "translations-by-round").iterdir()}
            for site in (folder / "state" / "runs" / identity / name, simulated.directory / "sites" / name)
        )
        assert here == there
        assert sorted(here) == ["0000.jsonl", "0001.jsonl", "0002.jsonl"]


def test_nothing_of_a_site_lies_in_the_servers_folder(config, sites, tmp_path):
    deployed = deploy({**config, "method": "adapter-local", "keep-translations": 1}, sites, tmp_path)
    assert not (deployed.directory / "sites").exists()
    assert not list(deployed.directory.rglob("*by-round*"))
    assert not list(deployed.directory.glob("checkpoints/*/*.safetensors"))
