"""What scores.json says of a choice, by hand."""

import pytest

from fedlingua.evaluation.perplexity import MaskedScores, accuracy, perplexity
from fedlingua.evaluation.sums import Scores
from strategies.metrics.choice import choice_means, choice_scores

METRICS = {"perplexity": perplexity, "accuracy": accuracy}


def masked(nats: float) -> MaskedScores:
    """Of ten pieces, all in one part."""
    return MaskedScores(1, (10 * nats, 0, 0, 0), (10, 0, 0, 0), (4, 0, 0, 0), 7)


def test_gains_are_over_the_better_of_base_and_alone_and_above_0_where_perplexity_falls() -> None:
    scores = Scores(masked(0.0), masked(2.0), masked(1.0), masked(1.5), "own", (0.5, 2.0), (0.5, 2.0))
    told = choice_scores(scores, METRICS)
    assert told["alone_perplexity"] == pytest.approx(2.718281828)
    assert (told["kept"], told["federated_accuracy"]) == ("own", 0.4)
    assert told["gain"] == {"perplexity": pytest.approx(1.718281828), "low": 0.5, "high": 2.0}
    better_base = choice_scores(Scores(masked(1.0), masked(0.0), masked(1.0), masked(1.5), "alone"), METRICS)
    assert better_base["gain"] == {"perplexity": pytest.approx(-1.718281828), "low": None, "high": None}
    assert better_base["gain_over_alone"]["perplexity"] == 0


def test_without_a_choice_nothing_is_said_and_without_a_model_alone_the_base_is_what_counts() -> None:
    assert choice_scores(Scores(masked(0.0), masked(1.0)), METRICS) == {}
    told = choice_scores(Scores(masked(0.0), masked(1.0), None, masked(0.0), "federation"), METRICS)
    assert told["gain"]["perplexity"] == pytest.approx(1.718281828)
    assert not {"alone_perplexity", "gain_over_alone"} & set(told)


def test_means_are_over_sites_that_all_have_the_score() -> None:
    sites = {"a": {"alone_bleu": 10.0, "federated_bleu": 30.0}, "b": {"federated_bleu": 40.0}}
    assert choice_means(sites, ("bleu",)) == {"macro_federated_bleu": 35.0}
    assert choice_means({}, ("bleu",)) == {}
