"""Metrics of translated text as counts of each sentence, whose sum a corpus's score is made of; what is resampled, compared and published.

sacreBLEU's BLEU, chrF, chrF++ and TER with their signatures (Post 2018); length ratio and off-target rate beside them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from fedlingua.common.languages import plain_code
from fedlingua.corpora.identify import other_language
from fedlingua.evaluation.scores import bleu_metric, bleu_tokenizer, chrf_metric

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Translated:
    """A text that is scored: three lists of equal length, a sentence a place. target: code of the language it is translated into."""

    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[str]
    target: str


@dataclass(frozen=True)
class TextMetric:
    """What a metric counts, and what becomes of it.

    count: of a text, (sentences, width). score: of a corpus, from the sum over its sentences, (width,). signature: how it is measured
    where the target language is the given one.
    """

    width: int
    count: Callable[[Translated], Counts]
    score: Callable[[Counts], float]
    signature: Callable[[str], str]

    def of(self, counts: Counts) -> float:
        """The score of a whole text."""
        return self.score(counts.sum(axis=0))


def _sacre(width: int, made: Callable[[str], SacreMetric]) -> TextMetric:
    """A metric of sacreBLEU's. made: for a target language."""
    # What is counted decides the score, in whatever language; a bootstrap asks for it thousands of times.
    scorer = made("en")

    def count(text: Translated) -> Counts:
        # sacreBLEU publishes what it counts of a sentence only through this method and the next; tests hold them to corpus_score.
        counts = made(text.target)._extract_corpus_statistics(list(text.hypotheses), [list(text.references)])
        return np.asarray(counts, dtype=np.float64).reshape(len(text.hypotheses), width)

    def score(total: Counts) -> float:
        return float(scorer._compute_score_from_stats(total.tolist()).score)

    def signature(target: str) -> str:
        metric = made(target)
        metric.corpus_score(["a"], [["a"]])  # a signature knows the number of references only after a score
        return str(metric.get_signature().format())

    return TextMetric(width, count, score, signature)


def _bleu(target: str) -> BLEU:
    return bleu_metric(bleu_tokenizer(target))


def _chrf(target: str) -> CHRF:
    return chrf_metric()


def _chrf_plus_plus(target: str) -> CHRF:
    return CHRF(word_order=2)


def _ter(target: str) -> TER:
    """Of Chinese and Japanese of characters, as sacreBLEU's Tercom has it; of Thai and others without spaces it sees no words."""
    asian = plain_code(target) in ("zh", "ja")
    return TER(normalized=asian, asian_support=asian)


_BLEU = _sacre(10, _bleu)


def _lengths(text: Translated) -> Counts:
    return _BLEU.count(text)[:, :2]


def _other_languages(text: Translated) -> Counts:
    wrong = [float(bool(other_language(sentence, text.target))) for sentence in text.hypotheses]
    return np.stack([np.asarray(wrong), np.ones(len(wrong))], axis=1)


def share(total: Counts) -> float:
    """The first of two sums over the second."""
    return float(total[0] / total[1]) if total[1] else 0.0


TEXT_METRICS: dict[str, TextMetric] = {
    "bleu": _BLEU,
    "chrf": _sacre(18, _chrf),
    "chrf++": _sacre(24, _chrf_plus_plus),
    "ter": _sacre(2, _ter),
    # In BLEU's tokens: those of the translations over those of the references.
    "length-ratio": TextMetric(2, _lengths, share, _BLEU.signature),
    # Translations that are surely in another language than asked for.
    "off-target": TextMetric(2, _other_languages, share, lambda target: f"py3langid:{version('py3langid')}"),
}
"""One line a metric: its name -> how a text is measured by it. COMET takes a model and stands beside them (fedlingua/comet)."""
