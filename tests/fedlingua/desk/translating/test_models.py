"""Who answers: a site's own tensors or the clusters', told in words, and what a deployment's server does not have."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import Direction
from fedlingua.desk.translating.models import RunModels


def test_sites_and_clusters_answer_under_their_names(finished_run: Path) -> None:
    run = RunModels(finished_run)
    assert {name: str(direction) for name, direction in run.sites.items()} == {
        "hospital": "de-fr",
        "court": "nl-es",
        "school": "pl-sv",
        "bank": "cs-de",
    }
    own, near = run.of_site("bank"), run.of_direction(Direction("cs", "fr"))
    assert (own.owner, own.site, own.key) == ("site bank", "bank", ("site", str(finished_run / "sites" / "bank")))
    assert (near.owner, near.site) == ("encoder cluster Slavic, decoder cluster Romance", None)
    assert run.clusters["encoder"]["Slavic"] == ["school", "bank"]
    assert run.clusters["decoder"]["Romance"] == ["hospital", "court"]


def test_a_directions_tensors_are_its_encoder_clusters_and_its_decoder_clusters(finished_run: Path) -> None:
    """Nobody translates from Czech to French: the encoder is the one that the bank has, the decoder the hospital's."""
    run = RunModels(finished_run)
    near, bank, hospital = (
        model.load() for model in (run.of_direction(Direction("cs", "fr")), run.of_site("bank"), run.of_site("hospital"))
    )
    assert near.keys() == bank.keys()
    for name, tensor in near.items():
        if ".encoder." in name:
            assert np.array_equal(tensor, bank[name])
        elif ".decoder." in name:
            assert np.array_equal(tensor, hospital[name])
    assert any(not np.array_equal(bank[name], hospital[name]) for name in near)


def test_models_with_the_same_key_have_the_same_tensors(finished_run: Path) -> None:
    run = RunModels(finished_run)
    assert run.of_direction(Direction("pl", "fr")).key == run.of_direction(Direction("sl", "it")).key
    assert run.of_direction(Direction("pl", "fr")).key != run.of_direction(Direction("de", "fr")).key


def test_without_the_sites_folders_as_in_a_deployment_the_clusters_answer_for_a_site(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "sites")
    model = RunModels(tmp_path / "run").of_site("hospital")
    assert (str(model.direction), model.site, model.clusters["encoder"]) == ("de-fr", "hospital", "Germanic")


def test_what_is_no_site_and_no_relative_is_refused(finished_run: Path) -> None:
    run = RunModels(finished_run)
    with pytest.raises(RunError, match="no site 'hospitl'; did you mean 'hospital'"):
        run.of_site("hospitl")
    with pytest.raises(ConfigError, match="no site has source fi or another of Finnic"):
        run.of_direction(Direction("fi", "de"))


def of_another_machine(run: Path, to: Path) -> RunModels:
    """A copy of the run's folder, where its federation's file is not."""
    shutil.copytree(run, to)
    about = json.loads((to / "run.json").read_text())
    about["config"]["federation"] = "/gone/sites.toml"
    (to / "run.json").write_text(json.dumps(about))
    return RunModels(to)


def test_without_the_federations_file_sites_answer_and_directions_say_why_not(finished_run: Path, tmp_path: Path) -> None:
    run = of_another_machine(finished_run, tmp_path / "run")
    assert run.of_site("bank").owner == "site bank"
    assert "/gone/sites.toml" in run.why_no_direction
    with pytest.raises(RunError, match=r"the federation's file, which says which languages are related, .*give --site"):
        run.of_direction(Direction("cs", "fr"))


def test_of_one_cluster_nobody_has_to_know_who_is_related(finished_run: Path, tmp_path: Path) -> None:
    run = of_another_machine(finished_run, tmp_path / "run")
    run.clusters = {part: {"all": [site for sites in named.values() for site in sites]} for part, named in run.clusters.items()}
    assert run.why_no_direction == ""
    assert set(run.of_direction(Direction("fi", "de")).clusters.values()) == {"all"}


def test_a_site_that_the_federations_file_calls_otherwise_by_now_answers(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    text = Path(about["config"]["federation"]).read_text()
    (tmp_path / "sites.toml").write_text(text.replace('"bank"', '"library"'))
    about["config"]["federation"] = str(tmp_path / "sites.toml")
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    near = RunModels(tmp_path / "run").of_direction(Direction("cs", "fr"))
    assert near.owner == "encoder cluster Slavic, decoder cluster Romance"
