"""The paired bootstrap gives sacreBLEU's own numbers on the same files."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from fedlingua.evaluation.bootstrap import SAMPLES, draws
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated
from fedlingua_lab.comparison.differences import difference, paired

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "house",
    "tree",
    "sees",
    "has",
    "likes",
    "on",
    "under",
    "green",
    "big",
    "small",
    "river",
    "town",
]


def sentences(seed: int, spoiled: float) -> tuple[list[str], list[str]]:
    """References, and hypotheses a share of whose words is wrong."""
    rng = random.Random(seed)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(4, 14))) for _ in range(60)]
    hypotheses = [" ".join(rng.choice(WORDS) if rng.random() < spoiled else word for word in line.split()) for line in references]
    return references, hypotheses


@pytest.fixture(scope="module")
def systems() -> tuple[list[str], list[str], list[str]]:
    references, first = sentences(1, 0.30)
    return references, first, sentences(1, 0.25)[1]


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU()), ("chrf", CHRF()), ("chrf++", CHRF(word_order=2)), ("ter", TER())])
def test_score_p_and_samples_are_sacrebleus(systems, name, metric):
    references, first, second = systems
    test = PairedTest([("first", first), ("second", second)], {name: metric}, [references], test_type="bs", n_samples=SAMPLES)
    results = next(value for key, value in test()[1].items() if key != "System")
    own = TEXT_METRICS[name]
    counts = [own.count(Translated(references, hypotheses, references, "en")) for hypotheses in (first, second)]
    found = paired(*counts, own.score, draws(len(references)))
    assert found.first == pytest.approx(results[0].score, abs=1e-9)
    assert found.second == pytest.approx(results[1].score, abs=1e-9)
    assert found.p == results[1].p_value
    assert 0 < found.p < 0.5


def test_the_interval_holds_95_of_100_samples():
    of_second = np.random.default_rng(3).permutation(np.arange(1000, dtype=float))
    found = difference(0.0, 500.0, np.zeros(1000), of_second)
    assert (found.low, found.high) == (25.0, 974.0)
    assert found.value == 500.0
    assert found.is_clear


@pytest.mark.parametrize(("around", "is_clear"), [(25.0, True), (26.0, False), (973.0, False), (974.0, True)])
def test_a_difference_is_clear_whose_interval_leaves_out_0(around: float, is_clear: bool):
    shifted = np.arange(1000, dtype=float) - around + (0.5 if around < 500 else -0.5)
    assert difference(0.0, 1.0, np.zeros(1000), shifted).is_clear == is_clear


def test_a_system_compared_with_itself_differs_by_chance_alone(systems):
    references, first, _ = systems
    counts = TEXT_METRICS["bleu"].count(Translated(references, first, references, "en"))
    found = paired(counts, counts, TEXT_METRICS["bleu"].score, draws(len(references)))
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)
    assert found.p == 1.0  # and not sacreBLEU's 1/1001, since no sample's difference is above 0


def test_draws_are_with_replacement_and_follow_the_seed():
    drawn = draws(50, 20, 7)
    assert drawn.shape == (20, 50)
    assert (drawn.sum(axis=1) == 50).all()
    assert drawn.max() > 1
    assert (drawn == draws(50, 20, 7)).all()
    assert (drawn != draws(50, 20, (7, 1))).any()
