"""Scores besides BLEU and chrF, of sums that sites sent: checked, scored and averaged."""

import dataclasses
import math

import pytest
from flwr.app import MetricRecord

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.of_translation import check_sums, extra_means, extra_scores
from fedlingua.evaluation.scores import ScoreSums, score_sums
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config

FRENCH = Direction("de", "fr")
SUMS = dataclasses.replace(
    score_sums(["a b c d"], ["a b c d"], "fr"), more={"ter": (1.0, 4.0), "comet": (0.9, 1.0)}, comet_checkpoint=0xABC
)


def settings(metrics: str):
    return settings_from({**default_run_config(), "metrics": metrics, "comet-model": "own/model"})


def test_sums_travel_as_they_are() -> None:
    assert check_sums(MetricRecord(SUMS.record()), 1) == SUMS
    plain = score_sums(["a"], ["a"], "fr")
    assert set(plain.record()) == {"sentences", "bleu", "chrf"}  # a run that asks for nothing more sends nothing more


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"more.ter": [1.0]}, "ter something else than 2 finite numbers"),
        ({"more.ter": [1.0, math.inf]}, "ter something else than 2 finite numbers"),
        ({"more.ter": 3.0}, "ter something else than 2 finite numbers"),
        ({"more.words": [1.0, 2.0]}, "scores hold .*more.words"),
        ({"comet-checkpoint": 2**48}, "wanted 48 bits"),
        ({"comet-checkpoint": 1.5}, "wanted 48 bits"),
    ],
)
def test_other_sums_are_refused(changes: dict, words: str) -> None:
    with pytest.raises(ExchangeError, match=words):
        check_sums(MetricRecord({**SUMS.record(), **changes}), 1)


def test_sums_of_texts_add_up() -> None:
    both = SUMS + SUMS
    assert both.more == {"ter": (2.0, 8.0), "comet": (1.8, 2.0)}
    assert both.comet_checkpoint == 0xABC
    assert (SUMS + dataclasses.replace(SUMS, comet_checkpoint=1)).comet_checkpoint == 0


def test_a_site_has_scores_of_both_and_how_they_were_made() -> None:
    base = dataclasses.replace(SUMS, more={"ter": (6.0, 12.0), "comet": (0.5, 1.0)})
    told = extra_scores(settings("ter,comet,chrf++"), FRENCH, SUMS, base)
    assert (told["ter"], told["base_ter"]) == (pytest.approx(25.0), pytest.approx(50.0))
    assert (told["comet"], told["base_comet"]) == (0.9, 0.5)
    assert told["signatures"]["comet"] == "Comet2.2.7|fp16|own/model:000000000abc|r1"
    assert told["not_measured"] == ["chrf++"]
    assert extra_scores(settings("bleu,chrf"), FRENCH, SUMS, base) == {}


def test_means_are_of_what_every_site_measured_in_the_same_way() -> None:
    asked = settings("ter,comet")
    sites = {name: extra_scores(asked, FRENCH, SUMS, SUMS) for name in ("a", "b")}
    sites["b"] |= {"ter": 75.0, "base_ter": 35.0}
    assert extra_means(asked, sites) == {
        "macro_ter": pytest.approx(50.0),
        "base_macro_ter": pytest.approx(30.0),
        "macro_comet": 0.9,
        "base_macro_comet": 0.9,
    }
    other = extra_scores(asked, FRENCH, dataclasses.replace(SUMS, comet_checkpoint=5), SUMS)
    assert "macro_comet" not in extra_means(asked, {**sites, "c": other})
    without = extra_scores(asked, FRENCH, ScoreSums(1, SUMS.bleu, SUMS.chrf), SUMS)
    assert extra_means(asked, {**sites, "c": without}) == {}


def test_metrics_are_checked_before_a_run() -> None:
    with pytest.raises(ConfigError, match="there is no metric 'commet'; did you mean 'comet'"):
        settings("bleu,commet")
    with pytest.raises(ConfigError, match="nothing is translated under task = 'masked-language'"):
        settings_from({**default_run_config(), "task": "masked-language", "method": "server-adam", "metrics": "ter"})
