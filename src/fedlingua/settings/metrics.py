"""What runs are measured by: its name in scores.json and for people, and whether more is better."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.settings.options import names_of


@dataclass(frozen=True)
class Metric:
    """key: in scores.json, as in `macro_bleu` and `base_bleu`. short: where there is little room. scale: what a value is shown times."""

    key: str
    name: str
    short: str
    more_is_better: bool
    scale: float = 1.0

    def best(self, values: Iterable[float]) -> float:
        """The best of some values."""
        return max(values) if self.more_is_better else min(values)

    def gain(self, value: float | None, over: float | None) -> float | None:
        """By how much one value is better than another, where both are known; above 0 is better, whether it is to rise or to fall."""
        if value is None or over is None:
            return None
        return value - over if self.more_is_better else over - value

    def gained(self, gain: float) -> str:
        """A gain in words that go on with what it is over: "+5.9 BLEU over", "1.2 BLEU below"."""
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
"""What translations are measured by: its name for those who ask -> the metric."""

METRICS: dict[str, tuple[Metric, Metric]] = {"translation": (BLEU, CHRF), "masked-language": (PERPLEXITY, ACCURACY)}
"""One line a task: `task` -> its two metrics, the one that methods are compared by first."""


def metric_names(given: str) -> list[str]:
    """Of a list with commas, each once.

    Raises:
        ConfigError: the first name that no metric has, or none is given.
    """
    names = names_of(given, OF_TEXT, "there is no metric")
    if not names:
        raise ConfigError(f"no metric is given; there are {', '.join(OF_TEXT)}")
    return names


def metrics_of(scores: Mapping[str, Any]) -> tuple[Metric, Metric]:
    """Those that a scores.json holds; of one without any, a translation's."""
    return next((both for both in METRICS.values() if f"macro_{both[0].key}" in scores), METRICS["translation"])
