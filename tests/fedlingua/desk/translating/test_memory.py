"""A site's memory after a run: made beside its model, used by whatever translates, refused where the model has changed."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.cli.app import app
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating import memory_making
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.memory import remember, text_of_run
from fedlingua.desk.translating.memory_store import Memory
from fedlingua.desk.translating.models import RunModels, TrainedModel
from fedlingua.desk.translating.translator import Translator
from tests.federations import FOUR_SITES
from tests.translated_runs import translator_of_site

SENTENCES = ["Dobré ráno.", "Lékař čte."]


@pytest.fixture
def run_dir(four_sites_run, tmp_path, monkeypatch):
    """A run of its own for each test, whose memories leave the model no say, so that they show."""

    def mixed(memory, mixings, score):
        scores = {weight: score(replace(memory, mixing=of)) for weight, of in mixings.items()}
        return replace(memory, mixing=mixings[0.999], about={**memory.about, "dev": {"0.0": score(None), **scores}})

    monkeypatch.setattr(memory_making, "WEIGHTS", (0.0, 0.999))
    monkeypatch.setattr(memory_making, "choose", mixed)
    return shutil.copytree(four_sites_run("adapter-families"), tmp_path / "run")


def asked(*words, text=""):
    done = CliRunner().invoke(app, [*map(str, words)], input=text)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_memory_lies_beside_the_sites_model_and_is_used_until_the_model_is_another(run_dir):
    plain = translator_of_site(run_dir, "bank").translate(SENTENCES)
    text = "\n".join(SENTENCES)
    before = asked("translate", "--run", run_dir, "--site", "bank", text=text)
    told = asked("memory", "--run", run_dir, "--site", "bank")
    file = run_dir / "sites" / "bank" / "memory.safetensors"
    assert "BLEU of dev by lambda: 0.0 " in told
    assert "lambda 0.999, k " in told

    translator = translator_of_site(run_dir, "bank")
    assert translator.answering == f"cs-de: site bank, with its memory of {len(load_file(file)['values']):,} tokens"
    looked_up = translator.translate(SENTENCES)
    assert looked_up != plain
    assert translator_of_site(run_dir, "bank", Decoding(memory=False)).translate(SENTENCES) == plain
    assert asked("translate", "--run", run_dir, "--site", "bank", "--no-memory", text=text) == before
    assert asked("translate", "--run", run_dir, "--site", "bank", text=text).splitlines() == looked_up

    models, school = Models(RunModels(run_dir), Decoding()), translator_of_site(run_dir, "school").translate(SENTENCES)
    for _ in range(2):  # each site has its own, whoever was asked before
        assert models.translate(models.sites["bank"], SENTENCES) == looked_up
        assert models.translate(models.sites["school"], SENTENCES) == school

    adapter = next((run_dir / "sites" / "bank").rglob("adapter.safetensors"))
    save_file({name: np.nextafter(array, np.float32(9)) for name, array in load_file(adapter).items()}, adapter)
    for use in (lambda: translator_of_site(run_dir, "bank"), lambda: Models(RunModels(run_dir), Decoding())):
        with pytest.raises(RunError, match=r"memory was built with another model .* build it again with `fedlingua memory`"):
            use()


def test_a_damaged_memory_is_refused_each_time_and_used_once_it_is_whole(run_dir):
    asked("memory", "--run", run_dir, "--site", "bank")
    models = Models(RunModels(run_dir), Decoding())
    bank, school = models.sites["bank"], models.sites["school"]
    looked_up = models.translate(bank, SENTENCES)
    models.translate(school, SENTENCES)
    whole = bank.memory.read_bytes()
    bank.memory.write_bytes(whole[:1000])
    for _ in range(2):
        with pytest.raises(RunError, match="damaged"):
            models.translate(bank, SENTENCES)
    bank.memory.write_bytes(whole)
    assert models.translate(bank, SENTENCES) == looked_up


def test_with_lambda_0_it_is_stored_and_not_used(run_dir, monkeypatch):
    monkeypatch.setattr(memory_making, "choose_mixings", lambda *of: {})
    monkeypatch.setattr(
        memory_making, "choose", lambda memory, mixings, score: replace(memory, about={"sentences": 1, "dev": {}})
    )
    models = RunModels(run_dir)
    assert remember(models.of_site("bank"), text_of_run(models, "bank"), Decoding())["lambda"] == 0
    translator = translator_of_site(run_dir, "bank")
    assert translator.memory is None
    assert translator.translate(SENTENCES) == translator_of_site(run_dir, "bank", Decoding(memory=False)).translate(SENTENCES)


def test_pooled_sites_have_a_memory_each(four_sites_run):
    models = RunModels(four_sites_run("centralized-adapter"))
    files = [models.of_site(site).memory for site in ("school", "bank")]
    assert files == [models.run_dir / "sites" / "pooled" / f"{site}-memory.safetensors" for site in ("school", "bank")]
    assert text_of_run(models, "bank").direction == models.sites["bank"]


def test_a_delivered_model_has_its_memory_beside_it(run_dir):
    model = TrainedModel.of_delivery(run_dir / "sites" / "bank")
    assert model.memory == run_dir / "sites" / "bank" / "memory.safetensors"
    remember(model, text_of_run(RunModels(run_dir), "bank"), Decoding(), most_keys=60)
    assert len(load_file(model.memory)["values"]) <= 60
    assert isinstance(Translator(model).memory, Memory)


def test_a_glossary_is_used_by_translate_and_serve_and_counted(four_sites_run, tmp_path):
    run_dir, text = four_sites_run("adapter-families"), "\n".join(SENTENCES)
    file = tmp_path / "terms.de-cs.tsv"
    file.write_text("der Arzt\tlékař\n")
    done = CliRunner().invoke(app, ["translate", "--run", str(run_dir), "--site", "bank", "--terms", str(file)], input=text)
    assert done.exit_code == 0, done.output
    assert "der Arzt" in done.stdout
    assert "terms: 1 of 1 came out right; 0 without the glossary" in done.stderr
    models = Models(RunModels(run_dir), Decoding(terms=file))
    assert models.translate(models.sites["bank"], SENTENCES) == done.stdout.splitlines()
    assert models.translate(models.sites["school"], SENTENCES) == translator_of_site(run_dir, "school").translate(SENTENCES)
    plain = file.rename(tmp_path / "terms.tsv")
    with pytest.raises(ConfigError, match=r"serve answers many directions; name the file after its own, as terms.de-en.tsv"):
        Models(RunModels(run_dir), Decoding(terms=plain))
    with pytest.raises(ConfigError, match="there is no such file; give a glossary"):
        translator_of_site(run_dir, "bank", Decoding(terms=tmp_path / "none.tsv"))


def test_a_site_across_machines_makes_a_memory_of_what_was_delivered_to_it(run_dir, tmp_path):
    site, federation = tmp_path / "site" / "site.toml", tmp_path / "four.toml"
    delivered = shutil.copytree(run_dir / "sites" / "bank", site.parent / "state" / "runs" / "7" / "bank")
    entry = '[[site]]\nname = "bank"\ndirection = "cs-de"\nphrasebook = "bank"\nsentences = 36\n'
    site.write_text(f'{entry}[server]\naddress = "127.0.0.1:9092"\ninsecure = true\n')
    federation.write_text(FOUR_SITES)
    told = asked("site", "memory", "--site", site, "--federation", federation)
    assert "bank: lambda 0.999" in told
    assert (delivered / "memory.safetensors").is_file()
    looked_up = asked("site", "translate", "--site", site, text="\n".join(SENTENCES)).splitlines()
    assert looked_up == Translator(TrainedModel.of_delivery(delivered)).translate(SENTENCES)
    assert looked_up != asked("site", "translate", "--site", site, "--no-memory", text="\n".join(SENTENCES)).splitlines()


def test_no_text_is_refused(run_dir):
    models = RunModels(run_dir)
    text = text_of_run(models, "bank")
    for split in ("train", "dev"):
        with pytest.raises(RunError, match=f"site bank: there is no {split} text"):
            remember(models.of_site("bank"), replace(text, splits={**text.splits, split: []}), Decoding())


def test_a_memory_and_a_glossary_work_with_an_ensemble_and_a_changed_second_model_is_refused(run_dir, tmp_path):
    at = run_dir / "sites" / "bank"
    save_file(
        {name: array * 1.5 for name, array in load_file(at / "adapter" / "adapter.safetensors").items()},
        at / "second.safetensors",
    )
    about = json.loads((at / "delivered.json").read_text())
    ensemble = {"first": "own", "second": "alone", "share": 0.5}
    (at / "delivered.json").write_text(json.dumps({**about, "ensemble": ensemble}))
    plain = translator_of_site(run_dir, "bank")
    asked("memory", "--run", run_dir, "--site", "bank")
    (tmp_path / "terms.cs-de.tsv").write_text("ráno\tMorgenrot\n")
    both = translator_of_site(run_dir, "bank", Decoding(terms=tmp_path / "terms.cs-de.tsv"))
    assert both.answering.startswith("cs-de: site bank, an ensemble of own and alone, with its memory of ")
    assert "Morgenrot" in both.translate(SENTENCES)[0]
    assert translator_of_site(run_dir, "bank").translate(SENTENCES) != plain.translate(SENTENCES)
    save_file({name: array * 2 for name, array in load_file(at / "second.safetensors").items()}, at / "second.safetensors")
    with pytest.raises(RunError, match="built with another model"):
        translator_of_site(run_dir, "bank")
