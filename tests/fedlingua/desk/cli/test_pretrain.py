"""`fedlingua pretrain` on two small corpora, from recipe to a directory that loads; killed on the way, and gone on with."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from typer.testing import CliRunner

from fedlingua.backbones.load import load_backbone
from fedlingua.common.languages import Direction
from fedlingua.desk import pace
from fedlingua.desk.cli.app import app
from fedlingua_demo import phrasebook

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


def test_a_recipe_in_bf16_is_trained_in_fp32_where_the_cpu_has_no_bf16(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("fedlingua.common.devices.cpu_flags", frozenset)
    result = CliRunner().invoke(
        app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "m"), "--set", "training.precision=bf16"]
    )
    assert "this CPU has no native bf16 and computes in fp32" in " ".join(result.output.split())
    assert json.loads((tmp_path / "m" / "pretraining.json").read_text())["recipe"]["training"]["precision"] == "fp32"


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
    assert about["looks"][-1]["bleu"] == about["dev_bleu"]
    assert about["dev_sentences"] == about["watches"]
    assert about["bleu_signatures"]["fr"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert about["parameters"] == backbone.num_parameters
    # Half of the components, of which each holds one meaning in all three languages.
    assert "trains the backbone" in result.output


@pytest.mark.parametrize(("more", "stream"), [([], "stdout"), (["--format", "json"], "stderr")])
def test_a_pre_training_says_how_far_it_is_in_plain_lines(recipe, tmp_path, monkeypatch, more, stream):
    """Every millisecond here, and nothing of it among a JSON answer."""
    monkeypatch.setattr(pace, "LEAST_S", 0.001)
    monkeypatch.setattr(pace, "EVERY_S", 0.001)
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "model"), *more])
    assert result.exit_code == 0, result.output
    lines = getattr(result, stream).splitlines()
    told = [line for line in lines if re.fullmatch(r"step \d+ of 12, \d+%, .* steps/s, train loss \d\.\d{3}, .* left", line)]
    assert told
    assert any(line.startswith("preparing, for ") for line in lines)
    if more:
        assert json.loads(result.stdout)["steps"] == 12


def test_a_folder_that_holds_files_is_not_overwritten(recipe, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "mine")])
    assert result.exit_code == 1
    assert "already holds files" in str(result.exception)
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


def test_the_directory_loads_in_plain_transformers_and_its_card_tells_what_it_is(recipe, tmp_path):
    recipe.write_text(RECIPE.replace("[model]", '[licences]\n"de-fr.tsv" = "CC0"\n[watching]\nevaluate-every = 5\n[model]'))
    result = CliRunner().invoke(app, ["pretrain", str(recipe), "--data", str(tmp_path), "--to", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model"),
        AutoTokenizer.from_pretrained(tmp_path / "model"),
    )
    tokenizer.src_lang = "de"
    begin = tokenizer.get_lang_id("fr")
    ids = model.generate(**tokenizer("Die Frau liest.", return_tensors="pt"), forced_bos_token_id=begin, max_new_tokens=5)
    assert ids[0, 1] == begin
    card, about = (
        (tmp_path / "model" / "README.md").read_text(),
        json.loads((tmp_path / "model" / "pretraining.json").read_text()),
    )
    assert [look["step"] for look in about["looks"]] == [5, 10, 12]
    assert all(set(look["bleu"]) == {"de-fr", "nl-fr"} for look in about["looks"])
    assert "dev BLEU" in result.output
    for told in ("language:\n- de\n- fr\n- nl\n", "- de-fr.tsv: CC0", f"{about['parameters']:,} parameters", "`text`"):
        assert told in card
    assert str(tmp_path) not in card
    assert str(tmp_path) not in json.dumps(about)


@pytest.fixture
def watched(recipe):
    """The recipe with a checkpoint after every step, steps enough to be killed between two of them, and the best weights kept."""
    watching = '[watching]\nevaluate-every = 10\ndev-sentences = 2\nkeep = "best"\ncheckpoint-minutes = 1e-9\n'
    recipe.write_text(
        RECIPE.replace("steps = 12", "steps = 40\nsampling-temperature = 2").replace("[model]", watching + "[model]")
    )
    return recipe


def killed_after(step, recipe, folder):
    """Start a process that trains to `folder`/model, and kill it, without a warning, when the state of this step or a later one is kept."""
    command = [
        sys.executable,
        "-c",
        "from fedlingua.desk.cli.app import main; main()",
        "pretrain",
        str(recipe),
        "--data",
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*command, "--to", str(folder / "model")], env=environment, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < until:
            if any(int(path.name) >= step for path in (folder / ".model.training").glob("[0-9]" * 8)):
                break
            time.sleep(0.002)
        process.kill()
    assert process.returncode == -9
    assert not (folder / "model").exists()


def test_a_training_that_is_killed_is_gone_on_with_to_the_same_bytes(watched, tmp_path):
    killed_after(12, watched, tmp_path)
    arguments = ["pretrain", str(watched), "--data", str(tmp_path)]
    changed = CliRunner().invoke(app, [*arguments, "--to", str(tmp_path / "model"), "--set", "training.learning-rate=0.001"])
    assert changed.exit_code == 1
    assert "training.learning-rate was 0.002 and is 0.001. Undo the changes" in str(changed.exception)
    resumed = CliRunner().invoke(app, [*arguments, "--to", str(tmp_path / "model")])
    assert resumed.exit_code == 0, resumed.output
    assert "resumes after step" in resumed.output
    often = ["--set", "watching.checkpoint-minutes=0"]
    assert CliRunner().invoke(app, [*arguments, "--to", str(tmp_path / "whole"), *often]).exit_code == 0
    files = {file.name for file in (tmp_path / "whole").iterdir()}
    assert files == {file.name for file in (tmp_path / "model").iterdir()}
    for name in files - {"pretraining.json", "README.md"}:
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    one, other = (json.loads((tmp_path / name / "pretraining.json").read_text()) for name in ("model", "whole"))
    for about in (one, other):  # what is the clock's
        del about["seconds"], about["recipe"]["watching"]["checkpoint_minutes"]
        for look in about["looks"]:
            del look["seconds"]
    assert one == other
    assert not list(tmp_path.glob(".model*"))
