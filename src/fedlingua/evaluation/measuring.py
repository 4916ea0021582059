"""Texts measured by the metrics that are asked for, one after another; COMET's model is loaded once for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedlingua.evaluation.comet.scores import check_comet, comet_scores
from fedlingua.evaluation.comet.scores import signature as comet_signature
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts, Translated, share

COMET = "comet"


@dataclass(frozen=True)
class Measured:
    """One metric of one text. counts: (sentences, width). checkpoint: of COMET's model, 48 bits of its sha256; else 0."""

    metric: str
    counts: Counts
    signature: str
    checkpoint: int = 0

    @property
    def corpus(self) -> float:
        """The score of all its sentences."""
        return score_of(self.metric, self.counts.sum(axis=0))


def score_of(metric: str, total: Counts) -> float:
    """A corpus's score, from the sum of what is counted of its sentences, (width,)."""
    return share(total) if metric == COMET else TEXT_METRICS[metric].score(total)


def width_of(metric: str) -> int:
    """How many numbers it counts of a sentence."""
    return 2 if metric == COMET else TEXT_METRICS[metric].width


def signature_of(metric: str, target: str, model: str, checkpoint: int) -> str:
    """How a text in the language `target` is measured; model and checkpoint are COMET's."""
    return comet_signature(model, checkpoint) if metric == COMET else TEXT_METRICS[metric].signature(target)


def check_measuring(metrics: Sequence[str], model: str, say: Callable[[str], None]) -> None:
    """Make sure that all of the metrics can be had here, before anything else takes long.

    Raises:
        ConfigError: COMET or its model cannot.
    """
    if COMET in metrics:
        check_comet(model, say)


def measure(
    texts: Mapping[str, Translated],
    metrics: Sequence[str],
    model: str,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, dict[str, Measured]]:
    """Text -> metric -> what it counts, in the order of `metrics`; say and progress are COMET's, which takes long.

    Raises:
        ConfigError: COMET or its model cannot be had here. RunError: COMET broke off.
    """
    measured: dict[str, dict[str, Measured]] = {name: {} for name in texts}
    for metric in metrics:
        if metric == COMET:
            scores = comet_scores(texts, model, say, progress)
            made = {name: (scores.counts(name), scores.checkpoint) for name in texts}
        else:
            made = {name: (TEXT_METRICS[metric].count(text), 0) for name, text in texts.items()}
        for name, (counts, checkpoint) in made.items():
            signature = signature_of(metric, texts[name].target, model, checkpoint)
            measured[name][metric] = Measured(metric, counts, signature, checkpoint)
    return measured
