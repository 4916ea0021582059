"""A path in a file is relative to that file, in every file that a command reads; a message says where it was looked for."""

from pathlib import Path

import pytest

from fedlingua.backbones.directories import backbone_directory
from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.files import CHECKOUT
from fedlingua.desk.cli.corpus_overlap import compare_files
from fedlingua.desk.cli.pretrain import _pretrain
from fedlingua.desk.cli.run import check_experiment
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.pretraining.recipe import Recipe
from fedlingua_lab.suites.read import read_suite
from fedlingua_lab.suites.runs import plan
from tests.federations import TWO_SITES

OWN_TEXT = """[split]
train = 0.5
dev = 0.25
test = 0.25
[[site]]
name = "hospital"
direction = "de-fr"
tsv = "text/de-fr.tsv"
[[site]]
name = "court"
direction = "pl-es"
moses = "text/pl-es"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is not the current one, with files that name each other."""
    folder = tmp_path / "mine"
    (folder / "text").mkdir(parents=True)
    lines = [f"{side} {number}\n" for side in ("one", "two") for number in range(40)]
    (folder / "text" / "de-fr.tsv").write_text("".join(f"{one.strip()}\t{one}" for one in lines))
    for side in ("pl", "es"):
        (folder / "text" / f"pl-es.{side}").write_text("".join(lines))
    (folder / "two.toml").write_text(OWN_TEXT)
    (folder / "model").symlink_to(backbone_directory("demo"))
    (folder / "comet.ckpt").write_text("")
    monkeypatch.chdir(tmp_path)
    return folder


def experiment(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("federation", ["two.toml", "./two.toml", "../mine/two.toml"])
def test_an_experiments_paths_are_relative_to_it(folder, federation):
    file = experiment(folder, f'federation = "{federation}"\nbackbone = "model"\nrun-dir = "out"\ncomet-model = "comet.ckpt"\n')
    settings, read = check_experiment(file.relative_to(folder.parent), None, [], None)
    assert read.site_names == ["hospital", "court"]
    places = [settings.federation, settings.backbone, settings.run_dir, settings.comet_model, settings.data_dir]
    assert [Path(place).is_absolute() for place in places] == [True] * 5
    assert [Path(place).resolve() for place in places[2:]] == [folder / "out", folder / "comet.ckpt", folder]
    assert settings.federation_path.resolve() == folder / "two.toml"


def test_text_is_found_beside_the_federation_file_unless_a_folder_is_given(folder, tmp_path):
    file = experiment(folder, 'federation = "two.toml"\n')
    with pytest.raises(CorpusError, match=r"site hospital: /nowhere/text/de-fr\.tsv: there is no such file; check the path"):
        check_experiment(file, Path("/nowhere"), [], None)
    (folder / "text").rename(tmp_path / "text")
    assert check_experiment(file, None, [], None)[0].data_dir == ""  # the current folder, as it was
    (tmp_path / "text" / "de-fr.tsv").unlink()
    with pytest.raises(CorpusError) as refused:
        check_experiment(file, None, [], None)
    assert f"looked in {folder} and in {tmp_path}; check the path, or give the folder with --data" in str(refused.value)


def test_a_data_folder_in_a_file_is_relative_to_it(folder):
    (folder / "two.toml").write_text(OWN_TEXT.replace("text/", ""))
    settings, _ = check_experiment(experiment(folder, 'federation = "two.toml"\ndata-dir = "text"\n'), None, [], None)
    assert settings.data_dir == str(folder / "text")


def test_what_is_not_beside_the_file_keeps_its_meaning(folder):
    for built_in in ("demo", "experiments"):
        (folder / built_in).mkdir()
    assert read_experiment(experiment(folder, 'backbone = "demo"\n'), {}).backbone == "demo"
    of_the_app = "experiments/federations/europarl_m2m.toml"
    settings = read_experiment(experiment(folder, f'federation = "{of_the_app}"\n'), {"federation": of_the_app})
    assert (settings.federation, settings.federation_path) == (of_the_app, CHECKOUT / of_the_app)


def test_a_federation_that_is_nowhere_is_named_with_both_places(folder):
    file = experiment(folder, 'federation = "too.toml"\n')
    with pytest.raises(ConfigError) as refused:
        check_experiment(file, None, [], None)
    assert f"'too.toml': there is no such file in {folder}, and none in {CHECKOUT}; did you mean 'two.toml'?" in str(
        refused.value
    )
    with pytest.raises(ConfigError, match=rf"^{CHECKOUT}/too\.toml: there is no such file"):
        check_experiment(file, None, ["federation=too.toml"], None)


def test_what_sites_approve_stays_as_it_is_written(folder):
    file = experiment(folder, 'federation = "two.toml"\nbackbone = "model"\ncomet-model = "comet.ckpt"\n')
    settings = read_experiment(file, {}, deployed=True)
    assert (settings.backbone, settings.comet_model) == ("model", "comet.ckpt")
    assert settings.federation == str(folder / "two.toml")


def test_a_suites_paths_are_relative_to_it(folder):
    (folder / "suite.toml").write_text('seeds = [1]\n[settings]\nfederation = "two.toml"\n[[row]]\nmethod = "base"\n')
    (run,) = plan(read_suite(folder / "suite.toml", {}), folder / "runs")
    assert run.settings.federation == str(folder / "two.toml")
    assert (run.federation.site_names, run.settings.data_dir) == (["hospital", "court"], str(folder))


def test_the_text_of_a_federation_and_of_a_recipe_is_beside_it(folder, monkeypatch):
    (folder / "overlap.toml").write_text(OWN_TEXT)
    assert list(compare_files(folder / "overlap.toml", None, False, None)) == ["hospital", "court"]
    (folder / "recipe.toml").write_text('[[corpus]]\ndirection = "de-fr"\ntsv = "text/de-fr.tsv"\n')

    class ReadError(Exception):
        pass

    def read(recipe: Recipe) -> None:
        raise ReadError(*(corpus.path for _, corpus in recipe.corpora))

    monkeypatch.setattr("fedlingua.desk.cli.pretrain.base_text", read)
    with pytest.raises(ReadError, match=str(folder / "text" / "de-fr.tsv")):
        _pretrain(folder / "recipe.toml", "", None, [])


def test_registers_have_no_folder(folder):
    (folder / "two.toml").write_text(TWO_SITES)
    assert check_experiment(experiment(folder, 'federation = "two.toml"\n'), None, [], None)[0].data_dir == ""
