"""Metrics of runs: their names in scores.json and for display, and whether higher is better."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.settings.options import names_of


@dataclass(frozen=True)
class Metric:
    """A metric. key: its name in scores.json, as in `macro_bleu`. short: its name in narrow places. scale: factor for display."""

    key: str
    name: str
    short: str
    more_is_better: bool
    scale: float = 1.0

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.more_is_better else min(values)

    def gain(self, value: float | None, over: float | None) -> float | None:
        """Return by how much `value` is better than `over`: above 0 if it is better, also if lower is better; None if one is unknown."""
        if value is None or over is None:
            return None
        return value - over if self.more_is_better else over - value

    def gained(self, gain: float) -> str:
        """Return a gain in words, to be followed by the name of what it is compared with: "+5.9 BLEU over", "1.2 BLEU below"."""
        higher = (gain >= 0) == self.more_is_better
        return f"{'+' if higher else ''}{self.scale * abs(gain):.1f} {self.short} {'over' if higher else 'below'}"


BLEU, CHRF = Metric("bleu", "BLEU", "BLEU", True), Metric("chrf", "chrF", "chrF", True)
PERPLEXITY, ACCURACY = Metric("perplexity", "perplexity", "PPL", False), Metric("accuracy", "accuracy, %", "acc %", True, 100.0)

OF_TEXT: dict[str, Metric] = {
    "bleu": BLEU,
    "chrf": CHRF,
    "chrf++": Metric("chrf++", "chrF++", "chrF++", True),
    "ter": Metric("ter", "TER", "TER", False),
    "length-ratio": Metric("length_ratio", "length ratio", "length", True),
    "off-target": Metric("off_target", "off-target, %", "off %", False, 100.0),
    "comet": Metric("comet", "COMET x 100", "COMET", True, 100.0),
}
"""Metrics of translations, by their names in the option `metrics`."""

METRICS: dict[str, tuple[Metric, Metric]] = {"translation": (BLEU, CHRF), "masked-language": (PERPLEXITY, ACCURACY)}
"""Task -> its two metrics; methods are compared by the first."""


def metric_names(given: str) -> list[str]:
    """Return the metrics of a comma-separated list, each once; raise ConfigError if one is unknown, or none is given."""
    names = names_of(given, OF_TEXT, "there is no metric")
    if not names:
        raise ConfigError(f"no metric is given; there are {', '.join(OF_TEXT)}")
    return names


def metrics_of(scores: Mapping[str, Any]) -> tuple[Metric, Metric]:
    """Return the two metrics of a scores.json; translation's, if it has none."""
    return next((both for both in METRICS.values() if f"macro_{both[0].key}" in scores), METRICS["translation"])
