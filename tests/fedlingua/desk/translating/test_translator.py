"""Translators of whole runs: a site's own, one of many that were pooled, and directions that no site holds."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from fedlingua.backbones.load import load_backbone
from fedlingua.common.errors import BackboneError, ConfigError, RunError
from fedlingua.common.languages import Direction
from fedlingua.desk.cli.app import app
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels, TrainedModel
from fedlingua.desk.translating.translator import Translator
from fedlingua.runs.folder import RunFolder
from tests.in_process import run
from tests.translated_runs import translator_of_direction, translator_of_site

SENTENCES = ["Dobré ráno.", "Lékař čte."]


def test_a_pooled_run_translates_as_any_of_its_sites(four_sites_run):
    folder = four_sites_run("centralized-adapter")
    translator = translator_of_site(folder, "school")
    assert translator.direction == Direction("pl", "sv")
    written = (folder / "sites/pooled/translations-school.tsv").read_text().split("\n")[1].split("\t")
    assert translator.translate([written[0]]) == [written[3]]


@pytest.mark.parametrize("method", ["adapter-random", "adapter-gradients", "adapter-families"])
def test_a_sites_own_direction_gives_what_the_site_uses_under_every_clustering(four_sites_run, method):
    folder = four_sites_run(method)
    sentences = ["Guten Morgen.", "Der Arzt liest."]
    own = translator_of_site(folder, "bank").translate(sentences)
    assert translator_of_direction(folder, Direction("cs", "de")).translate(sentences) == own


def test_a_direction_without_any_relative_is_refused_with_the_clusters_there_are(four_sites_run):
    folder = four_sites_run("adapter-families")
    with pytest.raises(ConfigError, match="no site has source it or another of Romance"):
        translator_of_direction(folder, Direction("it", "de"))


def test_a_site_that_the_run_does_not_know_is_refused_with_the_nearest(four_sites_run):
    folder = four_sites_run("centralized-adapter")
    with pytest.raises(RunError, match="no site 'scool'; did you mean 'school'"):
        translator_of_site(folder, "scool")
    with pytest.raises(RunError, match="leaves nothing at the server"):
        translator_of_direction(folder, Direction("de", "fr"))


def test_a_run_that_trained_an_encoder_is_refused_by_its_task(four_texts, tmp_path):
    folder, _ = run({**four_texts, "method": "model-fed", "rounds": 1}, tmp_path / "run")
    for ask in (
        lambda: translator_of_site(folder.directory, "school"),
        lambda: translator_of_direction(folder.directory, Direction("de", "fr")),
        lambda: Translator(TrainedModel.of_delivery(folder.directory / "sites" / "school")),
    ):
        with pytest.raises(RunError, match="task = 'masked-language' trained an encoder, which translates nothing"):
            ask()


def test_a_run_of_before_a_key_came_is_opened_with_the_keys_default(four_sites_run, tmp_path):
    folder = RunFolder(shutil.copytree(four_sites_run("adapter-fed"), tmp_path / "run"))
    sentences = ["Guten Morgen.", "Der Arzt liest."]
    before = translator_of_site(folder.directory, "bank").translate(sentences)
    about = folder.read("run.json")
    assert about is not None
    for key in ("metrics", "memory.head-chunk", "task", "schedule"):
        del about["config"][key]
    folder.write("run.json", about)
    assert translator_of_site(folder.directory, "bank").translate(sentences) == before


def test_the_base_translates_in_any_direction(four_sites_run):
    folder = four_sites_run("base")
    own = translator_of_site(folder, "bank")
    assert own.model.load is None
    assert translator_of_direction(folder, own.direction).translate(SENTENCES) == own.translate(SENTENCES)


@pytest.mark.parametrize("name", ["nllb", "marian", "marian-to-many", "t5", "madlad", "llama", "qwen3"])
def test_what_is_said_to_be_cut_is_what_the_codec_cuts(name, family_folder, phrases):
    backbone, direction = load_backbone(family_folder(name), name), Direction("de", "fr")
    told = SimpleNamespace(trainable=SimpleNamespace(backbone=backbone), direction=direction, max_tokens=40)
    sentences = [*phrases["de"][:50], "Ja.", " ".join(phrases["de"][:6])]
    whole, cut = (backbone.codec.encode_source(sentences, direction, most) for most in (500, 40))
    lost = [before != after for before, after in zip(whole, cut, strict=True)]
    assert Translator.is_cut(told, sentences) == lost
    assert True in lost
    assert False in lost


def test_a_prompt_that_fills_all_leaves_nothing_of_the_source(family_folder):
    codec = load_backbone(family_folder("t5"), "t5").codec
    ends = [codec.encode_source([text], Direction("de", "fr"), 3)[0][-2:] for text in ("", "Der Arzt liest ein Buch.")]
    assert ends[0] == ends[1]


def test_a_translator_switches_between_ensembles_of_a_run(four_sites_run, tmp_path):
    """Two sites whose second models are another site's: each translates as a translator of its own does, whichever came before."""
    folder = Path(shutil.copytree(four_sites_run("adapter-fed"), tmp_path / "run"))
    for site, other in (("bank", "school"), ("school", "bank")):
        at = folder / "sites" / site
        shutil.copy(folder / "sites" / other / "adapter" / "adapter.safetensors", at / "second.safetensors")
        about = json.loads((at / "delivered.json").read_text())
        ensemble = {"first": "own", "second": "alone", "share": 0.6}
        (at / "delivered.json").write_text(json.dumps({**about, "ensemble": ensemble}))
    run, sentences = RunModels(folder), ["Guten Morgen.", "Der Arzt liest."]
    models = [run.of_site(site) for site in ("bank", "school", "hospital")]
    wanted = [Translator(model).translate(sentences) for model in models]
    shared = Translator(models[0])
    for place in (1, 0, 2, 1, 1, 0):
        shared.use(models[place], lambda model: model.load())
        assert shared.translate(sentences) == wanted[place]
        assert ("an ensemble of own and alone" in shared.answering) == (place != 2)
    (folder / "sites" / "school" / "second.safetensors").write_bytes(b"half")
    with pytest.raises(RunError, match=r"second.safetensors is damaged or missing"):
        Translator(models[1])


