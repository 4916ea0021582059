"""Metrics of translated text: counts of each sentence, which can be resampled or summed, and the corpus score of their sum.

They are sacreBLEU's BLEU, chrF, chrF++ and TER with their signatures (Post 2018), length ratio and off-target rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import plain_code, without_spaces
from fedlingua.corpora.identify import is_identified, other_language

Counts = NDArray[np.float64]
_OWN_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab"}
"""Target language -> sacreBLEU's name of the language's own tokenizer; Japanese: MeCab with the IPA dictionary."""


@dataclass(frozen=True)
class Translated:
    """A translated text to score: three lists of equal length, one sentence an item. target: code of the target language."""

    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[str]
    target: str


@dataclass(frozen=True)
class TextMetric:
    """A metric as counts, and as the score that follows from them.

    count: returns a text's counts, (sentences, width). score: returns a corpus's score from the sum of its sentences' counts, (width,).
    signature: returns the metric's signature for a target language. is_able: returns whether the metric can measure text in a language.
    """

    width: int
    count: Callable[[Translated], Counts]
    score: Callable[[Counts], float]
    signature: Callable[[str], str]
    is_able: Callable[[str], bool] = lambda target: True

    def of(self, counts: Counts) -> float:
        """Return the score of a whole text from its counts, (sentences, width)."""
        return self.score(counts.sum(axis=0))


def _sacre(width: int, made: Callable[[str], SacreMetric]) -> TextMetric:
    """Return a metric of sacreBLEU. made: makes sacreBLEU's object for a target language."""

    # The counts alone determine the score, in any language; a bootstrap computes it thousands of times.
    @cache
    def scorer() -> SacreMetric:
        return made("en")

    def count(text: Translated) -> Counts:
        # sacreBLEU gives counts of sentences only by this private method and the next; tests compare them with corpus_score.
        counts = made(text.target)._extract_corpus_statistics(list(text.hypotheses), [list(text.references)])
        return np.asarray(counts, dtype=np.float64).reshape(len(text.hypotheses), width)

    def score(total: Counts) -> float:
        return float(scorer()._compute_score_from_stats(total.tolist()).score)

    def signature(target: str) -> str:
        metric = made(target)
        metric.corpus_score(["a"], [["a"]])  # a signature knows the number of references only after a score
        return str(metric.get_signature().format())

    return TextMetric(width, count, score, signature)


def bleu_tokenizer(target: str) -> str:
    """Return sacreBLEU's name of the tokenizer: the language's own, else "char" if it has no spaces between words, else 13a."""
    return _OWN_TOKENIZERS.get(plain_code(target), "char") if without_spaces(target) else "13a"


def bleu_into(target: str) -> BLEU:
    """Return BLEU for translations into a language; raise ConfigError if the packages of its tokenizer are not installed."""
    tokenizer, extra = bleu_tokenizer(target), plain_code(target)
    try:
        return BLEU(tokenize=tokenizer)
    except RuntimeError as error:  # raised by sacreBLEU if the packages of one of its extras are missing
        raise ConfigError(
            f"BLEU into {target!r} takes sacreBLEU's tokenizer {tokenizer!r}, whose packages are not installed here; wanted those of "
            f"the extra {extra!r}: pip install 'fedlingua[{extra}]', or pip install -c constraints.txt -e '.[{extra}]' in a checkout"
        ) from error


def _ter(target: str) -> TER:
    """Return TER, by characters for Chinese and Japanese, as in Tercom; in Thai and others without spaces it finds no words."""
    asian = plain_code(target) in ("zh", "ja")
    return TER(normalized=asian, asian_support=asian)


_BLEU = _sacre(10, bleu_into)


def _other_languages(text: Translated) -> Counts:
    wrong = [float(bool(other_language(sentence, text.target))) for sentence in text.hypotheses]
    return np.stack([np.asarray(wrong), np.ones(len(wrong))], axis=1)


def share(total: Counts) -> float:
    """Return the first of two sums divided by the second; 0 if the second is 0."""
    return float(total[0] / total[1]) if total[1] else 0.0


TEXT_METRICS: dict[str, TextMetric] = {
    "bleu": _BLEU,
    "chrf": _sacre(18, lambda target: CHRF()),
    "chrf++": _sacre(24, lambda target: CHRF(word_order=2)),
    "ter": _sacre(2, _ter),
    # Number of BLEU's tokens in the translations, divided by that in the references.
    "length-ratio": TextMetric(2, lambda text: _BLEU.count(text)[:, :2], share, _BLEU.signature),
    # Share of translations that are certainly in another language than the target.
    "off-target": TextMetric(2, _other_languages, share, lambda target: f"py3langid:{version('py3langid')}", is_identified),
}
"""Name -> metric. COMET, which needs a model, is apart (fedlingua/evaluation/comet)."""
