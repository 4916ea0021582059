"""What a task's sites are scored by at the end: how their sums are checked, and what is made of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord

from fedlingua.common.languages import Direction
from strategies import masked_scores, translation_scores

Sums = Any
"""A task's own: evaluation.scores.ScoreSums, or evaluation.perplexity.MaskedScores."""


@dataclass(frozen=True)
class Measure:
    """check: a site's sums, once they can be believed, of at most so many sentences and nats a token; measured_on: what two translations
    or models have to have alike when they are measured on one text; of_site, of_all: what scores.json says of one site, and of all."""

    check: Callable[[MetricRecord, int, float], Sums]
    measured_on: Callable[[Sums], tuple[object, ...]]
    of_site: Callable[[Direction, Sums, Sums], dict[str, Any]]
    of_all: Callable[[Mapping[str, Mapping[str, Any]], Mapping[str, tuple[Sums, Sums]]], dict[str, Any]]


MEASURES: dict[str, Measure] = {
    "translation": Measure(
        translation_scores.check_sums,
        translation_scores.measured_on,
        translation_scores.site_scores,
        translation_scores.all_scores,
    ),
    "masked-language": Measure(
        masked_scores.check_sums, masked_scores.measured_on, masked_scores.site_scores, masked_scores.all_scores
    ),
}
"""One line a task: `task` -> its measure."""
