"""`fedlingua pretrain` on two small corpora, from recipe to a directory that loads."""

import json

import pytest
from typer.testing import CliRunner

from fedlingua.backbones.load import load_backbone
from fedlingua.cli.app import app
from fedlingua.corpora import phrasebook
from fedlingua.languages import Direction

RECIPE = """
name = "tiny"
[base]
key = "k"
share = 0.5
dev = 0.1
[model]
d-model = 32
heads = 2
ffn-dim = 64
vocab-size = 300
[training]
steps = 12
tokens-per-batch = 300
threads = 1
[[corpus]]
direction = "de-fr"
tsv = "de-fr.tsv"
[[corpus]]
direction = "nl-fr"
moses = "text"
"""


@pytest.fixture
def recipe(tmp_path):
    text = phrasebook.base_corpus(400, 5)
    rows = [f"{german}\t{french}" for german, french in zip(text["de"], text["fr"], strict=True)]
    (tmp_path / "de-fr.tsv").write_text("\n".join(rows) + "\n")
    for language in ("nl", "fr"):
        (tmp_path / f"text.{language}").write_text("\n".join(text[language]) + "\n")
    (tmp_path / "tiny.toml").write_text(RECIPE)
    return tmp_path / "tiny.toml"


def test_a_recipe_becomes_a_backbone_that_loads(recipe, tmp_path):
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    backbone = load_backbone(tmp_path / "model")
    backbone.codec.check([Direction("de", "fr"), Direction("nl", "fr")])
    about = json.loads((tmp_path / "model" / "pretraining.json").read_text())
    assert about["steps"] == 12
    for account in about["accounts"].values():
        assert account["read"] == 400 == account["kept"] + sum(account["dropped"].values())
    assert set(about["dev_bleu"]) == {"de-fr", "nl-fr"}
    # Half of the components, of which each holds one meaning in all three languages.
    assert "trains the backbone" in result.output


def test_a_folder_that_holds_files_is_not_overwritten(recipe, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "mine")])
    assert result.exit_code == 1
    assert "holds files already" in str(result.exception)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", ["", "../..", "demo"])
def test_a_recipe_cannot_name_its_way_out_of_the_cache(recipe, tmp_path, name):
    recipe.write_text(RECIPE.replace('name = "tiny"', f'name = "{name}"'))
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert f"name = {name!r}" in str(result.exception)


def test_a_vocabulary_larger_than_the_text_gives_is_refused_and_nothing_is_left(recipe, tmp_path):
    recipe.write_text(RECIPE.replace("vocab-size = 300", "vocab-size = 60000"))
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "model")])
    assert result.exit_code == 1
    assert "60000" in str(result.exception)
    assert not (tmp_path / "model").exists()
    assert not list(tmp_path.glob(".model*"))
