"""`fedlingua personalize` after runs of adapters that translate and of a whole encoder: table 6 and figure 3, to the same figures."""

import json
from typing import Any

import pytest

from fedlingua.common.errors import RunError
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.cli.personalize import personalize as command
from fedlingua_lab.cli.personalize import plot_of_alphas, table_of_models
from fedlingua_lab.mixtures import ALPHAS

METRICS = {"translating": ["bleu", "chrf"], "masking": ["perplexity", "accuracy"]}


def result(site: str, accuracy: float = 0.6, **more: Any) -> dict[str, Any]:
    models = ("federated", "personal", "apfl", "chosen")
    test = {model: {"perplexity": 8.0 - place, "accuracy": accuracy + min(place, 2) / 100} for place, model in enumerate(models)}
    sweep = [(alpha, 2 - alpha / 2 + (alpha > 0.9)) for alpha in ALPHAS]
    return {"site": site, "alpha": 0.625, "chosen_alpha": 0.9, "sweep": sweep, "test": test, "test_split": {}, **more}


@pytest.mark.parametrize(("kind", "site"), [("translating", "school"), ("masking", "hospital")])
def test_a_sites_models_are_measured_and_the_same_seed_gives_the_same_figures(kind, site, request):
    folder: RunFolder = request.getfixturevalue(kind)
    results, again = (command(folder.directory, None, [site], epochs=2) for _ in range(2))
    (about,), files = results, [folder.directory / f"personalization.{form}" for form in ("json", "md", "html")]
    assert json.loads(files[0].read_text()) == json.loads(json.dumps(again))
    assert {**about, "seconds": 0} == {**again[0], "seconds": 0}
    assert (about["site"], about["round"], about["seed"]) == (site, folder.read("run.json")["best_round"], 2022)
    assert about["epochs"] <= 2
    losses = dict(about["sweep"])
    assert tuple(losses) == ALPHAS
    assert losses[about["chosen_alpha"]] == min(losses.values())
    assert 0 <= about["alpha"] <= 1
    assert list(about["test"]) == ["federated", "personal", "apfl", "chosen"]
    # What the run itself told of its best round on the same text.
    scores = folder.read("scores.json")["sites"][site]
    assert about["test"]["federated"] == {metric: scores[metric] for metric in METRICS[kind]}
    assert about["test_split"] == {key: scores[key] for key in about["test_split"]}
    same = {0.0: "federated", 1.0: "personal"}.get(about["chosen_alpha"])
    assert same is None or about["test"]["chosen"] == about["test"][same]
    assert f"| {site} |" in files[1].read_text()
    assert site in files[2].read_text()


def test_the_runs_rate_and_sites_hold_unless_others_are_given(masking):
    results = command(masking.directory, epochs=1)
    assert [each["site"] for each in results] == ["hospital", "court"]
    assert results[0]["learning_rate"] == masking.read("run.json")["config"]["learning-rate"]
    (other,) = command(masking.directory, None, ["hospital"], 1, 0.5)
    assert other["learning_rate"] == 0.5
    assert other["test"]["federated"] == results[0]["test"]["federated"]
    assert other["test"]["personal"] != results[0]["test"]["personal"]


@pytest.mark.parametrize(("kind", "site", "rate"), [("translating", "school", 1e30), ("masking", "court", 100.0)])
def test_a_training_that_diverges_is_an_error_with_its_rate(kind, site, rate, request):
    folder = request.getfixturevalue(kind)
    with pytest.raises(RunError, match=rf"site {site}: its own model diverged at the learning rate {rate:g}".replace("+", r"\+")):
        command(folder.directory, None, [site], 1, rate)


def test_the_table_has_both_alphas_and_marks_what_reads_as_the_best():
    shown = table_of_models([result("clinic")], "masked-language")
    assert "| site | alpha, APFL | alpha, dev | PPL federated | PPL personal |" in shown
    assert "| clinic | 0.62 | 0.90 | 8.00 | 7.00 | 6.00 | **5.00** | 60.00 | 61.00 | **62.00** | **62.00** |" in shown


def test_a_translations_table_carries_its_signature():
    test = {model: {"bleu": 20.0, "chrf": 40.0} for model in ("federated", "personal", "apfl", "chosen")}
    signed = result("clinic", test_split={"signature": "nrefs:1|tok:13a"}, test=test)
    assert "BLEU: `nrefs:1|tok:13a`" in table_of_models([signed, signed], "translation")


def test_the_figure_shows_21_values_of_a_site_over_the_federations_and_marks_the_chosen():
    clinic, _ = plot_of_alphas([result("clinic"), result("<b>")]).data
    assert (len(clinic.x), clinic.y[0]) == (21, 0)
    assert clinic.y[10] == pytest.approx(-0.25)
    assert [alpha for alpha, size in zip(clinic.x, clinic.marker.size, strict=True) if size > 4] == [0.9]
    assert plot_of_alphas([result("<b>")]).data[0].name == "&lt;b&gt;"
