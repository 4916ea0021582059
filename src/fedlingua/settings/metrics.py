"""Metrics of runs: their names in scores.json and for display, and whether higher is better."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedlingua.common.errors import ConfigError
from fedlingua.settings.options import names_of


@dataclass(frozen=True)
class Metric:
    """A metric. key: its name in scores.json, as in `macro_bleu`. short: its name in narrow places. scale: factor for display.

    ideal: The best value, if neither the highest nor the lowest is.
    """

    key: str
    name: str
    short: str
    more_is_better: bool
    scale: float = 1.0
    ideal: float | None = None

    @property
    def what_is_better(self) -> str:
        """What a reader has to know of a metric that is not better the higher it is; else ""."""
        if self.ideal is not None:
            return f"the nearer to {self.ideal:g} the better"
        return "" if self.more_is_better else "less is better"

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values."""
        return max(values, key=lambda value: self.gain(value, 0.0) or 0.0)

    def gain(self, value: float | None, over: float | None) -> float | None:
        """Return by how much `value` is better than `over`: above 0 if it is better, also if lower is better; None if one is unknown."""
        if value is None or over is None:
            return None
        if self.ideal is not None:
            return abs(over - self.ideal) - abs(value - self.ideal)
        return value - over if self.more_is_better else over - value

    def gained(self, gain: float) -> str:
        """Return a gain in words, to be followed by the name of what it is compared with: "+5.9 BLEU over", "1.2 BLEU below"."""
        if self.ideal is not None:
            return f"{self.scale * abs(gain):.2f} {'nearer to' if gain >= 0 else 'further from'} {self.ideal:g} than"
        higher = (gain >= 0) == self.more_is_better
        return f"{'+' if higher else ''}{self.scale * abs(gain):.1f} {self.short} {'over' if higher else 'below'}"


BLEU, CHRF = Metric("bleu", "BLEU", "BLEU", True), Metric("chrf", "chrF", "chrF", True)
PERPLEXITY, ACCURACY = Metric("perplexity", "perplexity", "PPL", False), Metric("accuracy", "accuracy, %", "acc %", True, 100.0)

OF_TEXT: dict[str, Metric] = {
    "bleu": BLEU,
    "chrf": CHRF,
    "chrf++": Metric("chrf++", "chrF++", "chrF++", True),
    "ter": Metric("ter", "TER", "TER", False),
    "length-ratio": Metric("length_ratio", "length ratio", "length", True, ideal=1.0),
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
