"""The choice among models: by hand on made-up dev results, what is not sure is not taken, and from how many sentences on it can be sure."""

import numpy as np
import pytest

from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated
from fedlingua.personalization.choice import (
    ALONE,
    BASE,
    FEDERATION,
    LEAST_SENTENCES,
    OWN,
    DevResult,
    averaged,
    choose,
    gain,
    interval,
    next_to_translate,
    worth_translating,
)

TOKENS = np.arange(40) % 7 + 3.0


def result(loss: float, swing: float = 0.0, chrf: int | None = None, sentences: int = 40) -> DevResult:
    """Of `loss` nats a token in every sentence, but that every other sentence has `swing` more and the next as much less.

    chrf: of ten letters of a sentence so many are right.
    """
    tokens = TOKENS[:sentences]
    nll = tokens * loss + swing * (-1) ** np.arange(sentences)
    counts = None
    if chrf is not None:
        text = Translated([""], ["abcdefghij"[:chrf] + "-" * (10 - chrf)], ["abcdefghij"], "fr")
        counts = np.repeat(TEXT_METRICS["chrf"].count(text), sentences, axis=0)
    return DevResult(nll, tokens, counts)


def test_the_best_is_kept_where_its_gain_is_sure() -> None:
    dev = {BASE: result(3.0), ALONE: result(2.0), FEDERATION: result(1.9), OWN: result(1.5)}
    chosen = choose(dev, "loss")
    assert (chosen.candidate, chosen.reference) == (OWN, ALONE)
    assert chosen.gains[OWN]["loss"].value == pytest.approx(0.5)
    assert chosen.gains[OWN]["loss"].low == pytest.approx(0.5)
    assert set(chosen.gains) == {FEDERATION, OWN}


@pytest.mark.parametrize(("base", "alone", "better"), [(3.0, 2.0, ALONE), (2.0, 3.0, BASE)])
def test_what_is_better_by_chance_only_is_not_taken(base: float, alone: float, better: str) -> None:
    dev = {BASE: result(base), ALONE: result(alone), OWN: result(1.99, swing=2.0)}
    chosen = choose(dev, "loss")
    assert chosen.candidate == chosen.reference == better
    assert chosen.gains[OWN]["loss"].value == pytest.approx(0.01)
    assert chosen.gains[OWN]["loss"].low < 0


def test_an_ensembles_loss_is_of_the_mean_of_both_models_probabilities_of_each_token() -> None:
    first, second = [np.array([0.5, 2.0]), np.array([1.0])], [np.array([1.5, 0.1]), np.array([3.0])]
    of = averaged(DevResult.of(first), DevResult.of(second), 0.3)
    by_hand = [-np.log(0.7 * np.exp(-one) + 0.3 * np.exp(-other)) for one, other in zip(first, second, strict=True)]
    assert of.nll.tolist() == pytest.approx([each.sum() for each in by_hand])
    assert of.tokens.tolist() == [2, 1]
    # Two models that are wrong at different tokens are better together than the better of them.
    assert of.loss < min(DevResult.of(first).loss, DevResult.of(second).loss)
    assert averaged(DevResult.of(first), DevResult.of(first), 0.4).loss == pytest.approx(DevResult.of(first).loss)


def test_without_a_model_of_its_own_the_base_is_what_has_to_be_beaten() -> None:
    assert choose({BASE: result(2.0), FEDERATION: result(2.5)}, "loss").candidate == BASE
    assert choose({BASE: result(2.0), FEDERATION: result(1.5)}, "loss").candidate == FEDERATION


def test_under_both_the_loss_has_to_show_it_and_chrf_may_object() -> None:
    dev = {BASE: result(3.0, chrf=2), ALONE: result(2.0, chrf=5)}
    lower_loss_only = {**dev, OWN: result(1.0, chrf=4)}
    more_chrf_only = {**dev, OWN: result(2.5, chrf=8)}
    each = {**dev, FEDERATION: result(1.0, chrf=4), OWN: result(1.9, chrf=8)}
    assert choose(lower_loss_only, "loss").candidate == OWN
    assert choose(lower_loss_only, "both").candidate == ALONE
    assert choose(more_chrf_only, "chrf").candidate == OWN
    assert choose(more_chrf_only, "both").candidate == ALONE
    assert choose(each, "both").candidate == OWN
    assert choose(each, "loss").candidate == FEDERATION


