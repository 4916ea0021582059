"""Metrics: which values are better, and which a scores.json holds."""

from fedlingua.desk.report.read import metrics_of
from fedlingua.settings.metrics import ACCURACY, BLEU, CHRF, METRICS, OF_TEXT, PERPLEXITY
from fedlingua.settings.tasks import TASKS


def test_more_bleu_and_less_perplexity_are_better() -> None:
    assert (BLEU.best([1.0, 3.0, 2.0]), PERPLEXITY.best([1.0, 3.0, 2.0])) == (3.0, 1.0)
    assert (BLEU.gain(2.0, 1.5), PERPLEXITY.gain(2.0, 1.5)) == (0.5, -0.5)
    assert BLEU.gain(None, 1.0) is BLEU.gain(1.0, None) is None


def test_a_gain_in_words_says_which_way_it_goes() -> None:
    assert [BLEU.gained(5.94), BLEU.gained(-1.2)] == ["+5.9 BLEU over", "1.2 BLEU below"]
    assert [PERPLEXITY.gained(8), PERPLEXITY.gained(-2)] == ["8.0 PPL below", "+2.0 PPL over"]


def test_translations_as_long_as_their_references_are_best() -> None:
    length = OF_TEXT["length-ratio"]
    assert length.best([0.5, 1.25, 1.9]) == 1.25
    assert (length.gain(1.5, 1.0), length.gain(1.25, 1.5), length.gain(1.25, 0.5)) == (-0.5, 0.25, 0.25)
    assert [length.gained(0.25), length.gained(-0.5)] == ["0.25 nearer to 1 than", "0.50 further from 1 than"]


def test_scores_tell_their_metrics_by_their_names() -> None:
    assert metrics_of({"macro_bleu": 1.0}) == (BLEU, CHRF)
    assert metrics_of({"macro_perplexity": 1.0}) == (PERPLEXITY, ACCURACY)
    assert metrics_of({}) == (BLEU, CHRF)


def test_every_task_is_measured() -> None:
    assert tuple(METRICS) == TASKS
