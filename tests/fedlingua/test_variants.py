"""Who answers: a site's own tensors or the clusters', told in words, and what a deployment's server does not have."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedlingua.errors import ConfigError, RunError
from fedlingua.languages import Direction
from fedlingua.variants import RunVariants


def test_sites_and_clusters_answer_under_their_names(finished_run: Path) -> None:
    run = RunVariants(finished_run)
    assert {name: str(direction) for name, direction in run.sites.items()} == {
        "hospital": "de-fr",
        "court": "nl-es",
        "school": "pl-sv",
        "bank": "cs-de",
    }
    own, near = run.of_site("bank"), run.of_direction(Direction("cs", "fr"))
    assert (own.told, own.site, own.key) == ("site bank", "bank", ("site", "bank"))
    assert (near.told, near.site) == ("encoder cluster Slavic, decoder cluster Romance", None)
    assert run.members("encoder", "Slavic") == ("school", "bank")
    assert run.members("decoder", "Romance") == ("hospital", "court")


def test_a_directions_tensors_are_its_encoder_clusters_and_its_decoder_clusters(finished_run: Path) -> None:
    """Nobody translates from Czech to French: the encoder is the one that the bank has, the decoder the hospital's."""
    run = RunVariants(finished_run)
    near, bank, hospital = (
        variant.load() for variant in (run.of_direction(Direction("cs", "fr")), run.of_site("bank"), run.of_site("hospital"))
    )
    assert near.keys() == bank.keys()
    for name, tensor in near.items():
        if ".encoder." in name:
            assert np.array_equal(tensor, bank[name])
        elif ".decoder." in name:
            assert np.array_equal(tensor, hospital[name])
    assert any(not np.array_equal(bank[name], hospital[name]) for name in near)


def test_variants_with_the_same_key_have_the_same_tensors(finished_run: Path) -> None:
    run = RunVariants(finished_run)
    assert run.of_direction(Direction("pl", "fr")).key == run.of_direction(Direction("sl", "it")).key
    assert run.of_direction(Direction("pl", "fr")).key != run.of_direction(Direction("de", "fr")).key


def test_without_the_sites_folders_as_in_a_deployment_the_clusters_answer_for_a_site(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "sites")
    variant = RunVariants(tmp_path / "run").of_site("hospital")
    assert (str(variant.direction), variant.site, variant.clusters["encoder"]) == ("de-fr", "hospital", "Germanic")


def test_what_is_no_site_and_no_relative_is_refused(finished_run: Path) -> None:
    run = RunVariants(finished_run)
    with pytest.raises(RunError, match="no site 'hospitl'; did you mean 'hospital'"):
        run.of_site("hospitl")
    with pytest.raises(ConfigError, match="no site has source fi or another of Finnic"):
        run.of_direction(Direction("fi", "de"))