def test_what_chrf_leaves_open_is_no_objection() -> None:
    """Of forty sentences two are better and four worse: less chrF, but not surely."""
    dev = {BASE: result(3.0, chrf=2), ALONE: result(2.0, chrf=5), OWN: result(1.0, chrf=5)}
    counts, better, worse = dev[OWN].chrf, result(1.0, chrf=8).chrf, result(1.0, chrf=2).chrf
    assert counts is not None
    assert better is not None
    assert worse is not None
    counts[:2], counts[2:6] = better[:2], worse[:4]
    chosen = choose(dev, "both")
    assert chosen.gains[OWN]["chrf"].value < 0 < chosen.gains[OWN]["chrf"].high
    assert chosen.candidate == OWN
    assert choose(dev, "chrf").candidate == ALONE


def test_only_what_the_choice_can_depend_on_is_translated_with() -> None:
    dev = {BASE: result(3.0), ALONE: result(2.0), FEDERATION: result(2.1), OWN: result(1.5)}
    assert worth_translating(dev, "loss") == []
    assert worth_translating(dev, "both") == [ALONE, OWN]
    assert worth_translating(dev, "chrf") == [BASE, ALONE, FEDERATION, OWN]
    more = {**dev, "own+alone": result(1.4), FEDERATION: result(1.3), "last rounds": result(1.2)}
    assert worth_translating(more, "both") == [ALONE, "last rounds", FEDERATION]
    nothing_better = {**dev, OWN: result(2.2)}
    assert worth_translating(nothing_better, "both") == []
    assert choose(nothing_better, "both").candidate == ALONE


@pytest.mark.parametrize(("best", "asked"), [(6, [ALONE, FEDERATION]), (2, [ALONE, FEDERATION, OWN])])
def test_the_next_candidate_is_translated_with_only_where_chrf_refutes_the_one_before(best: int, asked: list[str]) -> None:
    chrf = {ALONE: 5, FEDERATION: best, OWN: 6}
    dev = {BASE: result(3.0), ALONE: result(2.0), OWN: result(1.5), FEDERATION: result(1.3)}
    translated = []
    while name := next_to_translate(dev, "both"):
        translated.append(name)
        dev[name] = result(dev[name].loss, chrf=chrf[name])
    assert translated == asked
    assert choose(dev, "both").candidate == asked[-1]


def test_with_too_few_sentences_no_choice_is_made() -> None:
    few = LEAST_SENTENCES - 1
    dev = {BASE: result(3.0, sentences=few), ALONE: result(2.0, sentences=few), OWN: result(1.0, sentences=few)}
    chosen = choose(dev, "loss")
    assert (chosen.candidate, chosen.gains) == (ALONE, {})
    enough = {name: result(each.loss, sentences=LEAST_SENTENCES) for name, each in dev.items()}
    assert choose(enough, "loss").candidate == OWN


def test_gains_are_paired_and_weighted_by_tokens() -> None:
    """A corpus's loss is of all its tokens; differences that both models share cancel."""
    first, second = result(2.0, swing=1.5), result(1.9, swing=1.5)
    assert gain(first, second, "loss").value == pytest.approx(0.1)
    assert gain(first, second, "loss").low == pytest.approx(0.1)
    nll = np.zeros(40)
    nll[0] = 10.0
    value = gain(DevResult(nll, TOKENS), DevResult(np.zeros(40), TOKENS), "loss")
    assert value.value == pytest.approx(10.0 / TOKENS.sum())
    assert value.low == 0.0


def test_of_equal_models_none_shows_a_gain() -> None:
    assert choose({BASE: result(2.0), FEDERATION: result(2.0)}, "loss").candidate == BASE


def test_an_interval_leaves_out_as_many_samples_above_as_below() -> None:
    found = interval(0.0, np.arange(1000.0))
    assert (found.low, found.high) == (25, 974)


def test_from_so_many_sentences_on_equal_models_seldom_seem_different() -> None:
    rng = np.random.default_rng(1)

    def wrongly_sure(sentences: int) -> float:
        tokens = rng.integers(5, 30, (1000, sentences)).astype(float)
        noise = rng.standard_t(3, (1000, sentences)) * np.sqrt(tokens)
        pairs = ((DevResult(more, of), DevResult(np.zeros(sentences), of)) for more, of in zip(noise, tokens, strict=True))
        return sum(gain(*pair, "loss").low > 0 for pair in pairs) / 1000

    assert wrongly_sure(5) > 0.06
    assert wrongly_sure(LEAST_SENTENCES) < 0.05


def test_a_candidate_with_just_the_same_chrf_is_not_refused() -> None:
    """An interval of [0, 0] does not lie below 0: both translate alike, or both translate nothing."""
    dev = {BASE: result(3.0, chrf=2), ALONE: result(2.0, chrf=5), FEDERATION: result(1.0, chrf=5)}
    assert choose(dev, "both").candidate == FEDERATION
