"""What cannot be gone on from is refused before a model is loaded, with what to do."""

import json
import shutil
from pathlib import Path

import pytest

from fedlingua.common.errors import FedlinguaError
from fedlingua.exchange import trainable
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.start import Start
from tests.in_process import run


@pytest.fixture
def copy(translating: RunFolder, tmp_path: Path) -> RunFolder:
    """The run, to be spoilt."""
    shutil.copytree(translating.directory, tmp_path / "copy")
    return RunFolder(tmp_path / "copy")


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model fails the test."""

    def build(settings: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(trainable, "build_trainable", build)


def refused(folder: Path, *sites: str, number: int | None = None) -> str:
    with pytest.raises(FedlinguaError) as caught:
        Start.of(folder, sites, number)
    return str(caught.value)


def test_a_site_gets_the_tensors_of_its_own_clusters(translating):
    start = Start.of(translating.directory, ["school"], 4)  # the round before the last has its checkpoint
    tensors = start.federated("school", start.run.trainable())
    kept = translating.checkpoints.load(4).tensors
    wanted = {**kept["encoder"]["Slavic"], **kept["decoder"]["Germanic"], **kept["shared"].get("all", {})}
    assert {name: array.tobytes() for name, array in tensors.items()} == {n: a.tobytes() for n, a in wanted.items()}
    assert list(tensors) == start.run.trainable().trained.names


@pytest.mark.usefixtures("unloaded")
def test_a_folder_that_holds_no_completed_run_is_refused(copy, tmp_path):
    assert "is not a run folder" in refused(tmp_path)
    copy.update(status="failed")
    assert "the run is failed, not completed" in refused(copy.directory)


@pytest.mark.usefixtures("unloaded")
def test_a_site_that_is_not_of_the_run_is_refused_with_the_nearest(translating):
    told = refused(translating.directory, "bank", "scool")
    assert "no site 'scool'; did you mean 'school'?; it has hospital, court, school, bank" in told


@pytest.mark.usefixtures("unloaded")
def test_a_round_whose_checkpoint_is_gone_is_refused_with_those_that_are_kept(translating):
    kept = translating.checkpoints.rounds()
    gone = next(number for number in (1, 2, 3) if number not in kept)
    told = refused(translating.directory, "bank", number=gone)
    assert f"the checkpoint of round {gone} is not there; kept rounds: {', '.join(map(str, kept))}" in told


@pytest.mark.usefixtures("unloaded")
def test_a_damaged_checkpoint_is_refused(copy):
    file = next((copy.directory / "checkpoints" / "0004").glob("encoder.*"))
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert "checksum differs" in refused(copy.directory, number=4)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"method": "adapter-local"}, "nothing that was trained left a site"),
        ({"method": "centralized-adapter"}, "nothing that was trained left a site"),
        ({"method": "adapter-fed", "tensor-set": "controllers"}, "only a part of what was trained is at the server"),
    ],
)
def test_a_run_without_a_model_of_the_federations_is_refused(four_sites, tmp_path, given, reason):
    folder, _ = run({**four_sites, **given, "rounds": 1}, tmp_path / "run")
    assert reason in refused(folder.directory)


@pytest.mark.usefixtures("unloaded")
def test_a_site_whose_text_is_not_here_is_refused(copy, tmp_path):
    sites = "".join(f'[[site]]\nname = "{name}"\ndirection = "de-fr"\n' for name in ("hospital", "court", "school", "bank"))
    (tmp_path / "away.toml").write_text(sites)
    config = copy.read("run.json")["config"]
    copy.update(config={**config, "federation": str(tmp_path / "away.toml")})
    assert "the text of school is not here; sites across machines keep theirs" in refused(copy.directory, "school")
    (tmp_path / "away.toml").write_text('[[site]]\nname = "hospital"\ndirection = "de-fr"\nphrasebook = "hospital"\n')
    assert "has school, and its federation file away does not have them any more" in refused(copy.directory, "school")


def test_another_backbone_than_the_runs_is_refused(copy):
    about = copy.read("run.json")
    copy.update(backbone={**about["backbone"], "fingerprint": "f" * 64})
    with pytest.raises(FedlinguaError, match="is not the one the run was trained on"):
        Start.of(copy.directory, ["bank"]).run.trainable()


def test_tensors_of_another_method_are_refused(copy):
    start = Start.of(copy.directory, ["bank"])
    file = copy.directory / "run.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps({**about, "config": {**about["config"], "adapter.dim": 8}}))
    with pytest.raises(FedlinguaError, match="has shape"):
        start.federated("bank", Start.of(copy.directory, ["bank"]).run.trainable())
