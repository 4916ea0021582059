"""Translators of whole runs: a site's own, one of many that were pooled, and directions that no site holds."""

import pytest

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import Direction
from fedlingua.desk.models import TrainedModel
from fedlingua.desk.translator import Translator
from tests.in_process import run


@pytest.fixture
def config(four_sites):
    return {**four_sites, "rounds": 1}


def test_a_pooled_run_translates_as_any_of_its_sites(config, tmp_path):
    folder, _ = run({**config, "method": "centralized-adapter"}, tmp_path / "run")
    translator = Translator.of_site(folder.directory, "school")
    assert translator.direction == Direction("pl", "sv")
    written = (folder.directory / "sites/pooled/translations-school.tsv").read_text().split("\n")[1].split("\t")
    assert translator.translate([written[0]]) == [written[3]]


@pytest.mark.parametrize("method", ["adapter-random", "adapter-gradients", "adapter-families"])
def test_a_sites_own_direction_gives_what_the_site_uses_under_every_clustering(config, tmp_path, method):
    folder, _ = run({**config, "method": method}, tmp_path / "run")
    sentences = ["Guten Morgen.", "Der Arzt liest."]
    own = Translator.of_site(folder.directory, "bank").translate(sentences)
    assert Translator.of_direction(folder.directory, Direction("cs", "de")).translate(sentences) == own


def test_a_direction_without_any_relative_is_refused_with_the_clusters_there_are(config, tmp_path):
    folder, _ = run({**config, "method": "adapter-families"}, tmp_path / "run")
    with pytest.raises(ConfigError, match="no site has source it or another of Romance"):
        Translator.of_direction(folder.directory, Direction("it", "de"))


def test_a_site_that_the_run_does_not_know_is_refused_with_the_nearest(config, tmp_path):
    folder, _ = run({**config, "method": "centralized-adapter"}, tmp_path / "run")
    with pytest.raises(RunError, match="no site 'scool'; did you mean 'school'"):
        Translator.of_site(folder.directory, "scool")
    with pytest.raises(RunError, match="leaves nothing at the server"):
        Translator.of_direction(folder.directory, Direction("de", "fr"))


def test_a_run_that_trained_an_encoder_is_refused_by_its_task(four_texts, tmp_path):
    folder, _ = run({**four_texts, "method": "model-fed", "rounds": 1}, tmp_path / "run")
    for ask in (
        lambda: Translator.of_site(folder.directory, "school"),
        lambda: Translator.of_direction(folder.directory, Direction("de", "fr")),
        lambda: Translator(TrainedModel.of_delivery(folder.directory / "sites" / "school")),
    ):
        with pytest.raises(RunError, match="task = 'masked-language' trained an encoder, which translates nothing"):
            ask()


def test_a_run_of_before_a_key_came_is_opened_with_the_keys_default(four_sites, tmp_path):
    folder, _ = run({**four_sites, "method": "adapter-fed", "rounds": 1}, tmp_path / "run")
    sentences = ["Guten Morgen.", "Der Arzt liest."]
    before = Translator.of_site(folder.directory, "bank").translate(sentences)
    about = folder.read("run.json")
    assert about is not None
    for key in ("metrics", "head-chunk", "task", "schedule"):
        del about["config"][key]
    folder.write("run.json", about)
    assert Translator.of_site(folder.directory, "bank").translate(sentences) == before


def test_the_base_translates_in_any_direction(config, tmp_path):
    folder, _ = run({**config, "method": "base"}, tmp_path / "run")
    own = Translator.of_site(folder.directory, "bank")
    assert own.is_base
    sentences = ["Dobré ráno.", "Lékař čte."]
    assert Translator.of_direction(folder.directory, own.direction).translate(sentences) == own.translate(sentences)