def test_a_run_of_a_gpu_translates_on_a_machine_without_one(four_sites_run, tmp_path):
    shutil.copytree(four_sites_run("adapter-fed"), tmp_path / "run")
    own = translator_of_site(tmp_path / "run", "bank").translate(["Dobré ráno."])
    folder = RunFolder(tmp_path / "run")
    about = folder.read("run.json")
    about["config"] |= {"device": "cuda", "frozen-bits": 8}
    folder.write("run.json", about)
    translator = translator_of_site(tmp_path / "run", "bank")
    assert (translator.settings.device, translator.settings.frozen_bits) == ("cpu", 0)
    assert translator.translate(["Dobré ráno."]) == own
    with pytest.raises(BackboneError, match="torch sees no GPU here; give device = 'cpu'"):
        translator_of_site(tmp_path / "run", "bank", Decoding(device="cuda"))


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


def test_a_glossary_works_with_an_ensemble(four_sites_run, tmp_path):
    run_dir = shutil.copytree(four_sites_run("adapter-families"), tmp_path / "run")
    at = run_dir / "sites" / "bank"
    save_file(
        {name: array * 1.5 for name, array in load_file(at / "adapter" / "adapter.safetensors").items()},
        at / "second.safetensors",
    )
    about = json.loads((at / "delivered.json").read_text())
    ensemble = {"first": "own", "second": "alone", "share": 0.5}
    (at / "delivered.json").write_text(json.dumps({**about, "ensemble": ensemble}))
    (tmp_path / "terms.cs-de.tsv").write_text("ráno\tMorgenrot\n")
    both = translator_of_site(run_dir, "bank", Decoding(terms=tmp_path / "terms.cs-de.tsv"))
    assert both.answering == "cs-de: site bank, an ensemble of own and alone"
    assert "Morgenrot" in both.translate(SENTENCES)[0]
