"""What a run's sites measure is what `fedlingua score` makes of their translations."""

import numpy as np
import pytest

from fedlingua.evaluation.measuring import measure, score_of, signature_of, width_of
from fedlingua.evaluation.site_translations import read_site_translations
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated
from tests.comet import tiny_checkpoint
from tests.in_process import run

pytestmark = pytest.mark.timeout(1800)  # COMET's environment is made where it is not there yet

TEXT = Translated(["a", "b"], ["a cat sat", "this"], ["a cat sits", "this one"], "en")


def test_metrics_come_in_the_order_they_are_asked_for() -> None:
    (found,) = measure({"x": TEXT}, ["ter", "chrf++", "bleu"], "", print).values()
    assert list(found) == ["ter", "chrf++", "bleu"]
    for name, one in found.items():
        assert one.corpus == TEXT_METRICS[name].of(one.counts)
        assert one.signature == TEXT_METRICS[name].signature("en")
        assert one.counts.shape == (2, width_of(name))


def test_comet_is_a_mean_and_names_its_checkpoint() -> None:
    assert score_of("comet", np.array([1.5, 2.0])) == 0.75
    assert width_of("comet") == 2
    assert signature_of("comet", "en", "Unbabel/x", 1) == "Comet2.2.7|fp16|Unbabel/x:000000000001|r1"


def test_a_run_keeps_what_its_sites_measured(four_sites, tmp_path):
    config = {**four_sites, "rounds": 1, "metrics": "bleu,ter,chrf++,comet", "comet-model": str(tiny_checkpoint())}
    more_scores, _ = run(config, tmp_path / "run")
    scores = more_scores.read("scores.json")
    texts = read_site_translations(more_scores.directory)
    assert set(texts) == set(scores["sites"])
    keys = {"ter": "ter", "chrf++": "chrf++", "comet": "comet", "bleu": "bleu"}
    for side in ("", "base_"):
        found = measure({name: text.of(side) for name, text in texts.items()}, list(keys), str(tiny_checkpoint()), print)
        for metric, key in keys.items():
            values = [found[name][metric].corpus for name in texts]
            assert [scores["sites"][name][f"{side}{key}"] for name in texts] == pytest.approx(values)
            assert scores[f"{side}macro_{key}"] == pytest.approx(np.mean(values))
    signatures = next(iter(scores["sites"].values()))["signatures"]
    assert set(signatures) == {"ter", "chrf++", "comet"}
    assert signatures["comet"].startswith("Comet2.2.7|fp16|model.ckpt:")


def test_what_cannot_be_measured_costs_no_other_score(four_sites, tmp_path, monkeypatch, caplog):
    """As at a site without a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = {**four_sites, "rounds": 1, "metrics": "ter,comet", "comet-model": "no-such-model"}
    scores = run(config, tmp_path / "run")[0].read("scores.json")
    for entry in scores["sites"].values():
        assert entry["not_measured"] == ["comet"]
        assert {"bleu", "ter", "base_ter"} <= set(entry)
        assert "comet" not in entry
    assert "macro_ter" in scores
    assert "macro_comet" not in scores
    assert "comet is not measured: COMET model Unbabel/no-such-model is not on this machine" in caplog.text
