"""What scores.json says of a choice, by hand."""

import pytest

from fedlingua.evaluation.of_choice import choice_means, choice_scores
from fedlingua.evaluation.perplexity import MaskedScores, accuracy, perplexity
from fedlingua.evaluation.sums import Scores

METRICS = {"perplexity": perplexity, "accuracy": accuracy}


def masked(nats: float) -> MaskedScores:
    """Of ten pieces, all in one part."""
    return MaskedScores(1, (10 * nats, 0, 0, 0), (10, 0, 0, 0), (4, 0, 0, 0), 7)


def chosen(*nats: float, kept: str, reference: str, ends: tuple[float, float]) -> Scores:
    """Scores of result, base, alone, federated and an ensemble of two alone, each with so many nats a piece."""
    result, base, alone, federated, alone_ensemble = map(masked, nats)
    of = {"base": base, "alone": alone, "federation": federated, "alone ensemble": alone_ensemble}
    return Scores(result, base).chosen(of, kept, "federation", reference, ends)


def test_gains_are_over_the_reference_of_the_site_and_above_0_where_perplexity_falls() -> None:
    told = choice_scores(chosen(0.0, 2.0, 1.0, 1.5, 0.5, kept="ensemble", reference="alone ensemble", ends=(0.5, 2.0)), METRICS)
    assert told["alone_perplexity"] == pytest.approx(2.718281828)
    assert (told["kept"], told["federated_accuracy"], told["single_perplexity"]) == ("ensemble", 0.4, pytest.approx(4.48168907))
    assert told["alone_ensemble_perplexity"] == told["reference"]["perplexity"] == pytest.approx(1.648721271)
    assert told["reference"] == {"name": "alone ensemble", "perplexity": pytest.approx(1.648721271), "accuracy": 0.4}
    assert told["gain"] == {"perplexity": pytest.approx(0.648721271), "low": 0.5, "high": 2.0}
    # The reference is the best by dev, although the base is better on the scored text.
    worse = choice_scores(chosen(1.0, 0.0, 2.0, 1.5, 9.0, kept="federation", reference="alone", ends=(1.0, 9.0)), METRICS)
    assert worse["gain"]["perplexity"] == pytest.approx(7.389056099 - 2.718281828)


def test_without_a_choice_nothing_is_said_and_a_model_alone_that_diverged_is_not_scored() -> None:
    assert choice_scores(Scores(masked(0.0), masked(1.0)), METRICS) == {}
    of = {"base": masked(1.0), "federation": masked(0.0)}
    told = choice_scores(Scores(masked(0.0), masked(1.0)).chosen(of, "federation", "federation", "base", (1.0, 2.0)), METRICS)
    assert told["gain"]["perplexity"] == pytest.approx(1.718281828)
    assert not {"alone_perplexity", "alone_ensemble_perplexity"} & set(told)


def test_means_are_over_sites_that_all_have_the_score() -> None:
    sites = {"a": {"alone_bleu": 10.0, "federated_bleu": 30.0}, "b": {"federated_bleu": 40.0}}
    assert choice_means(sites, ("bleu",)) == {"macro_federated_bleu": 35.0}
    sites = {"a": {"reference": {"name": "base", "bleu": 1.0}}, "b": {"reference": {"name": "alone", "bleu": 2.0}}}
    assert choice_means(sites, ("bleu",)) == {"macro_reference_bleu": 1.5}
    assert choice_means({}, ("bleu",)) == {}
