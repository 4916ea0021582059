"""Scores that are added up as numbers are those of one text, and their means those over single texts."""

from functools import reduce
from operator import add
from statistics import fmean

import numpy as np
import pytest

from fedlingua.common.languages import Direction
from fedlingua.evaluation.perplexity import MaskedScores, accuracy, perplexity
from fedlingua.evaluation.scores import ScoreSums, bleu_score, chrf_score, score_sums
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.totals import MOST, common_direction, counted_scores, score_counters, totals_of

REFERENCES = [
    "the cat sat on the mat in the sun",
    "a dog ran over the green hill today",
    "we saw two birds high in the old tree",
]


def translated(sentences: int, wrong: int) -> ScoreSums:
    """The sums of `sentences` translations, whose last words are wrong."""
    references = [REFERENCES[at % 3] for at in range(sentences)]
    hypotheses = [" ".join([*line.split()[: 9 - wrong], *["x"] * wrong]) for line in references]
    return score_sums(hypotheses, references, "en")


def summed(task: str, texts: list[Scores]) -> dict[str, float]:
    each = [counted_scores(task, {str(at): scores}) for at, scores in enumerate(texts)]
    return {name: sum(numbers[name] for numbers in each) for name in score_counters(task)}


def chosen(texts: list[ScoreSums], kept: str, reference: str, ends: tuple[float, float]) -> Scores:
    """Scores of a site that chose; texts: result, base, alone and federated."""
    result, base, alone, federated = texts
    of = {"base": base, "alone": alone, "federation": federated}
    return Scores(result, base).chosen(of, kept, "federation", reference, ends)


SITES = [
    chosen([translated(3, wrong) for wrong in (0, 4, 2, 1)], "own", "alone", (0.5, 2.0)),
    chosen([translated(7, wrong) for wrong in (2, 4, 1, 3)], "federation", "alone", (-2.0, -0.1)),
    chosen([translated(5, wrong) for wrong in (1, 3, 1, 0)], "alone", "base", (-0.1, 0.5)),
]


def test_sums_are_those_of_one_text_and_means_those_of_three() -> None:
    totals = totals_of("translation", summed("translation", SITES))
    for model in ("result", "base", "alone", "federated", "single", "reference"):
        assert getattr(totals.scores, model) == reduce(add, (getattr(site, model) for site in SITES))
    results = [bleu_score(site.result) for site in SITES]
    assert totals.averages["macro_bleu"] == pytest.approx(fmean(results))
    assert totals.averages["micro_bleu"] == pytest.approx(np.average(results, weights=[3, 7, 5]))
    assert totals.averages["base_macro_chrf"] == pytest.approx(fmean(chrf_score(site.base) for site in SITES))
    assert totals.averages["macro_alone_bleu"] == pytest.approx(fmean(bleu_score(site.alone) for site in SITES))
    assert totals.averages["macro_federated_bleu"] == pytest.approx(fmean(bleu_score(site.federated) for site in SITES))
    assert totals.averages["macro_reference_bleu"] == pytest.approx(fmean(bleu_score(site.reference) for site in SITES))


def test_who_gained_or_lost_beyond_chance_is_counted() -> None:
    choices = totals_of("translation", summed("translation", SITES)).choices
    assert choices == {"gained": 1, "lost": 1, "of": 3}


def test_a_model_that_a_site_lacks_is_compared_with_nothing() -> None:
    totals = totals_of("translation", summed("translation", [*SITES, Scores(translated(2, 0), translated(2, 1))]))
    assert (totals.scores.alone, totals.scores.federated, totals.scores.candidate) == (None, None, "")
    assert totals.scores.result.sentences == 17
    assert "macro_alone_bleu" not in totals.averages
    assert totals.choices["of"] == 3


def test_masked_text_whose_perplexity_has_no_bound() -> None:
    one = MaskedScores(9, (1.5, 2.5, 0.0, 4.0), (1, 2, 0, 3), (1, 0, 0, 2), 77)
    two = MaskedScores(4, (600.0, 700.0, 650.0, 690.0), (1, 1, 1, 1), (0, 0, 0, 0), 78)
    totals = totals_of("masked-language", summed("masked-language", [Scores(one, two), Scores(two, two)]))
    assert totals.scores.result.nll == (601.5, 702.5, 650.0, 694.0)
    assert totals.scores.result.tokens == (2, 3, 1, 4)
    assert perplexity(two) > MOST
    assert totals.averages["macro_perplexity"] == pytest.approx((perplexity(one) + MOST) / 2)
    assert totals.averages["macro_accuracy"] == pytest.approx((accuracy(one) + accuracy(two)) / 2)
    assert totals.averages["micro_accuracy"] == pytest.approx((6 * accuracy(one) + 4 * accuracy(two)) / 10)


DE_EN, FR_EN, EN_FR = (Direction(*sides) for sides in (("de", "en"), ("fr", "en"), ("en", "fr")))


@pytest.mark.parametrize(
    ("directions", "common"),
    [([DE_EN, DE_EN], "de-en"), ([DE_EN, FR_EN], "mul-en"), ([DE_EN, EN_FR], "mul"), ([Direction("de", "de")], "de")],
)
def test_a_side_on_which_sites_differ_is_several_languages(directions: list[Direction], common: str) -> None:
    named = {str(at): each for at, each in enumerate(directions)}
    assert str(common_direction(named)) == common
