"""The model card: a header that the hub reads, and figures that are those of the run's files."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedlingua.common.errors import RunError
from fedlingua.desk.cli.export import take_away
from fedlingua.desk.cli.options import ExportOptions
from fedlingua.desk.export.card import model_card
from fedlingua.desk.export.facts import facts, licence_of, public_name
from fedlingua.desk.export.model import export_model
from fedlingua.desk.translating.models import RunModels, TrainedModel
from fedlingua.privacy.accounting import signature_epsilon
from tests.fedlingua.conftest import RunOf


def header(card: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_the_cards_figures_are_those_of_the_run(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("lora")
    done = export_model(RunModels(run).of_site("hospital"), tmp_path / "out", "peft", run)
    card = (done.directory / "README.md").read_text()
    scores = json.loads((run / "scores.json").read_text())["sites"]["hospital"]
    about, sites = json.loads((run / "run.json").read_text()), json.loads((run / "sites.json").read_text())
    traffic = json.loads((run / "traffic.json").read_text())["hospital"]
    assert header(card) == {
        "language": ["de", "fr"],
        "tags": ["fedlingua", "federated-learning", "lora"],
        "metrics": ["bleu", "chrf"],
        "license": "other",
        "library_name": "peft",
        "pipeline_tag": "translation",
    }
    bleu, chrf = (re.search(rf"^\| {name} \| (.*?) \| (.*?) \| `(.*)` \|$", card, re.MULTILINE) for name in ("BLEU", "chrF"))
    assert bleu
    assert chrf
    assert [float(bleu[1]), float(bleu[2])] == [round(scores["base_bleu"], 2), round(scores["bleu"], 2)]
    assert [float(chrf[1]), float(chrf[2])] == [round(scores["base_chrf"], 2), round(scores["chrf"], 2)]
    assert bleu[3].replace("\\|", "|") == scores["signature"]
    assert chrf[3].replace("\\|", "|") == scores["chrf_signature"]
    told = json.loads((done.directory / "export.json").read_text())
    assert told["bytes"]["uplink_bytes"] == sum(kind["uplink_bytes"] for kind in traffic.values()) > 0
    assert told["sentences"] == {key: sites["hospital"][key] for key in ("train", "dev", "test")}
    assert told["together_with"] == {"encoder": 1, "decoder": 2}, (
        "German and Polish sources are apart, French and Spanish targets together"
    )
    hashes = (about["backbone"]["fingerprint"], about["config_hash"], about["id"], f"{about['trained_parameters']:,} trained")
    for said in (*hashes, "2 of 2", "`adapter-families`", "No ε bounds the training", about["versions"]["torch"]):
        assert said in card
    assert "from German into French" in card


def test_norwegian_is_no_false_and_a_hub_id_is_the_base_model(run_of: RunOf) -> None:
    trained = RunModels(run_of("adapters")).of_site("hospital")
    told = facts(trained, Path("nowhere"), "facebook/m2m100_418M", None) | {"form": "adapter", "quantization": None, "use": None}
    card = model_card(told | {"direction": "no-de", "languages": ["de", "no"]})
    assert header(card)["language"] == ["de", "no"]
    assert header(card)["base_model"] == "facebook/m2m100_418M"
    assert "The backbone's licence is `mit`." in card
    assert "at revision `55c2e61bbf05dfb8d7abccdc3fae6fc8512fd636`" in card


def test_at_a_site_the_card_has_the_bleu_that_the_site_was_told(run_of: RunOf, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("adapters") / "sites" / "hospital", tmp_path / "hospital"))
    scores = json.loads((run_of("adapters") / "scores.json").read_text())["sites"]["hospital"]
    about = {"form": "adapter", "quantization": None, "use": None}
    card = model_card(about | facts(TrainedModel.of_delivery(folder), Path("nowhere"), "demo", None))
    assert f"On the site's own test text, {scores['sentences']} sentences:" in card
    assert f"| BLEU | {scores['base_bleu']:.2f} | {scores['bleu']:.2f} |  |\n" in card
    assert "chrF" not in card
    assert header(card)["metrics"] == ["bleu"]
    file = folder / "scores-hospital.json"
    file.write_text("{")
    with pytest.raises(RunError, match=r"scores-hospital\.json is damaged"):
        facts(TrainedModel.of_delivery(folder), Path("nowhere"), "demo", None)
    file.unlink()
    card = model_card(about | facts(TrainedModel.of_delivery(folder), Path("nowhere"), "demo", None))
    assert "its figures are not known at the site" in card
    assert "metrics" not in header(card)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("private", "ε = {:.3g} at δ = 1e-05 for each of its sentences"),
        ("raw", "a gradient of its text once, without noise. No ε"),
    ],
)
def test_what_signatures_cost_is_told(run_of: RunOf, form: str, said: str) -> None:
    trained = RunModels(run_of("adapters")).of_site("hospital")
    grouped = replace(trained, settings=replace(trained.settings, method="adapter-gradients", signature_form=form))
    told = facts(grouped, Path("nowhere"), "demo", None) | {"form": "adapter", "quantization": None, "use": None}
    assert said.format(signature_epsilon(2.0, 1e-5)) in model_card(told)


@pytest.mark.parametrize(
    ("kept", "said", "bounded"),
    [
        (None, "the result of a federated training by fedlingua", True),
        ("federation", "the site's choice on its dev text: `federation` |", True),
        ("last rounds", "`last rounds`, the mean of the federation's models of the last rounds |", True),
        ("base", "its backbone unchanged, which the site kept", True),
        ("alone", "what the site trained on its own text alone, and kept", False),
        ("own", "`own`, the federation's model trained on at the site |", False),
        ("own+federation by part", "trained on at the site, mixed with the federation's |", False),
        ("own+alone", "trained on at the site, mixed with one trained alone |", False),
        ("federation+alone", "`federation+alone`, the federation's model, mixed with one trained alone |", False),
    ],
)
def test_what_noise_bounds_and_which_model_the_site_kept_is_told(
    run_of: RunOf, kept: str | None, said: str, bounded: bool
) -> None:
    run = run_of("adapters")
    trained = RunModels(run).of_site("hospital")
    private = replace(trained, candidate=kept, settings=replace(trained.settings, dp_epsilon=8.0, dp_delta=1e-6))
    told = {"form": "adapter", "quantization": None, "use": None, **facts(private, Path("x"), "demo", run)}
    card = model_card(told)
    assert said in card
    assert "What sites sent has ε = 8 at δ = 1e-06 for each of their training sentences" in card
    assert ("for the model that it kept the site trained without noise, so no ε bounds it" in card) is not bounded
    shared = {**told["dp"], "shared": True}
    assert "Sums over what sites sent have ε = 8 at δ = 1e-06 for each" in model_card({**told, "dp": shared})
    assert "for each of their training documents" in model_card({**told, "dp": {**told["dp"], "unit": "document"}})
    assert "adds no noise" not in card
    assert ("| averaged with |" in card) == (kept not in ("alone", "base"))
    with_signatures = {**told, "signatures": {"form": "raw", "epsilon": None, "delta": None}}
    assert "without noise. No ε bounds that.\n" in model_card(with_signatures)


def test_the_delivered_model_says_which_candidate_it_is(run_of: RunOf, tmp_path: Path) -> None:
    run = Path(shutil.copytree(run_of("adapters"), tmp_path / "run"))
    about = run / "sites" / "hospital" / "delivered.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "kept": "own"}))
    for model in (RunModels(run).of_site("hospital"), TrainedModel.of_delivery(about.parent)):
        assert facts(model, Path("x"), "demo", None)["kept"] == "own"
    assert facts(RunModels(run).of_site("court"), Path("x"), "demo", None)["kept"] is None


def test_of_an_ensemble_the_first_model_is_exported_and_the_scores_are_said_to_be_the_ensembles(
    run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(run_of("adapters"), tmp_path / "run"))
    about = run / "sites" / "hospital" / "delivered.json"
    ensemble = {"first": "own", "second": "alone", "share": 0.4}
    about.write_text(json.dumps({**json.loads(about.read_text()), "kept": "ensemble", "ensemble": ensemble}))
    model = RunModels(run).of_site("hospital")
    told = {"form": "adapter", "quantization": None, "use": None, **facts(model, Path("x"), "demo", run)}
    assert (told["kept"], told["ensemble_with"]) == ("own", "alone")
    card = model_card(told)
    assert "| backbone | ensemble of this model and `alone` |" in card
    assert "`own`, the federation's model trained on at the site |" in card
    assert "translates together with `alone`, which is not part of this export" in card
    take_away(model, ExportOptions(to=tmp_path / "out"), run)
    assert "its first model, own, without alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("causal", "adds", "code"),
    [
        (False, True, "padding=True, truncation=True, max_length=32)"),
        (True, True, 'padding=True, padding_side="left")'),
        (True, False, 'padding=True, padding_side="left", add_special_tokens=False)'),
    ],
)
def test_the_code_encodes_and_searches_as_the_run_does(run_of: RunOf, causal: bool, adds: bool, code: str) -> None:
    trained = RunModels(run_of("adapters")).of_site("hospital")
    use = {"target_id": None, "target_token": None, "text": "...", "is_causal": causal, "adds_special": adds}
    for ngram in (0, 3):
        searching = replace(trained, settings=replace(trained.settings, no_repeat_ngram=ngram))
        told = {"quantization": None, "use": use, **facts(searching, Path("x"), "demo", None)}
        plain, converted = (model_card({**told, "form": form}) for form in ("transformers", "ctranslate2"))
        assert f'inputs = tokenizer(sentences, return_tensors="pt", {code}\n' in plain
        assert ("tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token\n" in plain) is causal
        assert ("tokenizer(sentences, add_special_tokens=False)" in converted) is not adds
        assert all(("    no_repeat_ngram_size=3,\n" in card) == (ngram == 3) for card in (plain, converted))


def test_an_encoders_card_names_all_languages_and_measures_perplexity(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("encoder-full")
    card = (export_model(RunModels(run).of_site("court"), tmp_path / "out", "", run).directory / "README.md").read_text()
    assert header(card)["language"] == ["de", "pl"]
    assert header(card)["pipeline_tag"] == "fill-mask"
    scores = json.loads((run / "scores.json").read_text())["sites"]["court"]
    assert f"| {scores['base_perplexity']:.2f} | {scores['perplexity']:.2f} |" in card
    assert "AutoModelForMaskedLM" in card


def test_a_licence_is_taken_from_the_card_beside_the_backbone(tmp_path: Path) -> None:
    assert licence_of(tmp_path, "mine") is None
    (tmp_path / "README.md").write_text("---\nlanguage: de\nlicense: cc-by-4.0\n---\n\nlicense: text\n")
    assert licence_of(tmp_path, "mine") == "cc-by-4.0"
    (tmp_path / "README.md").write_text("no header\nlicense: cc-by-4.0\n")
    assert licence_of(tmp_path, "mine") is None
    assert licence_of(tmp_path, "FacebookAI/xlm-roberta-base") == "mit"


@pytest.mark.parametrize(
    ("facts_of_it", "said", "not_said"),
    [
        ({"pooled": True, "travels": False}, "trained on the text of all sites in one place", "No text left"),
        ({"pooled": False, "travels": False}, "No text and no tensor left the sites", "one place"),
        ({"pooled": False, "travels": True}, "No text left the sites. Tensors and sums did", "one place"),
    ],
)
def test_a_card_says_what_left_the_sites(run_of: RunOf, facts_of_it: dict[str, bool], said: str, not_said: str) -> None:
    trained = RunModels(run_of("adapters")).of_site("hospital")
    told = {"form": "adapter", "quantization": None, "use": None, **facts(trained, Path("x"), "demo", run_of("adapters"))}
    card = model_card({**told, **facts_of_it})
    assert said in card
    assert not_said not in card
    assert ("a federated training" in card) != facts_of_it["pooled"]
    assert ("exchanged by all sites together" in card) == facts_of_it["pooled"]


def test_a_backbone_is_told_by_its_name_not_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret" / "m2m").mkdir(parents=True)
    assert public_name("secret/m2m") == "m2m"
    assert public_name("/models/m2m") == "m2m"
    assert public_name("./models/m2m") == "m2m"
    assert public_name("~/models/m2m") == "m2m"
    assert public_name("facebook/m2m100_418M") == "facebook/m2m100_418M"
    assert public_name("demo") == "demo"
