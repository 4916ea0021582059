"""Metrics of translated text as counts of each sentence, whose sum a corpus's score is made of; what is resampled, compared and published.

sacreBLEU's BLEU, chrF, chrF++ and TER with their signatures (Post 2018); length ratio and off-target rate beside them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from fedlingua.corpora.identify import is_other_language
from fedlingua.errors import ConfigError
from fedlingua.evaluation import metrics
from fedlingua.evaluation.metrics import Metric
from fedlingua.evaluation.scores import bleu_tokenizer
from fedlingua.languages import WITHOUT_SPACES, nearest

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Translated:
    """A text that is scored: three lists of equal length, a sentence a place. target: code of the language it is translated into."""

    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[str]
    target: str


@dataclass(frozen=True)
class Counted:
    """counts: (sentences, k) of one metric. score: a corpus's score, of the sum over its sentences, (k,). signature: how it is measured."""

    counts: Counts
    score: Callable[[Counts], float]
    signature: str

    @property
    def corpus(self) -> float:
        """The score of all sentences."""
        return self.score(self.counts.sum(axis=0))


def _sacre(metric: SacreMetric, text: Translated) -> Counted:
    # sacreBLEU publishes what it counts of a sentence only through these two methods; tests hold them to corpus_score.
    counts = metric._extract_corpus_statistics(list(text.hypotheses), [list(text.references)])
    metric.corpus_score(["a"], [["a"]])  # a signature knows the number of references only after a score

    def score(total: Counts) -> float:
        return float(metric._compute_score_from_stats(total.tolist()).score)

    return Counted(np.asarray(counts, dtype=np.float64), score, metric.get_signature().format())


def _bleu(text: Translated) -> Counted:
    return _sacre(BLEU(tokenize=bleu_tokenizer(text.target)), text)


def _chrf(text: Translated) -> Counted:
    return _sacre(CHRF(), text)


def _chrf_plus_plus(text: Translated) -> Counted:
    return _sacre(CHRF(word_order=2), text)


def _ter(text: Translated) -> Counted:
    """Where words are not written apart, of characters, as the Tercom of sacreBLEU has it."""
    asian = text.target in WITHOUT_SPACES
    return _sacre(TER(normalized=asian, asian_support=asian), text)


def _length_ratio(text: Translated) -> Counted:
    """Tokens of the hypotheses over those of the references, in BLEU's tokens."""
    bleu = _bleu(text)
    return Counted(bleu.counts[:, :2], _share, bleu.signature)


def _off_target(text: Translated) -> Counted:
    """Share of the hypotheses that are surely in another language than asked for."""
    wrong = [float(is_other_language(sentence, text.target)) for sentence in text.hypotheses]
    counts = np.stack([np.asarray(wrong), np.ones(len(wrong))], axis=1)
    return Counted(counts, _share, f"py3langid:{version('py3langid')}")


def _share(total: Counts) -> float:
    """Of two sums."""
    return float(total[0] / total[1]) if total[1] else 0.0


TEXT_METRICS: dict[str, Callable[[Translated], Counted]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "chrf++": _chrf_plus_plus,
    "ter": _ter,
    "length-ratio": _length_ratio,
    "off-target": _off_target,
}
"""One line a metric: its name -> what it counts of a text. COMET, which takes a model, is beside them (fedlingua/comet)."""

COMET = "comet"
NAMED: dict[str, Metric] = {
    "bleu": metrics.BLEU,
    "chrf": metrics.CHRF,
    "chrf++": Metric("chrf++", "chrF++", "chrF++", True),
    "ter": Metric("ter", "TER", "TER", False),
    "length-ratio": Metric("length_ratio", "length ratio", "length", True),
    "off-target": Metric("off_target", "off-target, %", "off %", False, 100.0),
    COMET: Metric("comet", "COMET x 100", "COMET", True, 100.0),
}
"""Metric -> how it stands in scores.json, and for people."""
METRIC_NAMES = tuple(NAMED)


def check_metrics(names: Collection[str]) -> None:
    """Raises ConfigError for the first name that no metric has."""
    for name in names:
        if name not in METRIC_NAMES:
            raise ConfigError(f"there is no metric {name!r}{nearest(name, METRIC_NAMES)}; there are {', '.join(METRIC_NAMES)}")
