"""Measure texts by the requested metrics; COMET's model is loaded once for all texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedlingua.evaluation.comet.scores import comet_scores
from fedlingua.evaluation.comet.scores import signature as comet_signature
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts, Translated, share

COMET = "comet"


@dataclass(frozen=True)
class Measured:
    """One metric's counts of one text, (sentences, width). checkpoint: 48 bits of the sha256 of COMET's model; others: 0."""

    metric: str
    counts: Counts
    signature: str
    checkpoint: int = 0

    @property
    def corpus(self) -> float:
        """The score of the whole text."""
        return score_of(self.metric, self.counts.sum(axis=0))


def score_of(metric: str, total: Counts) -> float:
    """Return a corpus's score from the sum of its sentences' counts, (width,)."""
    return share(total) if metric == COMET else TEXT_METRICS[metric].score(total)


def width_of(metric: str) -> int:
    """Return how many counts the metric has per sentence."""
    return 2 if metric == COMET else TEXT_METRICS[metric].width


def signature_of(metric: str, target: str, model: str, checkpoint: int) -> str:
    """Return the metric's signature for text in the language `target`; model and checkpoint are COMET's."""
    return comet_signature(model, checkpoint) if metric == COMET else TEXT_METRICS[metric].signature(target)


def measure(
    texts: Mapping[str, Translated],
    metrics: Sequence[str],
    model: str,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, dict[str, Measured]]:
    """Return text -> metric -> counts, in the order of `metrics`; only COMET, which takes long, uses progress.

    A metric that cannot measure text in a target language is left out there, which `say` is told.

    Raises:
        ConfigError: COMET or its model is not available here. RunError: COMET failed.
    """
    measured: dict[str, dict[str, Measured]] = {name: {} for name in texts}
    for metric in metrics:
        if metric == COMET:
            made, checkpoint = comet_scores(texts, model, say, progress)
        else:
            able = {name: text for name, text in texts.items() if TEXT_METRICS[metric].is_able(text.target)}
            for target in sorted({text.target for text in texts.values()} - {text.target for text in able.values()}):
                lacking = TEXT_METRICS[metric].signature(target)
                say(f"{metric} is not measured for translations into {target!r}, a language that {lacking} lacks")
            made, checkpoint = {name: TEXT_METRICS[metric].count(text) for name, text in able.items()}, 0
        for name, counts in made.items():
            signature = signature_of(metric, texts[name].target, model, checkpoint)
            measured[name][metric] = Measured(metric, counts, signature, checkpoint)
    return measured
