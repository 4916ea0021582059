"""Scores of masked text: what a site's sums have to be, and macro, micro and pooled by hand."""

import json
import math
from typing import Any

import pytest
from flwr.app import MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.of_masked_text import all_scores, check_sums, site_scores
from fedlingua.evaluation.perplexity import MaskedScores
from fedlingua.evaluation.sums import Scores
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config

TWO = math.log(2)
GOOD = {"sentences": 3, "nll": [1.0, 2.5, 0.0, 4.0], "tokens": [1, 2, 0, 2], "correct": [0, 1, 0, 2], "masks": 0xABC}


def default():
    return settings_from(default_run_config())


def test_good_sums_are_taken_as_they_are() -> None:
    assert check_sums(MetricRecord(GOOD), 3) == MaskedScores(3, (1.0, 2.5, 0.0, 4.0), (1, 2, 0, 2), (0, 1, 0, 2), 0xABC)
    assert check_sums(MetricRecord({**GOOD, "nll": [1, 2, 0, 4]}), 3).nll == (1.0, 2.0, 0.0, 4.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"extra": 1}, "scores hold correct, extra, masks, nll, sentences, tokens; wanted correct, masks"),
        ({"nll": 7.5}, "not 4 losses, 4 numbers of masked pieces and 4 of those guessed"),
        ({"tokens": [1, 2, 0]}, "not 4 losses"),
        ({"correct": [0, 1, 0, 2, 0]}, "not 4 losses"),
        ({"sentences": 0}, "of 0 sentences"),
        ({"sentences": 4}, "the site has 3 sentences"),
        ({"sentences": 3.0}, "of 3.0 sentences"),
        ({"masks": 0.5}, "masked as 0.5"),
        ({"masks": -1}, "masked as -1"),
        ({"masks": 2**48}, "masked as"),
        ({"nll": [1.0, math.nan, 0.0, 4.0]}, "something else than finite losses and counts"),
        ({"nll": [1.0, math.inf, 0.0, 4.0]}, "something else than finite losses"),
        ({"nll": [-1.0, 2.5, 0.0, 4.0]}, "something else than finite losses"),
        ({"tokens": [1.0, 2.0, 0.0, 2.0]}, "something else than finite losses and counts"),
        ({"tokens": [1, -2, 0, 2]}, "something else than finite losses and counts"),
        ({"correct": [0, -1, 0, 2]}, "something else than finite losses and counts"),
        ({"tokens": [0] * 4, "correct": [0] * 4, "nll": [0.0] * 4}, "or nothing was masked"),
        ({"correct": [0, 1, 0, 3]}, "more pieces guessed than masked"),
        ({"nll": [701.0, 2.5, 0.0, 4.0]}, "more than 700 nats a masked piece"),  # exp of it is still a float, of 710 no more
        ({"nll": [1.0, 2.5, 0.5, 4.0]}, "or one of no piece"),
    ],
)
def test_sums_that_cannot_be_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExchangeError) as caught:
        check_sums(MetricRecord({**GOOD, **changes}), 3)
    assert reason in str(caught.value)


def test_sums_that_lack_one_are_refused() -> None:
    with pytest.raises(ExchangeError, match="scores hold correct, nll, sentences, tokens; wanted correct, masks"):
        check_sums(MetricRecord({key: value for key, value in GOOD.items() if key != "masks"}), 3)


def scores(bits: int, tokens: int, correct: int) -> MaskedScores:
    """All in the first part, of so many bits a piece."""
    return MaskedScores(5, (bits * tokens * TWO, 0.0, 0.0, 0.0), (tokens, 0, 0, 0), (correct, 0, 0, 0), 0xF)


def test_macro_micro_and_pooled_by_hand() -> None:
    """Sites of perplexity 2 over 3 pieces and 8 over 1; the base has 16 and 32."""
    sums = {"a": (scores(1, 3, 3), scores(4, 3, 0)), "b": (scores(3, 1, 0), scores(5, 1, 1))}
    sites = {
        site: site_scores(default(), Direction(language, language), Scores(*sums[site]))
        for site, language in (("a", "de"), ("b", "es"))
    }
    found = all_scores(default(), sites, sums)
    assert found == {
        "macro_perplexity": pytest.approx(5.0),
        "micro_perplexity": pytest.approx((3 * 2 + 8) / 4),
        "pooled_perplexity": pytest.approx(2 ** ((3 * 1 + 3) / 4)),
        "base_macro_perplexity": pytest.approx(24.0),
        "macro_accuracy": pytest.approx(0.5),
        "base_macro_accuracy": pytest.approx(0.5),
    }


def test_a_language_of_two_sites_counts_once_in_the_macro_mean() -> None:
    """Perplexities 2 and 8 in German, 32 in Spanish."""
    sums = {site: (scores(bits, 2, bits % 2), scores(1, 2, 0)) for site, bits in (("a", 1), ("b", 3), ("c", 5))}
    sites = {
        site: site_scores(default(), Direction(code, code), Scores(*sums[site]))
        for site, code in (("a", "de"), ("b", "de"), ("c", "es"))
    }
    found = all_scores(default(), sites, sums)
    assert found["macro_perplexity"] == pytest.approx((5 + 32) / 2)
    assert found["micro_perplexity"] == pytest.approx((2 + 8 + 32) / 3)


def test_a_sites_scores_say_what_was_masked_and_how_the_parts_differ() -> None:
    result = MaskedScores(5, (TWO, 4 * TWO, 0.0, 0.0), (1, 2, 0, 0), (1, 1, 0, 0), 0xAB)
    told = site_scores(default(), Direction("de", "de"), Scores(result, scores(4, 3, 0)))
    assert told == {
        "direction": "de",
        "perplexity": pytest.approx(2 ** (5 / 3)),
        "accuracy": pytest.approx(2 / 3),
        "perplexity_of_parts": pytest.approx(3.0),
        "perplexity_of_parts_sd": pytest.approx(math.sqrt(2)),
        "sentences": 5,
        "masked": 3,
        "masks": "0000000000ab",
        "base_perplexity": pytest.approx(16.0),
        "base_accuracy": 0.0,
    }
    json.dumps(told)
