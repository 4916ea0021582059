"""BLEU and chrF from sums over sites, so that no sentence travels for a pooled score.

References are raw, each target language has sacreBLEU's tokenisation, and every number has its signature (Post 2018).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from fedlingua.common.languages import Direction
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated, bleu_into
from fedlingua.evaluation.text_metrics import bleu_tokenizer as bleu_tokenizer

NAMED = 12
"""Most sites that a warning names."""
BLEU_ORDER = 4
MORE, CHECKPOINT = "more.", "comet-checkpoint"
"""Keys of a record: prefix of an additional metric's name; hash of COMET's model."""


@dataclass(frozen=True)
class ScoreSums:
    """Sufficient statistics of one test set's translations.

    bleu: sys_len, ref_len, four counts of matching n-grams, four of all n-grams. chrf: for each order, n-grams of the hypothesis, of
    the reference, and common ones, in sacreBLEU's order. Both are integers; add them element by element. more: additional metric of
    the run -> the sum of its counts. comet_checkpoint: 48 bits of the sha256 of COMET's model, or 0.
    """

    sentences: int
    bleu: tuple[int, ...]
    chrf: tuple[int, ...]
    more: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    comet_checkpoint: int = 0

    def record(self) -> dict[str, int | float | list[int] | list[float]]:
        """Return the content of a MetricRecord."""
        record: dict[str, int | float | list[int] | list[float]] = {
            "sentences": self.sentences,
            "bleu": list(self.bleu),
            "chrf": list(self.chrf),
        }
        record |= {f"{MORE}{metric}": list(sums) for metric, sums in self.more.items()}
        return record | ({CHECKPOINT: self.comet_checkpoint} if self.comet_checkpoint else {})

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        return ScoreSums(
            self.sentences + other.sentences,
            tuple(a + b for a, b in zip(self.bleu, other.bleu, strict=True)),
            tuple(a + b for a, b in zip(self.chrf, other.chrf, strict=True)),
            {
                metric: tuple(a + b for a, b in zip(sums, other.more[metric], strict=True))
                for metric, sums in self.more.items()
                if metric in other.more
            },
            self.comet_checkpoint if self.comet_checkpoint == other.comet_checkpoint else 0,
        )


def score_sums(hypotheses: Sequence[str], references: Sequence[str], target: str) -> ScoreSums:
    """Count n-grams of translations into `target` against one raw reference each."""
    text = Translated((), hypotheses, references, target)
    bleu, chrf = (tuple(map(int, TEXT_METRICS[name].count(text).sum(axis=0))) for name in ("bleu", "chrf"))
    return ScoreSums(len(hypotheses), bleu, chrf)


def bleu_score(sums: ScoreSums) -> float:
    """Return corpus BLEU, 0-100, with exponential smoothing, sacreBLEU's default."""
    return TEXT_METRICS["bleu"].score(np.array(sums.bleu))


def chrf_score(sums: ScoreSums) -> float:
    """Return corpus chrF, 0-100 (character order 6, beta 2)."""
    return TEXT_METRICS["chrf"].score(np.array(sums.chrf))


def check_tokenizers(directions: Iterable[Direction]) -> None:
    """Refuse directions whose translations cannot be scored on this machine, before anything trains.

    Raises:
        ConfigError: the tokenizer of a target language is not installed; names both and what to install.
    """
    for direction in directions:
        bleu_into(direction.target)


@cache
def signatures(target: str) -> tuple[str, str]:
    """Return sacreBLEU's signatures (of BLEU, of chrF) for translations into `target`."""
    return TEXT_METRICS["bleu"].signature(target), TEXT_METRICS["chrf"].signature(target)


def below_base(sites: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning if the models of some sites end with a lower BLEU than the backbone; it names up to `NAMED` of them, those that lose
    most first. sites: name -> scores."""
    losses = {site: of["base_bleu"] - of["bleu"] for site, of in sites.items() if of.get("bleu", 0.0) < of.get("base_bleu", 0.0)}
    most = sorted(losses, key=lambda site: -losses[site])
    worse = [f"{site} ({sites[site]['bleu']:.1f}, before {sites[site]['base_bleu']:.1f})" for site in most[:NAMED]]
    worse += [f"{len(most) - NAMED} more"] if len(most) > NAMED else []
    if worse:
        yield f"sites that end below the backbone, in BLEU: {', '.join(worse)}; a lower learning-rate or more text of theirs may help"


def averages(scores: Mapping[str, float], sentences: Mapping[str, int]) -> tuple[float, float]:
    """Return (macro, micro): the plain mean over sites, and the mean weighted by test size, as the paper defines micro."""
    total = sum(sentences.values())
    macro = sum(scores.values()) / len(scores)
    return macro, sum(scores[name] * sentences[name] for name in scores) / total
