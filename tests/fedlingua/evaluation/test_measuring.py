"""What a run's sites measure is what `fedlingua score` makes of their translations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.translating.site_translations import read_site_translations
from fedlingua.evaluation import measuring
from fedlingua.evaluation.comet.scores import checked_model
from fedlingua.evaluation.measuring import measure, score_of, signature_of, width_of
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts, Translated
from tests.in_process import run

TEXT = Translated(["a", "b"], ["a cat sat", "this"], ["a cat sits", "this one"], "en")


def test_metrics_come_in_the_order_they_are_asked_for() -> None:
    (found,) = measure({"x": TEXT}, ["ter", "chrf++", "bleu"], "", print).values()
    assert list(found) == ["ter", "chrf++", "bleu"]
    for name, one in found.items():
        assert one.corpus == TEXT_METRICS[name].of(one.counts)
        assert one.signature == TEXT_METRICS[name].signature("en")
        assert one.counts.shape == (2, width_of(name))


def test_off_target_is_left_out_where_its_model_lacks_the_language() -> None:
    maori, told = replace(TEXT, target="mi"), list[str]()
    measured = measure({"x": maori, "y": TEXT}, ["chrf", "off-target"], "", told.append)
    assert {name: list(by_metric) for name, by_metric in measured.items()} == {"x": ["chrf"], "y": ["chrf", "off-target"]}
    (line,) = told
    assert line.startswith("off-target is not measured for translations into 'mi', a language that py3langid")


def test_comet_is_a_mean_and_names_its_checkpoint() -> None:
    assert score_of("comet", np.array([1.5, 2.0])) == 0.75
    assert width_of("comet") == 2
    assert signature_of("comet", "en", "Unbabel/x", 1) == "Comet2.2.7|fp16|Unbabel/x:000000000001|r1"


@pytest.fixture
def length_as_comet(monkeypatch: pytest.MonkeyPatch) -> None:
    """In COMET's place, whose own process comet/test_scores.py starts: a sentence's score is its number of letters over 100."""

    def scores(texts: dict[str, Translated], model: str, *_: object) -> tuple[dict[str, Counts], int]:
        if checked_model(model).endswith("no-such-model"):
            raise ConfigError(f"COMET model {checked_model(model)} is not on this machine")
        return {name: np.array([[len(line) / 100, 1.0] for line in text.hypotheses]) for name, text in texts.items()}, 255

    monkeypatch.setattr(measuring, "comet_scores", scores)


def test_a_run_keeps_what_its_sites_measured(four_sites, tmp_path, length_as_comet):
    model = tmp_path / "model" / "checkpoints" / "model.ckpt"
    make_checkpoint(model)
    config = {**four_sites, "rounds": 1, "metrics": "bleu,ter,chrf++,comet", "comet-model": str(model)}
    folder, _ = run(config, tmp_path / "run")
    scores = folder.read("scores.json")
    texts = read_site_translations(folder.directory)
    assert set(texts) == set(scores["sites"])
    metrics = ("ter", "chrf++", "comet", "bleu")
    for side, kind in (("", "hypothesis"), ("base_", "base")):
        measured = measure({name: getattr(text, kind) for name, text in texts.items()}, metrics, str(model), print)
        for metric in metrics:
            values = [measured[name][metric].corpus for name in texts]
            assert [scores["sites"][name][f"{side}{metric}"] for name in texts] == pytest.approx(values)
            assert scores[f"{side}macro_{metric}"] == pytest.approx(np.mean(values))
    signatures = next(iter(scores["sites"].values()))["signatures"]
    assert set(signatures) == {"ter", "chrf++", "comet"}
    assert signatures["comet"] == "Comet2.2.7|fp16|model.ckpt:0000000000ff|r1"


def make_checkpoint(model: Path) -> None:
    """The files that COMET's model has to have, empty."""
    model.parent.mkdir(parents=True)
    model.touch()
    (model.parents[1] / "hparams.yaml").touch()


def test_what_cannot_be_measured_costs_no_other_score(four_sites, tmp_path, length_as_comet, caplog):
    """As at a site without a network."""
    config = {**four_sites, "rounds": 1, "metrics": "ter,comet", "comet-model": "no-such-model"}
    scores = run(config, tmp_path / "run")[0].read("scores.json")
    for entry in scores["sites"].values():
        assert entry["not_measured"] == ["comet"]
        assert {"bleu", "ter", "base_ter"} <= set(entry)
        assert "comet" not in entry
    assert "macro_ter" in scores
    assert "macro_comet" not in scores
    assert "comet is not measured: COMET model Unbabel/no-such-model is not on this machine" in caplog.text
