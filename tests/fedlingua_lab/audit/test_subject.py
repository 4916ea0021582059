"""What cannot be audited is refused before a model is loaded, with what to do."""

import shutil
from dataclasses import replace

import pytest

from fedlingua.common.errors import FedlinguaError
from fedlingua.exchange import trainable
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.audit.subject import Protection, Subject


@pytest.fixture
def copy(audited, tmp_path, monkeypatch):
    """The run, to be spoilt; loading a model fails the test."""
    shutil.copytree(audited.directory, tmp_path / "copy")
    monkeypatch.setattr(trainable, "build_trainable", lambda settings: pytest.fail("a model was loaded"))
    return RunFolder(tmp_path / "copy")


def refused(folder: RunFolder, **asked: object) -> str:
    with pytest.raises(FedlinguaError) as caught:
        Subject.of(folder.directory, **asked)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "adapter-local"}, "method = 'adapter-local' sends no tensors that were trained"),
        ({"task": "masked-language"}, "task = 'masked-language' trains on no sentence pairs"),
        ({"client": "mine:Mine"}, "client = 'mine:Mine' trains in a way of its own"),
        ({"layers": "mine:Mine"}, "layers = 'mine:Mine' may change what was trained"),
        ({"tensor-set": "controllers"}, "leaves a part of the model at the site"),
        ({"dp.unit": "document", "dp.epsilon": 8.0}, "dp.unit = 'document' hides more than the single sentences"),
        ({"send.rule": "top-k"}, "send.rule = 'top-k' sends a part of each update"),
        ({"send.rule": "fixed-g", "privacy.sum": "secure"}, "send.rule = 'fixed-g' sends a part of each update"),
    ],
)
def test_a_run_whose_updates_cannot_be_made_again_is_refused(copy, changes, reason):
    copy.update(config={**(copy.read("run.json") or {})["config"], **changes})
    assert reason in refused(copy)


def test_a_run_that_is_not_finished_and_a_folder_without_a_run_are_refused(copy, tmp_path):
    assert "is not a run folder" in refused(RunFolder(tmp_path))
    copy.update(status="failed")
    assert "the run is failed, not completed" in refused(copy)


def test_a_site_or_round_that_the_run_does_not_have_is_refused(copy):
    assert "no site 'scool'; did you mean 'school'?; it has hospital, court, school, bank" in refused(copy, site="scool")
    assert "--round 9: wanted 1 to 2" in refused(copy, number=9)
    lines = (copy.directory / "rounds.jsonl").read_text().replace('"school": {', '"away": {')
    (copy.directory / "rounds.jsonl").write_text(lines)
    assert "site school sent no update in round 1; give one of hospital, court, away, bank" in refused(copy, site="school")
    copy.update(config={**(copy.read("run.json") or {})["config"], "optimizer-state": "kept"})
    assert "round 2 cannot be trained again" in refused(copy, number=2)


def test_text_of_a_deployed_run_is_not_here(copy, tmp_path):
    deployed = tmp_path / "deployed.toml"
    deployed.write_text(
        'name = "far"\n'
        + "".join(f'[[site]]\nname = "{s}"\ndirection = "de-fr"\n' for s in ("hospital", "court", "school", "bank"))
    )
    copy.update(config={**(copy.read("run.json") or {})["config"], "federation": str(deployed)})
    assert "the text of hospital, court, school, bank is not here" in refused(copy)


def test_a_secure_sum_is_over_the_cluster_and_at_least_three_sites(audited):
    subject = replace(Subject.of(audited.directory), groups={"encoder": ("court", "hospital")})
    assert [each.name for each in subject.protections()] == ["plain", "secure sum, 3 sites", "DP, epsilon 8", "DP, epsilon 2"]
    assert subject.group("encoder", Protection(sites=3)) == ("court", "hospital", "school")
    assert subject.group("encoder", Protection()) == ("hospital",)


def test_a_site_with_little_text_is_refused(audited, monkeypatch):
    monkeypatch.setattr("fedlingua_lab.audit.subject.LEAST", 24)
    assert "site hospital has 23 sentences in train; wanted 24 at least" in refused(audited)
